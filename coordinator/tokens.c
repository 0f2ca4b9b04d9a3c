#include "coordinator/tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/file.h"

#define MODULE "tokens"
#define MINUTE_NS 60e9
#define HASH_PREFIX "sha256:"

struct place { /* in the file, for messages */
    const char *file;
    size_t line;
};

static enum ft_code refuse(const struct place *at, struct ft_err *err, const char *why) {
    return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "%s line %zu: %s", at->file, at->line, why);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Take the next word off the line; empty at its end. */
static struct ft_str next_word(struct ft_str *line) {
    size_t i = 0, n = 0;
    while (i < line->len && is_blank(line->ptr[i]))
        i++;
    while (i + n < line->len && !is_blank(line->ptr[i + n]))
        n++;
    struct ft_str word = {line->ptr + i, n};
    *line = (struct ft_str){line->ptr + i + n, line->len - i - n};
    return word;
}

static bool is_name(struct ft_str word) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (size_t i = 0; i < word.len; i++)
        if (memchr(allowed, word.ptr[i], sizeof allowed - 1) == NULL)
            return false;
    return word.len > 0 && word.len <= CO_TOKEN_NAME_MAX;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_hash(struct ft_str word, unsigned char out[32]) {
    size_t prefix = strlen(HASH_PREFIX);
    if (word.len != prefix + 64 || memcmp(word.ptr, HASH_PREFIX, prefix) != 0)
        return false;
    for (size_t i = 0; i < 32; i++) {
        int high = hex_digit(word.ptr[prefix + 2 * i]);
        int low = hex_digit(word.ptr[prefix + 2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* word is "key=NUMBER" with a number of min .. INT32_MAX. */
static bool read_limit(struct ft_str word, const char *key, int64_t min, int32_t *out) {
    char digits[16];
    size_t n = strlen(key);
    if (word.len <= n + 1 || word.len - n - 1 >= sizeof digits || memcmp(word.ptr, key, n) != 0 ||
        word.ptr[n] != '=')
        return false;
    memcpy(digits, word.ptr + n + 1, word.len - n - 1);
    digits[word.len - n - 1] = 0;
    char *end;
    if (digits[0] != '-' && (digits[0] < '0' || digits[0] > '9'))
        return false;
    long long value = strtoll(digits, &end, 10);
    *out = (int32_t)value;
    return *end == 0 && end != digits && value >= min && value <= INT32_MAX;
}

static enum ft_code read_rights(struct co_token *row, struct ft_str line, const struct place *at,
                                struct ft_err *err) {
    for (struct ft_str word = next_word(&line); word.len > 0; word = next_word(&line)) {
        if (ft_str_eq(word, ft_str_c("admin")))
            row->admin = true;
        else if (!read_limit(word, "max_requests", 1, &row->max_requests) &&
                 !read_limit(word, "requests_per_minute", 1, &row->requests_per_minute) &&
                 !read_limit(word, "min_priority", INT32_MIN, &row->min_priority))
            return refuse(at, err,
                          "after the token come admin, max_requests=N, requests_per_minute=N (1 "
                          "and up) and min_priority=N, and nothing else");
    }
    row->allowance = row->requests_per_minute;
    row->allowance_ns = ft_clock_now_ns();
    return FT_OK;
}

static enum ft_code read_row(struct co_tokens *tokens, struct ft_str line, const struct place *at,
                             struct ft_err *err) {
    struct ft_str name = next_word(&line);
    if (name.len == 0 || name.ptr[0] == '#')
        return FT_OK;
    if (tokens->n == CO_TOKENS_MAX)
        return refuse(at, err, "more tokens than a file may have, 4096");
    struct co_token *row = &tokens->rows[tokens->n];
    *row = (struct co_token){.min_priority = INT32_MIN};
    if (!is_name(name))
        return refuse(at, err,
                      "the name must be 1 to 64 letters, digits, '.', '_' and '-'; it comes first");
    memcpy(row->name, name.ptr, name.len);
    if (!read_hash(next_word(&line), row->hash))
        return refuse(at, err,
                      "after the name comes sha256: and 64 hexadecimal digits, the hash of the "
                      "token");
    for (size_t i = 0; i < tokens->n; i++) {
        if (strcmp(tokens->rows[i].name, row->name) == 0)
            return refuse(at, err, "the name stands in an earlier line too");
        if (memcmp(tokens->rows[i].hash, row->hash, sizeof row->hash) == 0)
            return refuse(at, err, "the token stands in an earlier line too");
    }
    enum ft_code code = read_rights(row, line, at, err);
    tokens->n += code == FT_OK;
    return code;
}

static size_t count_lines(struct ft_str text) {
    size_t n = 1;
    for (size_t i = 0; i < text.len; i++)
        n += text.ptr[i] == '\n';
    return n;
}

enum ft_code co_tokens_parse(struct co_tokens *out, struct ft_str text, const char *file,
                             struct ft_err *err) {
    size_t n_rows = count_lines(text);
    if (n_rows > CO_TOKENS_MAX)
        n_rows = CO_TOKENS_MAX;
    struct co_tokens made = {.rows = calloc(n_rows, sizeof *made.rows)};
    if (made.rows == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %s", file);
    struct place at = {.file = file, .line = 1};
    enum ft_code code = FT_OK;
    while (text.len > 0 && code == FT_OK) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end != NULL ? (size_t)(end - text.ptr) : text.len;
        size_t step = end != NULL ? len + 1 : len;
        code = read_row(&made, (struct ft_str){text.ptr, len}, &at, err);
        text = (struct ft_str){text.ptr + step, text.len - step};
        at.line++;
    }
    if (code == FT_OK && made.n == 0)
        code = ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "%s: no token in it, so nobody could call; leave token_file empty to ask "
                          "for none",
                          file);
    if (code != FT_OK) {
        co_tokens_fini(&made);
        return code;
    }
    *out = made;
    return FT_OK;
}

enum ft_code co_tokens_read(struct co_tokens *out, const char *path, struct ft_err *err) {
    struct ft_buf text;
    ft_buf_init(&text, 0);
    enum ft_code code = ft_file_read(path, CO_TOKENS_FILE_MAX, &text, err);
    if (code == FT_OK) {
        code = co_tokens_parse(out, ft_buf_str(&text), path, err);
    } else {
        err->code = code = FT_E_PROC_CONFIG;
        ft_err_prefix(err, "token_file");
    }
    ft_buf_fini(&text);
    return code;
}

void co_tokens_fini(struct co_tokens *tokens) {
    free(tokens->rows);
    *tokens = (struct co_tokens){0};
}

void co_tokens_inherit(struct co_tokens *tokens, const struct co_tokens *from) {
    for (size_t i = 0; i < tokens->n; i++) {
        struct co_token *row = &tokens->rows[i];
        for (size_t k = 0; k < from->n; k++) {
            const struct co_token *old = &from->rows[k];
            if (strcmp(row->name, old->name) != 0 || old->requests_per_minute == 0)
                continue;
            row->allowance_ns = old->allowance_ns;
            if (old->allowance < row->allowance)
                row->allowance = old->allowance;
        }
    }
}

struct co_token *co_tokens_find(const struct co_tokens *tokens, struct ft_str token) {
    unsigned char hash[32];
    struct co_token *found = NULL;
    if (token.len == 0 || token.len > CO_TOKEN_BYTES_MAX)
        return NULL;
    SHA256((const unsigned char *)token.ptr, token.len, hash);
    for (size_t i = 0; i < tokens->n; i++) /* all of them: the time says nothing of the place */
        if (CRYPTO_memcmp(tokens->rows[i].hash, hash, sizeof hash) == 0)
            found = &tokens->rows[i];
    OPENSSL_cleanse(hash, sizeof hash);
    return found;
}

bool co_token_take(struct co_token *token, int32_t n, int64_t now_ns, int64_t *wait_ms) {
    double rate = token->requests_per_minute;
    if (token->requests_per_minute == 0)
        return true;
    if (now_ns > token->allowance_ns)
        token->allowance += (double)(now_ns - token->allowance_ns) * rate / MINUTE_NS;
    token->allowance_ns = now_ns;
    if (token->allowance > rate)
        token->allowance = rate;
    if (token->allowance >= n) {
        token->allowance -= n;
        return true;
    }
    *wait_ms = n > rate ? -1 : (int64_t)((n - token->allowance) / rate * MINUTE_NS / 1e6) + 1;
    return false;
}
