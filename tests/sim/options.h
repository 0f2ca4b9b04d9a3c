/* options (sim): one Generate call with any options, several continuations included, and what its
 * answer must be: token by token where the text is known, else by what counts for every text.
 * Owns:    the call, its lists and the expected tokens; begin to end.
 * Runs in: tests/sim. */
#ifndef SIM_OPTIONS_H
#define SIM_OPTIONS_H

#include "common/rpc/rpc.h"
#include "common/spec/rule.h"
#include "sim/world.h"

enum {
    OPTIONS_N_MAX = 4,
    OPTIONS_PROMPT_MAX = 400,
    OPTIONS_OUTPUT_MAX = 200,
    OPTIONS_IDS_MAX = 200,
    OPTIONS_CUT_OFF = 12288 /* bytes before a long text's prompt, which truncation cuts off */
};

struct options_lane { /* one continuation */
    int32_t got[OPTIONS_OUTPUT_MAX], n_got;
    struct ft_logprobs logprobs[OPTIONS_OUTPUT_MAX];
    struct ft_buf text;
    enum ft_wire_finish finish; /* NONE: it has not ended */
    struct ft_wire_usage usage;
    struct ft_wire_spec_stats spec;
    bool began;
    /* what must come of it */
    int32_t want[OPTIONS_OUTPUT_MAX], n_want;
    struct ft_buf want_text;
    enum ft_wire_finish want_finish;
};

struct options_call {
    struct world *world;
    char id[8];
    /* what it asks for; lists of `in` lie here */
    struct ft_wire_generate in;
    const struct ft_rule *rule;
    int32_t prompt[OPTIONS_PROMPT_MAX];
    struct ft_bias bias[4];
    int32_t allowed[OPTIONS_IDS_MAX], banned[OPTIONS_IDS_MAX], stop_ids[2];
    struct ft_str stops[2];
    char stop_bytes[2][2];
    bool long_text, slow;
    int32_t cancel_after; /* tokens, -1: never */
    /* what must come of it */
    bool exact; /* tokens are known */
    int want_status;
    /* what happened */
    bool done, cancelled, aborted, reads;
    int32_t n_got; /* of all continuations */
    struct options_lane lanes[OPTIONS_N_MAX];
    struct ft_logprobs prompt_logprobs[OPTIONS_PROMPT_MAX];
    int32_t n_prompt_logprobs;
    struct ft_rpc_status status;
    struct ft_rpc_stream *stream;
    struct ft_rpc_timer start_timer, read_timer;
};

/* Greedy, one continuation of at most 20 tokens; its prompt and more are the caller's to fill in.
 */
void options_begin(struct options_call *call, struct world *world, int index);
void options_end(struct options_call *call);
uint32_t options_n(const struct options_call *call);
/* Fills in what must come, and sends it. Once it is done, everything was as expected, or the test
 * has failed. */
void options_start(void *call);

#endif
