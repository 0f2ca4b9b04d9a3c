/* choice: what is to be decided about rows of logits that lie on a device: plain data, laid out
 * alike for host and device, made by spec (choice.c) and carried out by ops->choose.
 * Owns:    nothing.
 * Runs in: coordinator, draft_worker.
 * Never:   holds a random number's key: what is drawn with is computed beforehand, but for Gumbel
 *          noise, of which each token has its own. */
#ifndef FT_GPU_CHOICE_H
#define FT_GPU_CHOICE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of up to so many tokens are decided on a device. */
#define FT_CHOICE_VOCAB_MAX (2 * 131072)
#define FT_CHOICE_DRAFTED_MAX 16

enum ft_choice_kind {
    FT_CHOICE_GREEDY,   /* token: the lowest id among the largest, after the edits */
    FT_CHOICE_DRAW,     /* token: drawn with u_draw from the row's distribution p */
    FT_CHOICE_GUMBEL,   /* token: argmax(log p + noise(seed, position, id)) */
    FT_CHOICE_SPECULATE /* is_accepted: u_accept * q(draft) * lenience < p(draft); token: drawn with
                         * u_draw from max(0, p - lenience * q), or from p where that is nothing */
};

/* A token whose logit is changed: + bias, then the penalties if is_counted. Each id once. */
struct ft_choice_edit {
    int32_t id;
    float bias;
    int32_t n_output; /* how often in the output, drafts not counted */
    int32_t is_counted;
};

/* One row. Lists are counted from the start of the op's edits and ids. */
struct ft_choice_row {
    const float *logits; /* dev [n_vocab], 16-byte aligned, readable to a multiple of 16 floats */
    const float *q;      /* dev [n_q], what the draft was drawn from; NULL: one-hot */
    float *probs;        /* dev [n_vocab], where p goes; NULL: nowhere */
    const int32_t *drafted; /* dev [n_drafted], output that the row sees and edits do not count */
    int32_t *tokens[2]; /* dev, where the token goes as well, for what reads it there; NULL: not */
    int32_t n_vocab, n_q, n_drafted;
    int32_t kind; /* enum ft_choice_kind */
    int32_t top_k;
    float temperature, top_p, min_p; /* unused when greedy */
    float repetition, presence, frequency;
    int32_t has_penalties;
    int32_t first_edit, n_edits;
    int32_t first_banned, n_banned;   /* ids without a chance */
    int32_t first_allowed, n_allowed; /* only these have one; n_allowed 0: all */
    int32_t draft;
    float lenience;
    double u_accept, u_draw;
    uint64_t seed, position;
};

enum ft_choice_status {
    FT_CHOICE_OK = 0,
    FT_CHOICE_ASK = 1,  /* something about the row is unusual: the host has to look at it */
    FT_CHOICE_BAD_Q = 2 /* the q row is no distribution */
};

struct ft_choice_result {
    int32_t status;
    int32_t token;
    int32_t is_accepted;
    int32_t stamp; /* the op's: the result is there, all of it written at once */
};

/* A launch brings so many bytes along in less time than a copy before it takes. */
#define FT_CHOICE_BROUGHT_MAX 8064

/* Decide n_rows rows, each by itself: a row's result depends on nothing but its own fields, and is
 * the same as that of the functions of spec, bit for bit.
 * dev   rows, edits, ids
 * dev   results  [n_rows], or pinned host memory; 16-byte aligned
 * host  lists    [lists_bytes] or NULL: what else lies on the device at lists_at, which is rows,
 *                edits, ids and what the rows' drafted point to: the launch brings it along, and
 *                nothing has to be there */
struct ft_op_choose {
    const struct ft_choice_row *rows;
    int32_t n_rows;
    int32_t n_vocab_max; /* of any row */
    const struct ft_choice_edit *edits;
    const int32_t *ids;
    struct ft_choice_result *results;
    int32_t stamp;
    uint32_t lists_bytes; /* at most FT_CHOICE_BROUGHT_MAX */
    const void *lists, *lists_at;
};

#ifdef __cplusplus
}
#endif
#endif
