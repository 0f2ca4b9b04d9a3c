#include "common/text/added.h"

#include <stdlib.h>

#include "common/text/utf8.h"

void ft_added_fini(struct ft_added *added) {
    free(added->tokens);
    *added = (struct ft_added){0};
}

enum ft_code ft_added_add(struct ft_added *added, struct ft_added_token token) {
    if (added->n_tokens == added->cap) {
        size_t cap = added->cap == 0 ? 64 : added->cap * 2;
        struct ft_added_token *grown = realloc(added->tokens, cap * sizeof *grown);
        if (grown == NULL)
            return FT_E_PROC_MEMORY;
        added->tokens = grown;
        added->cap = cap;
    }
    added->tokens[added->n_tokens++] = token;
    return FT_OK;
}

static int compare(const void *a, const void *b) {
    struct ft_str x = ((const struct ft_added_token *)a)->content;
    struct ft_str y = ((const struct ft_added_token *)b)->content;
    int order = memcmp(x.ptr, y.ptr, x.len < y.len ? x.len : y.len);
    return order != 0 ? order : (x.len > y.len) - (x.len < y.len);
}

enum ft_code ft_added_seal(struct ft_added *added, struct ft_err *err) {
    struct ft_added_token *tokens = added->tokens;
    if (added->n_tokens > 1)
        qsort(tokens, added->n_tokens, sizeof *tokens, compare);
    for (size_t i = 1; i < added->n_tokens; i++)
        if (ft_str_eq(tokens[i - 1].content, tokens[i].content))
            return ft_err_set(err, FT_E_PROC_MODEL, "tokenizer",
                              "added tokens %d and %d have the same content", tokens[i - 1].id,
                              tokens[i].id);
    size_t next = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        added->first[byte] = next;
        while (next < added->n_tokens && (unsigned char)tokens[next].content.ptr[0] == byte)
            next++;
    }
    added->first[256] = next;
    return FT_OK;
}

/* Narrow tokens [*low, *high), alike in depth bytes, to those that go on with byte. */
static void narrow(const struct ft_added_token *tokens, size_t depth, unsigned char byte,
                   size_t *low, size_t *high) {
    size_t bound[2];
    for (unsigned upper = 0; upper < 2; upper++) {
        size_t a = *low, b = *high;
        while (a < b) {
            size_t mid = a + (b - a) / 2;
            struct ft_str c = tokens[mid].content;
            if (c.len <= depth || (unsigned char)c.ptr[depth] < byte + upper)
                a = mid + 1;
            else
                b = mid;
        }
        bound[upper] = a;
    }
    *low = bound[0];
    *high = bound[1];
}

/* The longest token that text has at `at`. */
static const struct ft_added_token *longest(const struct ft_added *added, struct ft_str text,
                                            size_t at) {
    const struct ft_added_token *best = NULL;
    unsigned char byte = (unsigned char)text.ptr[at];
    size_t low = added->first[byte], high = added->first[byte + 1];
    for (size_t depth = 1; low < high; depth++) {
        /* Sorted: a token that ends here stands first of those that go on. */
        if (added->tokens[low].content.len == depth)
            best = &added->tokens[low];
        if (at + depth == text.len)
            break;
        narrow(added->tokens, depth, (unsigned char)text.ptr[at + depth], &low, &high);
    }
    return best;
}

static size_t strip_left(struct ft_str text, size_t start, size_t from) {
    while (start > from) {
        size_t n;
        uint32_t c = ft_utf8_get_last((struct ft_str){text.ptr, start}, &n);
        if (!ft_utf8_is_space(c) || n > start - from)
            break;
        start -= n;
    }
    return start;
}

static size_t strip_right(struct ft_str text, size_t end) {
    while (end < text.len) {
        size_t n;
        if (!ft_utf8_is_space(ft_utf8_get((struct ft_str){text.ptr + end, text.len - end}, &n)))
            break;
        end += n;
    }
    return end;
}

bool ft_added_find(const struct ft_added *added, struct ft_str text, size_t from,
                   bool parse_special, struct ft_added_match *out) {
    if (added->n_tokens == 0)
        return false;
    for (size_t at = from; at < text.len; at++) {
        const struct ft_added_token *token = longest(added, text, at);
        if (token == NULL)
            continue;
        if (token->special && !parse_special) {
            at += token->content.len - 1;
            continue;
        }
        out->token = token;
        out->start = token->lstrip ? strip_left(text, at, from) : at;
        out->end = at + token->content.len;
        if (token->rstrip)
            out->end = strip_right(text, out->end);
        return true;
    }
    return false;
}
