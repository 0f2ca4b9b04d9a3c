#include "common/base/logfields.h"

/* The next word of *rest, which moves past it and the blank behind it. */
static struct ft_str take_word(struct ft_str *rest) {
    const char *end = memchr(rest->ptr, ' ', rest->len);
    struct ft_str word = {rest->ptr, end == NULL ? rest->len : (size_t)(end - rest->ptr)};
    size_t taken = word.len + (end != NULL);
    *rest = (struct ft_str){rest->ptr + taken, rest->len - taken};
    return word;
}

static struct ft_str take_value(struct ft_str *rest) {
    if (rest->len < 2 || rest->ptr[0] != '"')
        return take_word(rest);
    const char *end = memchr(rest->ptr + 1, '"', rest->len - 1);
    if (end == NULL)
        return take_word(rest);
    struct ft_str value = {rest->ptr + 1, (size_t)(end - rest->ptr - 1)};
    size_t taken = value.len + 2;
    taken += taken < rest->len && rest->ptr[taken] == ' ';
    *rest = (struct ft_str){rest->ptr + taken, rest->len - taken};
    return value;
}

static bool is_key(struct ft_str word) {
    for (size_t i = 0; i < word.len; i++) {
        char c = word.ptr[i];
        bool letter = c >= 'a' && c <= 'z';
        if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '_' || c == '-')))
            return false;
    }
    return word.len > 0;
}

size_t ft_log_fields(struct ft_str line, struct ft_log_field *fields, size_t n_max) {
    size_t n = 0;
    if (line.len == 0 || n_max == 0)
        return 0;
    fields[n++] = (struct ft_log_field){ft_str_c("event"), take_word(&line)};
    while (n < n_max && line.len > 0) {
        struct ft_str key = take_word(&line);
        if (!is_key(key) || line.len == 0)
            break;
        bool takes_rest =
            (ft_str_eq(key, ft_str_c("reason")) || ft_str_eq(key, ft_str_c("text"))) &&
            line.ptr[0] != '"';
        struct ft_str value = takes_rest ? line : take_value(&line);
        fields[n++] = (struct ft_log_field){key, value};
        if (takes_rest)
            break;
    }
    return n;
}
