/* http: a small HTTP server that answers GET with texts, on a thread of its own.
 * Owns:    its socket, its thread and connections; from open to close.
 * Runs in: coordinator; open and close on the loop thread, the handler on the server's own.
 * Never:   reads a body; lets a libmicrohttpd type out. */
#ifndef FT_RPC_HTTP_H
#define FT_RPC_HTTP_H

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_http;

struct ft_http_reply {
    int status;          /* 200, 404, 503; 404 at first */
    const char *type;    /* Content-Type; static; "text/plain; charset=utf-8" at first */
    struct ft_buf *body; /* empty at first */
};

/* One GET of path, without what follows '?'. On the server's thread, one at a time. */
typedef void (*ft_http_fn)(void *user, const char *path, struct ft_http_reply *reply);

/* endpoint "HOST:PORT", "[::1]:PORT"; port 0 takes a free one.
 * fail FT_E_PROC_CONFIG names the endpoint, or the library that cannot be loaded */
enum ft_code ft_http_open(struct ft_http **out, const char *endpoint, ft_http_fn fn, void *user,
                          struct ft_err *err);
int ft_http_port(const struct ft_http *http);
/* Waits for a handler that is running. */
void ft_http_close(struct ft_http **http);

#ifdef __cplusplus
}
#endif
#endif
