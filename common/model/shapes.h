/* shapes: which steps are noted before they come (device.h), and in what order.
 * Owns:    nothing; it is arithmetic.
 * Runs in: draft_worker, target_worker.
 * Never:   knows a device or what a step holds. */
#ifndef FT_MODEL_SHAPES_H
#define FT_MODEL_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sequences of one step: more of them are seldom as many twice. */
#define FT_SHAPES_SEQS_MAX 8
/* Drafts of one sequence: where more pay, a step is short beside its start. */
#define FT_SHAPES_DRAFTS_MAX 8
/* Rows of one step, drafts and the token before them: larger batches draft little. */
#define FT_SHAPES_ROWS_MAX 32

enum ft_shape_kind {
    FT_SHAPE_ROWS,  /* n tokens of each sequence, a row of logits for each of them */
    FT_SHAPE_FEED,  /* n tokens of all sequences, one or two of each, a row for its last */
    FT_SHAPE_DRAFTS /* n tokens drafted behind one token of each */
};

struct ft_shape {
    enum ft_shape_kind kind;
    int32_t n_seqs, n;
    int32_t len;   /* positions of each sequence after the step */
    bool is_first; /* operations may be of a kind that those before it were not */
};

struct ft_shapes_limits {
    bool is_drafting;   /* steps of a model that drafts: FEED and DRAFTS; else ROWS */
    int32_t n_seqs_max; /* of one step, as are the next two */
    int32_t n_tokens_max;
    int32_t n_rows_max;
    int32_t len_max;  /* positions of one sequence */
    int32_t len_step; /* lengths up to the same multiple of it are one shape */
    int32_t block_tokens;
    int32_t n_blocks; /* of all sequences together */
};

/* The shapes that fit, in the order in which a service grows into them: by sequences times their
 * length, for each of which all draft lengths stand together. A shorter list is the beginning of a
 * longer one.
 * out   shapes  [n_max]
 * Returns how many. */
int32_t ft_shapes_list(const struct ft_shapes_limits *limits, struct ft_shape *shapes,
                       int32_t n_max);

#ifdef __cplusplus
}
#endif
#endif
