#include "common/text/regex.h"

#include <ctype.h>
#include <stdlib.h>

#define MODULE "tokenizer"
#define DEPTH_MAX 32

/* White_Space and Word of Unicode as Oniguruma has them, as the inside of a class. PCRE2's \s has
 * U+180E besides, and its \w lacks marks and connector punctuation. */
#define SPACE                                                                                      \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"                \
    "\\x{205f}\\x{3000}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside a class, Oniguruma's \w also takes the superscripts and fractions of Latin-1. */
#define WORD_ALONE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

struct translator {
    struct ft_str in;
    size_t at;
    struct ft_buf *out;
    struct ft_err *err;
    int depth;
    bool icase[DEPTH_MAX + 1]; /* by group depth */
    char last;                 /* the literal just copied, 0 after anything else */
    bool fresh;                /* nothing but options stands in this group yet */
};

static enum ft_code refuse(struct translator *t, size_t at, size_t len, const char *why) {
    if (len > t->in.len - at)
        len = t->in.len - at;
    return ft_err_set(t->err, FT_E_PROC_MODEL, MODULE, "regex: '%.*s' at offset %zu %s", (int)len,
                      t->in.ptr + at, at, why);
}

static int peek(const struct translator *t, size_t ahead) {
    return t->at + ahead < t->in.len ? (unsigned char)t->in.ptr[t->at + ahead] : -1;
}

static bool starts(const struct translator *t, const char *text) {
    size_t n = strlen(text);
    return t->in.len - t->at >= n && memcmp(t->in.ptr + t->at, text, n) == 0;
}

static enum ft_code copy(struct translator *t, size_t n) {
    ft_buf_add(t->out, t->in.ptr + t->at, n);
    t->at += n;
    return FT_OK;
}

static enum ft_code replace(struct translator *t, size_t n, const char *text) {
    ft_buf_add_c(t->out, text);
    t->at += n;
    return FT_OK;
}

/* \p{Name}, \P{Name}, \p{^Name}: a general category or a script. */
static enum ft_code property(struct translator *t) {
    size_t from = t->at + 2, end = from;
    while (end < t->in.len && t->in.ptr[end] != '}')
        end++;
    size_t len = end + 1 - t->at;
    if (peek(t, 2) != '{' || end == t->in.len)
        return refuse(t, t->at, 2, "has no {name}");
    bool negated = (t->in.ptr[t->at + 1] == 'P') != (peek(t, 3) == '^');
    from += peek(t, 3) == '^' ? 2 : 1;
    struct ft_str name = {t->in.ptr + from, end - from};
    for (size_t i = 0; i < name.len; i++)
        if (!isalpha((unsigned char)name.ptr[i]) && name.ptr[i] != '_')
            return refuse(t, t->at, len, "is not a known property");
    bool category = (name.len == 1 || name.len == 2) && strchr("LMNPSZC", name.ptr[0]) != NULL;
    if (!category && name.len < 3)
        return refuse(t, t->at, len, "is not a known property");
    if (category && name.len == 2 && t->icase[t->depth] && name.ptr[0] == 'L')
        return refuse(t, t->at, len, "under (?i) is not supported");
    ft_buf_addf(t->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', category ? "" : "sc:", (int)name.len,
                name.ptr);
    t->at += len;
    return FT_OK;
}

/* \xHH, \x{H...} and \uHHHH. */
static enum ft_code code_point(struct translator *t) {
    size_t n_digits = t->in.ptr[t->at + 1] == 'u' ? 4 : 2, from = 2;
    if (n_digits == 2 && peek(t, 2) == '{') {
        from = 3;
        for (n_digits = 0; n_digits < 8 && isxdigit(peek(t, 3 + n_digits)); n_digits++)
            ;
        if (n_digits == 0 || peek(t, 3 + n_digits) != '}')
            return refuse(t, t->at, 3 + n_digits, "is not a code point");
    }
    unsigned long value = 0;
    for (size_t i = 0; i < n_digits; i++) {
        int c = peek(t, from + i);
        if (!isxdigit(c))
            return refuse(t, t->at, from + n_digits, "is not a code point");
        value = value * 16 + (unsigned)(isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (from == 2 && n_digits == 2 && value >= 0x80)
        return refuse(t, t->at, 4, "is a byte, not a character");
    if (t->icase[t->depth])
        return refuse(t, t->at, from + n_digits, "under (?i) is not supported");
    ft_buf_addf(t->out, "\\x{%lx}", value);
    t->at += from + n_digits + (from == 3 ? 1 : 0);
    return FT_OK;
}

static enum ft_code escape(struct translator *t, bool in_class) {
    int c = peek(t, 1);
    switch (c) {
    case 's':
        return replace(t, 2, in_class ? SPACE : "[" SPACE "]");
    case 'S':
        return replace(t, 2, in_class ? "\\P{White_Space}" : "[^" SPACE "]");
    case 'd':
        return replace(t, 2, "\\p{Nd}");
    case 'D':
        return replace(t, 2, "\\P{Nd}");
    case 'w':
        return replace(t, 2, in_class ? WORD : "[" WORD_ALONE "]");
    case 'W':
        return in_class ? refuse(t, t->at, 2, "in a class is not supported")
                        : replace(t, 2, "[^" WORD_ALONE "]");
    case 'v':
        return replace(t, 2, "\\x0b");
    case 'p':
    case 'P':
        return property(t);
    case 'x':
    case 'u':
        return code_point(t);
    case 'A':
    case 'z':
        return in_class ? refuse(t, t->at, 2, "in a class is not supported") : copy(t, 2);
    case 't':
    case 'n':
    case 'r':
    case 'f':
    case 'a':
    case 'e':
        return copy(t, 2);
    default:
        if (c > 0 && c < 0x80 && ispunct(c))
            return copy(t, 2);
        return refuse(t, t->at, 2, "is not supported");
    }
}

static bool is_set_escape(const struct translator *t) {
    return peek(t, 0) == '\\' && peek(t, 1) > 0 && strchr("sSdDwWpP", peek(t, 1)) != NULL;
}

/* One item of a class; what a range between a set and a character means differs, so it is out. */
static enum ft_code class_item(struct translator *t, bool *was_set, bool *was_dash) {
    int c = peek(t, 0);
    bool set = is_set_escape(t);
    if ((set && *was_dash) || (c == '-' && *was_set && peek(t, 1) != ']'))
        return refuse(t, t->at, 2, "makes a range with a set of characters");
    *was_set = set;
    *was_dash = c == '-';
    if (c == '[' || starts(t, "&&"))
        return refuse(t, t->at, 2, "inside a class is not supported");
    if (c >= 0x80 && t->icase[t->depth])
        return refuse(t, t->at, 4, "under (?i) is not supported");
    return c == '\\' ? escape(t, true) : copy(t, 1);
}

static enum ft_code class(struct translator *t) {
    size_t open = t->at; bool was_set = false, was_dash = false; copy(t, peek(t, 1) == '^' ? 2 : 1);
    if (peek(t, 0) == ']') return refuse(t, open, t->at + 1 - open, "starts with ']'");
    while (t->at < t->in.len){if (peek(t, 0) == ']') return copy(t, 1);
                              enum ft_code code = class_item(t, &was_set, &was_dash);
                              if (code != FT_OK) return code;}
return refuse(t, open, 16, "is a class without an end");
}

/* The letters after "(?" up to ':' or ')'. Ruby's m is PCRE2's s; i is tracked. */
static enum ft_code options(struct translator *t, bool fresh) {
    size_t open = t->at;
    bool on = true, icase = t->icase[t->depth];
    copy(t, 2);
    for (;; t->at++) {
        int c = peek(t, 0);
        if (c == ':' || c == ')')
            break;
        if (c == '-')
            on = false;
        else if (c == 'i')
            icase = on;
        else if (c != 'm')
            return refuse(t, open, t->at + 1 - open, "is not supported");
        ft_buf_addf(t->out, "%c", c == 'm' ? 's' : c);
    }
    /* Behind something, "(?i)" reaches over '|' in one engine and not in the other. */
    if (peek(t, 0) == ')' && !fresh)
        return refuse(t, open, t->at + 1 - open, "in the middle of a group is not supported");
    if (peek(t, 0) == ')')
        t->icase[t->depth] = icase;
    else
        t->icase[++t->depth] = icase;
    t->fresh = true;
    return copy(t, 1);
}

static enum ft_code group(struct translator *t, bool fresh) {
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    if (t->depth == DEPTH_MAX)
        return refuse(t, t->at, 1, "is nested too deeply (32 groups)");
    size_t n = peek(t, 1) == '?' ? 0 : 1;
    for (size_t i = 0; n == 0 && i < sizeof kinds / sizeof kinds[0]; i++)
        if (starts(t, kinds[i]))
            n = strlen(kinds[i]);
    if (n == 0)
        return options(t, fresh);
    t->icase[t->depth + 1] = t->icase[t->depth];
    t->depth++;
    t->fresh = true;
    return copy(t, n);
}

/* {n}, {n,}, {,m}, {n,m}; anything else is a literal brace in both engines. */
static enum ft_code interval(struct translator *t) {
    size_t low = 1, high;
    while (isdigit(peek(t, low)))
        low++;
    bool comma = peek(t, low) == ',';
    for (high = low + comma; isdigit(peek(t, high));)
        high++;
    bool valid = peek(t, high) == '}' && (comma ? high > 2 : high > 1);
    if (!valid)
        return replace(t, 1, "\\{");
    if (peek(t, high + 1) == '+' || (!comma && peek(t, high + 1) == '?'))
        return refuse(t, t->at, high + 2, "is not supported");
    if (low == 1)
        return replace(t, 1, "{0");
    return copy(t, high + 1);
}

/* Pairs of letters that (?i) also matches as one character: U+00DF, U+FB00 and on. */
static bool folds_together(char a, char b) {
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if ((a | 32) == pairs[i][0] && (b | 32) == pairs[i][1])
            return true;
    return false;
}

static enum ft_code literal(struct translator *t) {
    char c = t->in.ptr[t->at];
    if (t->icase[t->depth]) {
        if ((unsigned char)c >= 0x80)
            return refuse(t, t->at, 4, "under (?i) is not supported");
        if (folds_together(t->last, c))
            return refuse(t, t->at - 1, 2, "under (?i) is not supported");
    }
    t->last = c;
    return copy(t, 1);
}

static enum ft_code item(struct translator *t) {
    int c = peek(t, 0);
    bool fresh = t->fresh;
    t->fresh = false;
    if (c != 0 && strchr("\\[({)|^$.?*+", c) == NULL)
        return literal(t);
    t->last = 0;
    switch (c) {
    case 0:
        return replace(t, 1, "\\x00");
    case '\\':
        return escape(t, false);
    case '[':
        return class(t);
    case '(':
        return group(t, fresh);
    case '{':
        return interval(t);
    case ')':
        if (t->depth == 0)
            return refuse(t, t->at, 1, "closes no group");
        t->depth--;
        return copy(t, 1);
    case '^':
    case '$':
        return refuse(t, t->at, 1, "is not supported");
    default: /* | . ? * + */
        return copy(t, 1);
    }
}

enum ft_code ft_regex_translate(struct ft_str pattern, struct ft_buf *out, struct ft_err *err) {
    struct translator t = {.in = pattern, .out = out, .err = err, .fresh = true};
    while (t.at < pattern.len) {
        enum ft_code code = item(&t);
        if (code != FT_OK)
            return code;
    }
    if (t.depth != 0)
        return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "regex: a group is not closed");
    return FT_OK;
}

void ft_regex_quote(struct ft_str text, struct ft_buf *out) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20)
            ft_buf_addf(out, "\\x%02x", c);
        else
            ft_buf_addf(out, c < 0x80 && ispunct(c) ? "\\%c" : "%c", c);
    }
}
