#include "common/rpc/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/library.h"

#define MODULE "http"

/* A few scrapers and a person: more at once are refused, and who says nothing is dropped. */
#define CONNECTIONS_MAX 32
#define CONNECTION_TIMEOUT_S 10
#define BODY_BYTES_MAX ((size_t)4 << 20)
#define HOST_BYTES_MAX 256
#define LIBRARY "libmicrohttpd.so.12"

/* Found when the first server opens: packages carry their libraries inside, but for this one, whose
 * TLS, which nothing here uses, needs some that have no static form. */
#define FUNCTIONS(X)                                                                               \
    X(start_daemon)                                                                                \
    X(stop_daemon)                                                                                 \
    X(create_response_from_buffer)                                                                 \
    X(add_response_header)                                                                         \
    X(queue_response)                                                                              \
    X(destroy_response)
static struct {
    bool has_all;
#define X(name) __typeof__(&MHD_##name) name;
    FUNCTIONS(X)
#undef X
} g_mhd;

struct ft_http {
    struct MHD_Daemon *daemon;
    int socket;
    int port;
    ft_http_fn fn;
    void *user;
};

static enum MHD_Result send_text(struct MHD_Connection *connection, int status, const char *type,
                                 struct ft_str body) {
    struct MHD_Response *response = g_mhd.create_response_from_buffer(
        body.len, (void *)(uintptr_t)body.ptr, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    g_mhd.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        g_mhd.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = g_mhd.queue_response(connection, (unsigned)status, response);
    g_mhd.destroy_response(response);
    return result;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state) {
    static const char plain[] = "text/plain; charset=utf-8";
    struct ft_http *http = user;
    (void)version;
    (void)upload;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        if (*upload_size > 0 || *state == NULL) { /* a body is dropped as it comes */
            *upload_size = 0;
            *state = http;
            return MHD_YES;
        }
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, plain, ft_str_c("GET only\n"));
    }
    struct ft_buf body;
    ft_buf_init(&body, BODY_BYTES_MAX);
    struct ft_http_reply reply = {MHD_HTTP_NOT_FOUND, plain, &body};
    http->fn(http->user, url, &reply);
    enum MHD_Result result;
    if (body.failed)
        result = send_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, plain,
                           ft_str_c("no memory for the answer\n"));
    else if (reply.status == MHD_HTTP_NOT_FOUND && body.len == 0)
        result = send_text(connection, reply.status, plain, ft_str_c("not found\n"));
    else
        result = send_text(connection, reply.status, reply.type, ft_buf_str(&body));
    ft_buf_fini(&body);
    return result;
}

static enum ft_code split(const char *endpoint, char host[HOST_BYTES_MAX], const char **port,
                          struct ft_err *err) {
    const char *colon = strrchr(endpoint, ':');
    size_t len = colon != NULL ? (size_t)(colon - endpoint) : 0;
    if (colon == NULL || len == 0 || len >= HOST_BYTES_MAX || colon[1] == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "endpoint '%s': must be HOST:PORT",
                          endpoint);
    bool brackets = endpoint[0] == '[' && endpoint[len - 1] == ']';
    memcpy(host, endpoint + brackets, len - 2 * (size_t)brackets);
    host[len - 2 * (size_t)brackets] = 0;
    *port = colon + 1;
    return FT_OK;
}

static int listen_on(const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, CONNECTIONS_MAX) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static enum ft_code open_socket(struct ft_http *http, const char *endpoint, struct ft_err *err) {
    char host[HOST_BYTES_MAX];
    const char *port = "";
    struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
    };
    struct addrinfo *list = NULL;
    enum ft_code code = split(endpoint, host, &port, err);
    if (code != FT_OK)
        return code;
    int failed = getaddrinfo(host, port, &hints, &list);
    if (failed != 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "endpoint '%s': %s", endpoint,
                          gai_strerror(failed));
    http->socket = listen_on(list);
    int error = errno;
    freeaddrinfo(list);
    if (http->socket < 0)
        return ft_err_set_os(err, FT_E_PROC_CONFIG, error, MODULE, "cannot listen on %s", endpoint);
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    char text[16] = "0";
    if (getsockname(http->socket, (struct sockaddr *)&bound, &len) == 0)
        getnameinfo((struct sockaddr *)&bound, len, NULL, 0, text, sizeof text, NI_NUMERICSERV);
    http->port = atoi(text);
    return FT_OK;
}

static enum ft_code load_library(struct ft_err *err) {
    if (g_mhd.has_all)
        return FT_OK;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, LIBRARY " cannot be loaded");
#define X(name)                                                                                    \
    if (!ft_library_find(library, "MHD_" #name, &g_mhd.name))                                      \
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, LIBRARY " lacks MHD_" #name);
    FUNCTIONS(X)
#undef X
    g_mhd.has_all = true;
    return FT_OK;
}

enum ft_code ft_http_open(struct ft_http **out, const char *endpoint, ft_http_fn fn, void *user,
                          struct ft_err *err) {
    struct ft_http *http = calloc(1, sizeof *http);
    if (http == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    http->fn = fn;
    http->user = user;
    http->socket = -1;
    enum ft_code code = load_library(err);
    if (code == FT_OK)
        code = open_socket(http, endpoint, err);
    if (code == FT_OK) {
        http->daemon = g_mhd.start_daemon(
            MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL, on_request,
            http, MHD_OPTION_LISTEN_SOCKET, http->socket, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
            (unsigned)CONNECTION_TIMEOUT_S, MHD_OPTION_END);
        if (http->daemon == NULL)
            code = ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "cannot serve on %s", endpoint);
        else
            http->socket = -1; /* the daemon's */
    }
    if (code != FT_OK) {
        ft_http_close(&http);
        return code;
    }
    *out = http;
    return FT_OK;
}

int ft_http_port(const struct ft_http *http) {
    return http->port;
}

void ft_http_close(struct ft_http **http) {
    if (*http == NULL)
        return;
    if ((*http)->daemon != NULL)
        g_mhd.stop_daemon((*http)->daemon);
    if ((*http)->socket >= 0)
        close((*http)->socket);
    free(*http);
    *http = NULL;
}
