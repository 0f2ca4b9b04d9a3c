/* split: one regular expression that cuts text into pieces (a Split of tokenizer.json).
 * Owns:    the compiled pattern, from init to fini.
 * Runs in: coordinator; workers compile it too, so that a bad file fails everywhere alike.
 * Never:   copies text; gives up quietly: a match that hits a limit of PCRE2 is an error. */
#ifndef FT_TEXT_SPLIT_H
#define FT_TEXT_SPLIT_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What happens with a match; the names of the tokenizers library. */
enum ft_split_behavior {
    FT_SPLIT_REMOVED,
    FT_SPLIT_ISOLATED,
    FT_SPLIT_MERGED_WITH_PREVIOUS,
    FT_SPLIT_MERGED_WITH_NEXT,
    FT_SPLIT_CONTIGUOUS
};

bool ft_split_parse(const char *name, enum ft_split_behavior *out);

struct ft_split {
    struct ft_split_regex *regex; /* PCRE2's objects */
    enum ft_split_behavior behavior;
    bool invert; /* what lies between the matches is the match */
};

/* pattern is PCRE2's (see regex.h). fail FT_E_PROC_MODEL with PCRE2's message; FT_E_PROC_MEMORY */
enum ft_code ft_split_init(struct ft_split *split, struct ft_str pattern, struct ft_err *err);
/* The same split with match state of its own, for another thread. It borrows the compiled pattern:
 * fini it before the original. fail FT_E_PROC_MEMORY */
enum ft_code ft_split_fork(struct ft_split *split, const struct ft_split *original,
                           struct ft_err *err);
void ft_split_fini(struct ft_split *split);

/* Gets each piece that is not empty, in order. */
struct ft_split_sink {
    enum ft_code (*piece)(void *ctx, struct ft_str piece, struct ft_err *err);
    void *ctx;
};

/* Cut text (valid UTF-8). fail FT_E_REQ_TOO_LARGE when the engine runs out of its stack or match
 * limit; what sink returns. */
enum ft_code ft_split_run(const struct ft_split *split, struct ft_str text,
                          const struct ft_split_sink *sink, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
