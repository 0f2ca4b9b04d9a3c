/* sampling: how a request's tokens are chosen; plain data shared by wire, spec and the roles.
 * Owns:    nothing; its lists are borrowed.
 * Runs in: every process.
 * Never:   holds unchecked values: whoever fills it has validated the ranges of inference.proto. */
#ifndef FT_BASE_SAMPLING_H
#define FT_BASE_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most tokens drafted in one round; bounds every [K] array. The theory's best K for an acceptance
 * of 0.9 and a free drafter is past it, measured gains are not. */
#define FT_DRAFT_LEN_MAX 16

struct ft_bias {
    int32_t id;
    float value;
};

struct ft_sampling {
    float temperature;        /* 0: greedy */
    float top_p;              /* 1: off */
    int32_t top_k;            /* 0: off */
    float min_p;              /* 0: off */
    float frequency_penalty;  /* 0: off */
    float presence_penalty;   /* 0: off */
    float repetition_penalty; /* 1: off */
    uint64_t seed;
    bool coupled;               /* draws are argmax(log p + Gumbel noise): the rule `coupled` */
    const struct ft_bias *bias; /* [n_bias], ids ascending and unique */
    size_t n_bias;
    const int32_t *allowed; /* [n_allowed], ids ascending and unique; only these may be sampled */
    size_t n_allowed;       /* 0: all */
    const int32_t *banned;  /* [n_banned], ids ascending and unique; never sampled */
    size_t n_banned;
};

/* Most entries of each of the three lists: a draft step carries them, for each sequence. */
#define FT_SAMPLING_LIST_MAX 1024

/* Log-probabilities of one token: its log-softmax over the raw logits of its row. */
#define FT_LOGPROBS_MAX 20      /* most alternatives of a token, as in OpenAI's interface */
#define FT_LOGPROB_MIN -9999.0f /* stands for what is impossible, and for what is below it */

struct ft_logprobs {
    float token_logprob;
    int32_t n_top; /* what was asked for, or less: ids with a logit of -inf are left out */
    int32_t ids[FT_LOGPROBS_MAX];
    float values[FT_LOGPROBS_MAX]; /* descending; the lowest id first among equals */
};

/* Temperatures below this are greedy: dividing by them would overflow f32. */
#define FT_TEMPERATURE_MIN 1e-5f

static inline struct ft_sampling ft_sampling_default(void) {
    return (struct ft_sampling){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

#ifdef __cplusplus
}
#endif
#endif
