/* rule: the acceptance rules. A rule looks at K drafted tokens with their q rows and K + 1 target
 * rows, and says which 1 .. K + 1 tokens are committed.
 * Owns:    nothing; rows lie where the workers wrote them.
 * Runs in: coordinator; loop thread only.
 * Never:   depends on batch, slot, time or K of other rounds: random numbers are Philox streams. */
#ifndef FT_SPEC_RULE_H
#define FT_SPEC_RULE_H

#include "common/spec/philox.h"
#include "common/spec/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_round {
    const struct ft_sampling *sampling;
    const struct ft_counts *counts; /* of the committed tokens; NULL without penalties */
    uint64_t position;              /* absolute index of the first token to be decided */
    const int32_t *draft;           /* [n_draft], ids of the draft's vocabulary */
    int32_t n_draft;                /* 0 .. FT_DRAFT_LEN_MAX; 0 is a plain step */
    const float *const *p_rows;     /* [n_draft + 1] raw target logits, each [n_vocab] */
    int32_t n_vocab;
    const float *const *q_rows; /* [n_draft] draft distributions, each [n_vocab_draft]; NULL: each
                                   draft is one-hot (greedy draft or a drafter without a model) */
    int32_t n_vocab_draft;
    const int32_t *banned; /* ids banned while min_tokens is not reached */
    size_t n_banned;
    int32_t n_banned_rows;        /* the first so many rows ban them */
    float lenience;               /* of the rule `lenient`: (0, 1] */
    const float *synthetic_rates; /* of the rule `synthetic`: [n_draft], the chance that a draft
                                     is accepted once those before it are */
};

struct ft_verdict {
    int32_t tokens[FT_DRAFT_LEN_MAX + 1];
    int32_t n_tokens;   /* 1 .. n_draft + 1 */
    int32_t n_accepted; /* n_tokens - 1 */
    bool residual;      /* the last token came from the residual of a rejection */
};

struct ft_rule {
    const char *name;
    bool lossy;   /* what is sampled may not have the target's distribution */
    bool coupled; /* draws with Gumbel noise, and the drafter is to use the same */
    bool by_row;  /* each row is decided by itself, which a device can do too: choice.h */
    bool blind;   /* drafts are accepted whatever the target says of them: for benchmarks */
    /* Rows of the target after the first rejection depend on a token that is not there: they are
     * not looked at (by `block`: rows after a draft that cannot be accepted). Where q rows are
     * read, all of them are checked first. A drafted id outside the target's vocabulary is a
     * rejected draft. fail FT_E_REQ_NUMERIC names the row; FT_E_REQ_INVALID: everything banned;
     *      FT_E_PEER_PROTOCOL: q cannot be what the draft was drawn from (a value not finite or
     *      negative, zero for the drafted token, a sum that is not 1, an id that has no q). The
     *      caller takes the draft worker for broken and decides again with n_draft = 0, which is
     *      exact. out untouched. */
    enum ft_code (*decide)(struct ft_transform *transform, const struct ft_round *round,
                           struct ft_verdict *out, struct ft_err *err);
};

/* By config name ("standard"); NULL when there is none. */
const struct ft_rule *ft_rule_find(const char *name);
/* Every rule in turn; NULL past the last. */
const struct ft_rule *ft_rule_at(size_t index);

/* What row index of a round sees: counts, the drafts before it, the bans in force. */
struct ft_row_context ft_rule_row_context(const struct ft_round *round, int32_t index);

/* Does a drafter that samples so leave q rows? Not when it is greedy, nor under `coupled`, whose
 * rule compares tokens alone. */
bool ft_rule_reads_q(const struct ft_sampling *draft_sampling);

/* The drafter's own draw from q, of the token at position, the index-th of its round.
 * The index makes a draw of its own of a position that is drafted again: rules may have looked at
 * what was drafted there before. -1 when q has nothing positive. */
int32_t ft_rule_propose(const struct ft_sampling *draft_sampling, const float *q, int32_t n_vocab,
                        uint64_t position, int32_t index);

/* The probability that a token drawn from q is accepted against p: the sum of min(p, q) over the
 * ids that both have. For measurements. */
double ft_spec_alpha(const float *p, int32_t n_vocab, const float *q, int32_t n_vocab_draft);

#ifdef __cplusplus
}
#endif
#endif
