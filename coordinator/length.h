/* length: how many tokens each request drafts next, so that the batch commits the most tokens a
 * second, from what rounds cost and what was accepted.
 * Owns:    nothing; a struct of the service and one of each request, embedded by value.
 * Runs in: coordinator; loop thread only.
 * Never:   reads a clock, a token or a worker: it is told, so that a simulated world can test it.
 */
#ifndef CO_LENGTH_H
#define CO_LENGTH_H

#include <stddef.h>

#include "common/base/err.h"
#include "common/base/sampling.h"
#include "coordinator/length_cost.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_LENGTH_SOURCES 8 /* drafters told apart */
#define CO_LENGTH_CLASSES 4 /* temperatures told apart in what new requests start from */
#define CO_LENGTH_TABLE_MAX 16

/* num_speculative_tokens: "4", "auto", or by batch size "1:6,4:3,16:0", each K from that many
 * running requests on. */
enum co_length_mode { CO_LENGTH_FIXED, CO_LENGTH_AUTO, CO_LENGTH_TABLE };
struct co_length_policy {
    enum co_length_mode mode;
    int32_t k_max; /* the largest K that it can ask for */
    int32_t n_rows;
    int32_t batch_from[CO_LENGTH_TABLE_MAX], k[CO_LENGTH_TABLE_MAX];
};

/* fail FT_E_PROC_CONFIG: names what is wrong with text */
enum ft_code co_length_parse(struct co_length_policy *policy, const char *text, struct ft_err *err);
/* K of FIXED and TABLE for n_running requests; k_max in AUTO. */
int32_t co_length_policy_k(const struct co_length_policy *policy, int32_t n_running);

/* Drafts that were decided at each position, and how many were accepted; old ones fade. */
struct co_rates {
    float decided[FT_DRAFT_LEN_MAX], accepted[FT_DRAFT_LEN_MAX];
};

struct co_length_request { /* zero at first */
    struct co_rates rates[CO_LENGTH_SOURCES];
    int32_t k_last;
    bool began;          /* k_last means something */
    int32_t rounds_at_0; /* in a row */
    int32_t probe_after; /* rounds at 0 until the next try; 0: not yet at 0 */
};

struct co_length {
    struct co_cost draft, verify; /* by steps, by rows; whole phases, hand-overs included */
    double catch_up_ns;           /* of a token that the draft has to read first; 0: not seen */
    /* Of late: what rounds took, and how much of it was spent on looking at other lengths. */
    double time_ns, look_ns;
    struct co_rates rates[CO_LENGTH_SOURCES][CO_LENGTH_CLASSES];
    uint32_t n_rounds[CO_COST_BATCHES];
    double k_mean; /* of late */
};

struct co_length_item {
    struct co_length_request *request;
    size_t source;   /* index of the drafter that proposes */
    size_t class_at; /* co_length_class of its temperature */
    bool model;      /* its tokens cost draft steps; else they lie there already */
    bool is_free;    /* K is to be chosen; else k_max is what it takes */
    int32_t k_max;
    int32_t n_before; /* tokens already drafted by another source that come first */
    float reach;      /* probability that all of those are accepted; 1 when there are none */
    int32_t behind;   /* tokens that the draft has to read before it can draft */
    int32_t k;        /* out */
};

void co_length_init(struct co_length *length);
size_t co_length_class(float temperature);

/* Fill k of every item. The first rounds of single requests try a few lengths, so that costs are
 * known. Later the neighbours of the best length, and requests at 0, are tried from time to time,
 * as long as such looks have not cost more than a two-hundredth of the time. */
void co_length_choose(struct co_length *length, struct co_length_item *items, int32_t n);

/* How many tokens behind those of another source are worth a row each, in a batch of n_items. Their
 * own draft step is done and paid. in  item  n_before, reach, k_max */
int32_t co_length_extend(const struct co_length *length, const struct co_length_item *item,
                         int32_t n_items);

/* Tell what was seen: a draft phase of so many steps for n_seqs sequences; a verification of rows
 * for a batch; of n_draft decided tokens from position at on, n_accepted were accepted. */
void co_length_saw_draft(struct co_length *length, int32_t n_seqs, int32_t steps, int64_t ns);
void co_length_saw_verify(struct co_length *length, int32_t n_seqs, int32_t rows, int64_t ns);
/* The draft read n_tokens that it lacked, in a draft phase of so many steps. */
void co_length_saw_catch_up(struct co_length *length, int32_t n_seqs, int32_t steps,
                            int32_t n_tokens, int64_t ns);
struct co_length_seen {
    size_t source, class_at;
    int32_t at, n_draft, n_accepted;
};
void co_length_saw_accept(struct co_length *length, struct co_length_request *request,
                          const struct co_length_seen *seen);

/* Probability that the draft at position i is accepted once those before it are. */
double co_length_rate(const struct co_length *length, const struct co_length_request *request,
                      size_t source, size_t class_at, int32_t i);
/* Of a source, all its requests of late together; -1: nothing seen. */
double co_length_alpha(const struct co_length *length, size_t source);

#ifdef __cplusplus
}
#endif
#endif
