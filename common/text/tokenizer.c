#include "common/text/tokenizer.h"

#include <limits.h>
#include <stdlib.h>

#include "common/base/file.h"
#include "common/text/load.h"
#include "common/text/post.h"
#include "common/text/pretok.h"
#include "common/text/tokjson.h"

#define MODULE "tokenizer"
/* Llama-3's file has 9 MB, the largest known about 35 MB. */
#define FILE_BYTES_MAX ((size_t)256 * 1024 * 1024)
/* Positions in a piece are 32 bits, with room for the heap of merges. */
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct ft_tokenizer {
    struct ft_vocab vocab;
    struct ft_bpe bpe;
    struct ft_normalizer normalizer;
    struct ft_added plain;      /* added tokens sought in the text as it came */
    struct ft_added normalized; /* and in normalised text */
    struct ft_pretok pretok;
    struct ft_post post;
    unsigned char fingerprint[FT_TOKENIZER_FINGERPRINT_BYTES];
    bool is_fork; /* all but bpe and pretok is another's */
    ft_tokenizer_stop_fn is_stopped;
    void *stop_user;
};

_Static_assert(FT_TOKENIZER_FINGERPRINT_BYTES == FT_VOCAB_FINGERPRINT_BYTES, "one fingerprint");

/* bos_token of tokenizer_config.json is a string or an object with content. */
static enum ft_code add_configured_bos(struct ft_tokenizer *tokenizer, const json_t *config,
                                       struct ft_err *err) {
    bool add_bos = false;
    enum ft_code code = ft_tokjson_bool(config, "add_bos_token", &add_bos, err);
    if (code != FT_OK || !add_bos)
        return code;
    const json_t *bos = json_object_get(config, "bos_token");
    if (json_is_object(bos))
        bos = json_object_get(bos, "content");
    int32_t id = ft_tokenizer_find(tokenizer, ft_tokjson_str(bos));
    if (id < 0)
        return ft_tokjson_fail(err, "add_bos_token is true but bos_token is not in the "
                                    "vocabulary");
    if (ft_ids_push(&tokenizer->post.before, &id, 1) != FT_OK)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for BOS");
    return FT_OK;
}

static enum ft_code read_config(struct ft_tokenizer *tokenizer, const char *model_dir,
                                struct ft_err *err) {
    char path[PATH_MAX];
    json_t *config = NULL;
    enum ft_code code = ft_file_join(path, sizeof path, model_dir, "tokenizer_config.json", err);
    if (code == FT_OK)
        code = ft_tokjson_load(path, FILE_BYTES_MAX, &config, err);
    if (code == FT_E_REQ_NOT_FOUND)
        return FT_OK; /* the file is optional */
    if (code == FT_OK) {
        code = add_configured_bos(tokenizer, config, err);
        if (code != FT_OK)
            ft_err_prefix(err, "%s", path);
    }
    json_decref(config);
    return code;
}

static enum ft_code build(struct ft_tokenizer *t, const json_t *root, struct ft_err *err) {
    if (!json_is_object(root))
        return ft_tokjson_fail(err, "not a JSON object");
    enum ft_code code =
        ft_normalizer_init(&t->normalizer, json_object_get(root, "normalizer"), err);
    if (code == FT_OK)
        code = ft_pretok_init(&t->pretok, json_object_get(root, "pre_tokenizer"), err);
    if (code == FT_OK)
        code = ft_load_decoder(json_object_get(root, "decoder"), err);
    if (code == FT_OK)
        code = ft_load_model(json_object_get(root, "model"), &t->vocab, &t->bpe, err);
    if (code == FT_OK)
        code = ft_load_added(json_object_get(root, "added_tokens"), &t->normalizer, &t->vocab,
                             &t->plain, &t->normalized, err);
    if (code == FT_OK)
        code = ft_post_init(&t->post, json_object_get(root, "post_processor"), &t->vocab, err);
    if (code == FT_OK)
        code = ft_vocab_fingerprint(&t->vocab, t->fingerprint, err);
    return code;
}

static enum ft_code read_all(struct ft_tokenizer *tokenizer, const char *model_dir,
                             struct ft_err *err) {
    char path[PATH_MAX];
    json_t *root = NULL;
    enum ft_code code = ft_file_join(path, sizeof path, model_dir, "tokenizer.json", err);
    if (code == FT_OK)
        code = ft_vocab_init(&tokenizer->vocab, err);
    if (code == FT_OK)
        code = ft_tokjson_load(path, FILE_BYTES_MAX, &root, err);
    if (code == FT_E_REQ_NOT_FOUND)
        return err->code = FT_E_PROC_MODEL; /* no model without its tokenizer */
    if (code != FT_OK)
        return code;
    code = build(tokenizer, root, err);
    json_decref(root);
    if (code != FT_OK)
        return ft_err_prefix(err, "%s", path);
    return tokenizer->post.given ? FT_OK : read_config(tokenizer, model_dir, err);
}

enum ft_code ft_tokenizer_open(struct ft_tokenizer **out, const char *model_dir,
                               struct ft_err *err) {
    struct ft_err own = {0};
    struct ft_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    enum ft_code code = tokenizer == NULL ? ft_err_set(&own, FT_E_PROC_MEMORY, MODULE, "no memory")
                                          : read_all(tokenizer, model_dir, &own);
    if (code != FT_OK) {
        ft_tokenizer_close(&tokenizer);
        if (err != NULL)
            *err = own;
        return code;
    }
    *out = tokenizer;
    return FT_OK;
}

void ft_tokenizer_close(struct ft_tokenizer **tokenizer) {
    if (tokenizer == NULL || *tokenizer == NULL)
        return;
    struct ft_tokenizer *t = *tokenizer;
    ft_pretok_fini(&t->pretok);
    ft_bpe_fini(&t->bpe);
    if (!t->is_fork) {
        ft_post_fini(&t->post);
        ft_added_fini(&t->plain);
        ft_added_fini(&t->normalized);
        ft_vocab_fini(&t->vocab);
    }
    free(t);
    *tokenizer = NULL;
}

enum ft_code ft_tokenizer_fork(struct ft_tokenizer **out, const struct ft_tokenizer *original,
                               struct ft_err *err) {
    struct ft_tokenizer *fork = calloc(1, sizeof *fork);
    if (fork == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    *fork = *original;
    fork->is_fork = true;
    fork->is_stopped = NULL;
    enum ft_code code = ft_pretok_fork(&fork->pretok, &original->pretok, err);
    if (code != FT_OK) {
        free(fork);
        return code;
    }
    ft_bpe_fork(&fork->bpe, &original->bpe);
    *out = fork;
    return FT_OK;
}

void ft_tokenizer_set_stop(struct ft_tokenizer *tokenizer, ft_tokenizer_stop_fn fn, void *user) {
    tokenizer->is_stopped = fn;
    tokenizer->stop_user = user;
}

/* One call of encode. */
struct encoder {
    struct ft_tokenizer *tokenizer;
    const struct ft_encode_opts *opts;
    struct ft_ids *out;
    size_t first; /* out->len at the start */
};

static enum ft_code push(struct encoder *e, const int32_t *ids, size_t n, struct ft_err *err) {
    if (ft_ids_push(e->out, ids, n) != FT_OK)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for token ids");
    return FT_OK;
}

static enum ft_code check_length(const struct encoder *e, struct ft_err *err) {
    if (e->opts->tokens_max == 0 || e->out->len - e->first <= e->opts->tokens_max)
        return FT_OK;
    return ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                      "the text has more than the limit of %zu tokens", e->opts->tokens_max);
}

static enum ft_code encode_piece(void *ctx, struct ft_str piece, struct ft_err *err) {
    struct encoder *e = ctx;
    if (e->tokenizer->is_stopped != NULL && e->tokenizer->is_stopped(e->tokenizer->stop_user))
        return ft_err_set(err, FT_E_REQ_CANCELLED, MODULE, "told to stop");
    if (ft_bpe_encode(&e->tokenizer->bpe, piece, e->out) != FT_OK)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory to tokenize");
    return check_length(e, err);
}

static enum ft_code encode_plain(struct encoder *e, struct ft_str text, struct ft_err *err) {
    struct ft_split_sink sink = {encode_piece, e};
    return ft_pretok_run(&e->tokenizer->pretok, text, &sink, err);
}

/* Hand what lies between added tokens to `rest`, and push their ids. */
static enum ft_code
encode_between(struct encoder *e, const struct ft_added *added, struct ft_str text,
               enum ft_code (*rest)(struct encoder *, struct ft_str, struct ft_err *),
               struct ft_err *err) {
    enum ft_code code = FT_OK;
    size_t at = 0;
    struct ft_added_match match;
    while (code == FT_OK && ft_added_find(added, text, at, e->opts->parse_special, &match)) {
        code = rest(e, (struct ft_str){text.ptr + at, match.start - at}, err);
        if (code == FT_OK)
            code = push(e, &match.token->id, 1, err);
        if (code == FT_OK)
            code = check_length(e, err);
        at = match.end;
    }
    return code == FT_OK ? rest(e, (struct ft_str){text.ptr + at, text.len - at}, err) : code;
}

static enum ft_code encode_normalized(struct encoder *e, struct ft_str text, struct ft_err *err) {
    const struct ft_tokenizer *t = e->tokenizer;
    if (text.len == 0)
        return FT_OK;
    if (t->normalizer.n_forms == 0)
        return encode_between(e, &t->normalized, text, encode_plain, err);
    struct ft_buf normal;
    ft_buf_init(&normal, 0);
    enum ft_code code = ft_normalizer_run(&t->normalizer, text, &normal);
    if (code != FT_OK)
        ft_err_set(err, code, MODULE, "no memory to normalise the text");
    else
        code = encode_between(e, &t->normalized, ft_buf_str(&normal), encode_plain, err);
    ft_buf_fini(&normal);
    return code;
}

/* Put the ids of before where the text's ids begin, unless they are there already. */
static enum ft_code put_before(struct encoder *e, struct ft_err *err) {
    const struct ft_ids *before = &e->tokenizer->post.before;
    size_t n = before->len, n_text = e->out->len - e->first;
    if (n == 0)
        return FT_OK;
    if (n_text >= n && memcmp(e->out->ptr + e->first, before->ptr, n * sizeof *before->ptr) == 0)
        return FT_OK;
    enum ft_code code = push(e, before->ptr, n, err); /* room for n more */
    if (code != FT_OK)
        return code;
    int32_t *at = e->out->ptr + e->first;
    memmove(at + n, at, n_text * sizeof *at);
    memcpy(at, before->ptr, n * sizeof *at);
    return FT_OK;
}

enum ft_code ft_tokenizer_encode(struct ft_tokenizer *tokenizer, struct ft_str text,
                                 const struct ft_encode_opts *opts, struct ft_ids *out,
                                 struct ft_err *err) {
    if (text.len > TEXT_BYTES_MAX)
        return ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                          "the text has %zu bytes, more than the limit of %zu", text.len,
                          TEXT_BYTES_MAX);
    size_t n_valid = ft_utf8_valid_prefix(text);
    if (n_valid != text.len)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "the text is not UTF-8 at byte %zu",
                          n_valid);
    struct encoder e = {tokenizer, opts, out, out->len};
    enum ft_code code = encode_between(&e, &tokenizer->plain, text, encode_normalized, err);
    if (code == FT_OK && opts->add_special)
        code = put_before(&e, err);
    if (code == FT_OK && opts->add_special)
        code = push(&e, tokenizer->post.after.ptr, tokenizer->post.after.len, err);
    if (code == FT_OK)
        code = check_length(&e, err);
    if (code != FT_OK)
        out->len = e.first;
    return code;
}

struct ft_str ft_tokenizer_bytes(const struct ft_tokenizer *tokenizer, int32_t id) {
    const struct ft_token *token = ft_vocab_token(&tokenizer->vocab, id);
    return token == NULL ? (struct ft_str){NULL, 0} : token->bytes;
}

bool ft_tokenizer_is_special(const struct ft_tokenizer *tokenizer, int32_t id) {
    const struct ft_token *token = ft_vocab_token(&tokenizer->vocab, id);
    return token != NULL && token->special;
}

int32_t ft_tokenizer_find(const struct ft_tokenizer *tokenizer, struct ft_str content) {
    return ft_strmap_get(&tokenizer->vocab.contents, content);
}

int32_t ft_tokenizer_vocab_size(const struct ft_tokenizer *tokenizer) {
    return tokenizer->vocab.n_ids;
}

const unsigned char *ft_tokenizer_fingerprint(const struct ft_tokenizer *tokenizer) {
    return tokenizer->fingerprint;
}

bool ft_tokenizer_first_difference(const struct ft_tokenizer *a, const struct ft_tokenizer *b,
                                   char *out, size_t cap) {
    return ft_vocab_first_difference(&a->vocab, &b->vocab, out, cap);
}

void ft_tokenizer_decode(const struct ft_tokenizer *tokenizer, const int32_t *ids, size_t n,
                         bool skip_special, struct ft_buf *out) {
    for (size_t i = 0; i < n; i++)
        if (!skip_special || !ft_tokenizer_is_special(tokenizer, ids[i]))
            ft_buf_add_str(out, ft_tokenizer_bytes(tokenizer, ids[i]));
}
