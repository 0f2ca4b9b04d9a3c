#include "common/text/split.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define MODULE "tokenizer"
/* Address space that the JIT's stack may grow into; pages are touched as they are needed. A group
 * that repeats over a megabyte (none of the known patterns has one) wants some tens of MB. */
#define JIT_STACK_MIN ((size_t)32 * 1024)
#define JIT_STACK_MAX ((size_t)128 * 1024 * 1024)
/* PCRE2 allows 10 million steps of matching by default, few for a piece of a megabyte. */
#define MATCH_LIMIT 1000000000u

struct ft_split_regex {
    pcre2_code *code; /* never written once it is compiled */
    bool is_fork;     /* code is another's */
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL where the JIT is not allowed (W^X): the interpreter runs */
    pcre2_match_data *match;
};

bool ft_split_parse(const char *name, enum ft_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum ft_split_behavior)i;
            return true;
        }
    }
    return false;
}

static enum ft_code compile(struct ft_split_regex *regex, struct ft_str pattern,
                            struct ft_err *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a regex");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error;
    PCRE2_SIZE offset;
    regex->code =
        pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
    pcre2_compile_context_free(context);
    if (regex->code != NULL)
        return FT_OK;
    char text[160] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return ft_err_set(err, FT_E_PROC_MODEL, MODULE, "regex: %s (at offset %zu of '%.*s')", text,
                      (size_t)offset, (int)(pattern.len < 100 ? pattern.len : 100), pattern.ptr);
}

/* What a match writes to. */
static enum ft_code make_match_state(struct ft_split_regex *regex, bool jit, struct ft_err *err) {
    regex->context = pcre2_match_context_create(NULL);
    regex->match = pcre2_match_data_create(1, NULL);
    if (regex->context == NULL || regex->match == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a regex");
    pcre2_set_match_limit(regex->context, MATCH_LIMIT);
    if (jit)
        regex->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (regex->stack != NULL)
        pcre2_jit_stack_assign(regex->context, NULL, regex->stack);
    return FT_OK;
}

enum ft_code ft_split_init(struct ft_split *split, struct ft_str pattern, struct ft_err *err) {
    *split = (struct ft_split){.regex = calloc(1, sizeof *split->regex)};
    struct ft_split_regex *regex = split->regex;
    if (regex == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a regex");
    enum ft_code code = compile(regex, pattern, err);
    if (code == FT_OK)
        code =
            make_match_state(regex, pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0, err);
    if (code != FT_OK)
        ft_split_fini(split);
    return code;
}

enum ft_code ft_split_fork(struct ft_split *split, const struct ft_split *original,
                           struct ft_err *err) {
    *split = *original;
    split->regex = calloc(1, sizeof *split->regex);
    if (split->regex == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for a regex");
    split->regex->code = original->regex->code;
    split->regex->is_fork = true;
    enum ft_code code = make_match_state(split->regex, original->regex->stack != NULL, err);
    if (code != FT_OK)
        ft_split_fini(split);
    return code;
}

void ft_split_fini(struct ft_split *split) {
    struct ft_split_regex *regex = split->regex;
    if (regex != NULL) {
        pcre2_match_data_free(regex->match);
        pcre2_jit_stack_free(regex->stack);
        pcre2_match_context_free(regex->context);
        if (!regex->is_fork)
            pcre2_code_free(regex->code);
        free(regex);
    }
    *split = (struct ft_split){0};
}

/* The pieces so far: the last one waits, for the next may join it. */
struct run {
    const struct ft_split *split;
    struct ft_str text;
    const struct ft_split_sink *sink;
    size_t start, end; /* the piece that waits */
    bool was_match;
};

static enum ft_code flush(struct run *run, struct ft_err *err) {
    if (run->start == run->end)
        return FT_OK;
    if (run->was_match && run->split->behavior == FT_SPLIT_REMOVED)
        return FT_OK;
    struct ft_str piece = {run->text.ptr + run->start, run->end - run->start};
    return run->sink->piece(run->sink->ctx, piece, err);
}

static bool joins(enum ft_split_behavior behavior, bool was_match, bool is_match) {
    switch (behavior) {
    case FT_SPLIT_MERGED_WITH_PREVIOUS:
        return is_match && !was_match;
    case FT_SPLIT_MERGED_WITH_NEXT:
        return was_match && !is_match;
    case FT_SPLIT_CONTIGUOUS:
        return was_match == is_match;
    default:
        return false;
    }
}

/* Take text up to end, which is a match or what lies between two. */
static enum ft_code feed(struct run *run, size_t end, bool is_match, struct ft_err *err) {
    is_match = is_match != run->split->invert;
    enum ft_code code = FT_OK;
    if (!joins(run->split->behavior, run->was_match, is_match)) {
        code = flush(run, err);
        run->start = run->end;
    }
    run->end = end;
    run->was_match = is_match;
    return code;
}

static enum ft_code limit_error(int rc, size_t at, struct ft_err *err) {
    char text[160] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)text, sizeof text);
    return ft_err_set(err, FT_E_REQ_TOO_LARGE, MODULE,
                      "the text at byte %zu is too long a piece for the tokenizer's regex: %s", at,
                      text);
}

/* Offset behind the character at `at`. */
static size_t next_char(struct ft_str text, size_t at) {
    do
        at++;
    while (at < text.len && ((unsigned char)text.ptr[at] & 0xC0) == 0x80);
    return at;
}

/* An empty match right behind the last match is passed over, as the tokenizers library does. */
enum ft_code ft_split_run(const struct ft_split *split, struct ft_str text,
                          const struct ft_split_sink *sink, struct ft_err *err) {
    struct ft_split_regex *regex = split->regex;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(regex->match);
    struct run run = {.split = split, .text = text, .sink = sink};
    enum ft_code code = FT_OK;
    size_t from = 0, done = 0;
    bool any = false;
    while (code == FT_OK && from <= text.len) {
        int rc = pcre2_match(regex->code, (PCRE2_SPTR)text.ptr, text.len, from, PCRE2_NO_UTF_CHECK,
                             regex->match, regex->context);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0)
            return limit_error(rc, from, err);
        if (found[1] == found[0] && any && found[1] == done) {
            from = next_char(text, from);
            continue;
        }
        if (found[0] > done)
            code = feed(&run, found[0], false, err);
        if (code == FT_OK)
            code = feed(&run, found[1], true, err);
        from = done = found[1];
        any = true;
    }
    if (code == FT_OK && done < text.len)
        code = feed(&run, text.len, false, err);
    return code == FT_OK ? flush(&run, err) : code;
}
