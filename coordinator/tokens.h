/* tokens: who may call, read from a file of one token a line, and what each may ask for.
 * Owns:    the rows, from parse to fini. Of a token it knows the SHA-256 alone.
 * Runs in: coordinator; loop thread only.
 * Never:   holds or prints a token; compares in a time that tells how much was right. */
#ifndef CO_TOKENS_H
#define CO_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_TOKEN_NAME_MAX 64
#define CO_TOKENS_MAX 4096 /* lines of a file: each call looks at all of them */
#define CO_TOKENS_FILE_MAX ((size_t)1 << 20)
#define CO_TOKEN_BYTES_MAX 4096 /* of what a call shows; more is no token */

struct co_token {
    char name[CO_TOKEN_NAME_MAX + 1];
    unsigned char hash[32];
    bool admin;                  /* may call the admin service, and abort any request */
    int32_t max_requests;        /* waiting and running at once; 0: no limit */
    int32_t requests_per_minute; /* 0: no limit */
    int32_t min_priority;        /* the lowest value, which is served first, that it may ask for */
    double allowance;            /* requests that it may make now, of its requests_per_minute */
    int64_t allowance_ns;        /* when that was so */
};

struct co_tokens {
    struct co_token *rows; /* [n], in the order of the file */
    size_t n;
};

/* Lines "NAME sha256:HEX [admin] [max_requests=N] [requests_per_minute=N] [min_priority=N]"; empty
 * lines and lines that begin with # are skipped. file is for messages.
 * fail FT_E_PROC_CONFIG naming file and line, never what stands there for the token;
 *      FT_E_PROC_MEMORY. out is untouched. */
enum ft_code co_tokens_parse(struct co_tokens *out, struct ft_str text, const char *file,
                             struct ft_err *err);
/* The same of the text in path. fail FT_E_PROC_CONFIG also where it cannot be read */
enum ft_code co_tokens_read(struct co_tokens *out, const char *path, struct ft_err *err);
void co_tokens_fini(struct co_tokens *tokens);
/* What each token has used of its rate goes on, by name. */
void co_tokens_inherit(struct co_tokens *tokens, const struct co_tokens *from);
/* The row of a token; NULL: none. */
struct co_token *co_tokens_find(const struct co_tokens *tokens, struct ft_str token);

/* Take n requests off the token's rate. false: too many, nothing was taken; *wait_ms says when they
 * may come again, -1: never so many at once. */
bool co_token_take(struct co_token *token, int32_t n, int64_t now_ns, int64_t *wait_ms);

#ifdef __cplusplus
}
#endif
#endif
