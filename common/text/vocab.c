#include "common/text/vocab.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/text/bytemap.h"

#define MODULE "tokenizer"
#define ARENA_CHUNK_BYTES (256 * 1024)

static enum ft_code no_memory(struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the vocabulary");
}

enum ft_code ft_vocab_init(struct ft_vocab *vocab, struct ft_err *err) {
    *vocab = (struct ft_vocab){.arena = ft_arena_create(ARENA_CHUNK_BYTES, 0)};
    return vocab->arena == NULL ? no_memory(err) : FT_OK;
}

void ft_vocab_fini(struct ft_vocab *vocab) {
    ft_strmap_fini(&vocab->contents);
    ft_strmap_fini(&vocab->pieces);
    free(vocab->tokens);
    ft_arena_destroy(&vocab->arena);
    *vocab = (struct ft_vocab){0};
}

const struct ft_token *ft_vocab_token(const struct ft_vocab *vocab, int32_t id) {
    if (id < 0 || id >= vocab->n_ids || vocab->tokens[id].content.ptr == NULL)
        return NULL;
    return &vocab->tokens[id];
}

static enum ft_code reserve(struct ft_vocab *vocab, int32_t id, struct ft_err *err) {
    if (id < vocab->cap)
        return FT_OK;
    int32_t cap = vocab->cap < 1024 ? 1024 : vocab->cap;
    while (cap <= id)
        cap *= 2;
    struct ft_token *grown = realloc(vocab->tokens, (size_t)cap * sizeof *grown);
    if (grown == NULL)
        return no_memory(err);
    memset(grown + vocab->cap, 0, (size_t)(cap - vocab->cap) * sizeof *grown);
    vocab->tokens = grown;
    vocab->cap = cap;
    return FT_OK;
}

/* Content for a message: printable and not too long. */
static const char *shown(struct ft_str s, char *out, size_t cap) {
    struct ft_buf buf;
    ft_buf_init(&buf, 0);
    size_t n = s.len < cap / 8 ? s.len : cap / 8;
    while (n > 0 && n < s.len && ((unsigned char)s.ptr[n] & 0xC0) == 0x80)
        n--; /* not in the middle of a character */
    ft_buf_add_json(&buf, (struct ft_str){s.ptr, n});
    if (n < s.len)
        ft_buf_add_c(&buf, "...");
    snprintf(out, cap, "%s", buf.failed ? "?" : buf.ptr);
    ft_buf_fini(&buf);
    return out;
}

static enum ft_code check_new(const struct ft_vocab *vocab, struct ft_str content, int64_t id,
                              struct ft_err *err) {
    char a[160], b[160];
    if (id < 0 || id > FT_VOCAB_ID_MAX)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "id of token %s is %lld, not 0 to %d",
                          shown(content, a, sizeof a), (long long)id, FT_VOCAB_ID_MAX);
    if (content.len == 0 || content.len > FT_VOCAB_TOKEN_BYTES_MAX)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE,
                          "token %lld has %zu bytes, 1 to %d are possible", (long long)id,
                          content.len, FT_VOCAB_TOKEN_BYTES_MAX);
    const struct ft_token *token = ft_vocab_token(vocab, (int32_t)id);
    if (token != NULL && !ft_str_eq(token->content, content))
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "id %lld is both %s and %s", (long long)id,
                          shown(token->content, a, sizeof a), shown(content, b, sizeof b));
    int32_t other = ft_strmap_get(&vocab->contents, content);
    if (other >= 0 && other != id)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "token %s has both id %d and id %lld",
                          shown(content, a, sizeof a), other, (long long)id);
    return FT_OK;
}

/* Store a checked token with content as its bytes. */
static enum ft_code store(struct ft_vocab *vocab, struct ft_str content, int32_t id,
                          struct ft_err *err) {
    enum ft_code code = reserve(vocab, id, err);
    if (code != FT_OK)
        return code;
    struct ft_str own = ft_arena_str(vocab->arena, content);
    if (own.ptr == NULL || ft_strmap_put(&vocab->contents, own, id) != FT_OK)
        return no_memory(err);
    vocab->tokens[id] = (struct ft_token){.content = own, .bytes = own};
    if (id >= vocab->n_ids)
        vocab->n_ids = id + 1;
    return FT_OK;
}

enum ft_code ft_vocab_add(struct ft_vocab *vocab, struct ft_str content, int64_t id,
                          struct ft_err *err) {
    enum ft_code code = check_new(vocab, content, id, err);
    if (code == FT_OK)
        code = store(vocab, content, (int32_t)id, err);
    if (code != FT_OK)
        return code;
    char *bytes = ft_arena_alloc(vocab->arena, content.len);
    if (bytes == NULL)
        return no_memory(err);
    size_t n_bytes;
    /* A token with other characters stays plain text, as the tokenizers library decodes it. */
    if (!ft_bytemap_decode(content, bytes, &n_bytes))
        return FT_OK;
    struct ft_str piece = {bytes, n_bytes};
    vocab->tokens[id].bytes = piece;
    return ft_strmap_put(&vocab->pieces, piece, (int32_t)id) == FT_OK ? FT_OK : no_memory(err);
}

enum ft_code ft_vocab_add_text(struct ft_vocab *vocab, struct ft_str content, int64_t id,
                               bool special, struct ft_err *err) {
    enum ft_code code = check_new(vocab, content, id, err);
    if (code != FT_OK)
        return code;
    if (ft_vocab_token(vocab, (int32_t)id) == NULL)
        code = store(vocab, content, (int32_t)id, err);
    if (code != FT_OK)
        return code;
    vocab->tokens[id].special = special;
    return FT_OK;
}

static void put_le32(unsigned char *out, uint32_t value) {
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

enum ft_code ft_vocab_fingerprint(const struct ft_vocab *vocab, unsigned char *out,
                                  struct ft_err *err) {
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    bool ok = sha != NULL && EVP_DigestInit_ex(sha, EVP_sha256(), NULL) == 1;
    for (int32_t id = 0; ok && id < vocab->n_ids; id++) {
        const struct ft_token *token = ft_vocab_token(vocab, id);
        if (token == NULL)
            continue;
        unsigned char head[8], special = token->special;
        put_le32(head, (uint32_t)id);
        put_le32(head + 4, (uint32_t)token->bytes.len);
        ok = EVP_DigestUpdate(sha, head, sizeof head) == 1 &&
             EVP_DigestUpdate(sha, token->bytes.ptr, token->bytes.len) == 1 &&
             EVP_DigestUpdate(sha, &special, 1) == 1;
    }
    ok = ok && EVP_DigestFinal_ex(sha, out, NULL) == 1;
    EVP_MD_CTX_free(sha);
    return ok ? FT_OK : ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "libcrypto has no SHA-256");
}

static void describe(const struct ft_token *token, char *out, size_t cap) {
    char text[160];
    if (token == NULL)
        snprintf(out, cap, "absent");
    else
        snprintf(out, cap, "%s%s", shown(token->bytes, text, sizeof text),
                 token->special ? " (special)" : "");
}

bool ft_vocab_first_difference(const struct ft_vocab *a, const struct ft_vocab *b, char *out,
                               size_t cap) {
    int32_t n_ids = a->n_ids > b->n_ids ? a->n_ids : b->n_ids;
    for (int32_t id = 0; id < n_ids; id++) {
        const struct ft_token *ta = ft_vocab_token(a, id), *tb = ft_vocab_token(b, id);
        if (ta == NULL && tb == NULL)
            continue;
        if (ta != NULL && tb != NULL && ta->special == tb->special &&
            ft_str_eq(ta->bytes, tb->bytes))
            continue;
        char text_a[192], text_b[192];
        describe(ta, text_a, sizeof text_a);
        describe(tb, text_b, sizeof text_b);
        snprintf(out, cap, "id %d is %s here and %s there", id, text_a, text_b);
        return true;
    }
    if (cap > 0)
        out[0] = 0;
    return false;
}
