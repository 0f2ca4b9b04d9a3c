/* client (sim): one Generate call, with what its answer must be.
 * Owns:    the call and the expected tokens.
 * Runs in: tests/sim. */
#ifndef SIM_CLIENT_H
#define SIM_CLIENT_H

#include "common/rpc/rpc.h"
#include "common/spec/transform.h"
#include "common/wire/inference.h"

enum { SIM_PROMPT_MAX = 1000, SIM_OUTPUT_MAX = 512 };

struct world;

struct sim_client {
    struct world *world;
    int index;
    char id[16];
    /* what it asks for */
    int32_t prompt[SIM_PROMPT_MAX];
    int32_t n_prompt;
    struct ft_wire_params params;
    int32_t stop_id; /* of params.stop_token_ids, -1: none */
    bool stream, has_k;
    bool long_text; /* the prompt, made ASCII, ends a text that helper threads tokenize */
    uint32_t k;
    int32_t cancel_after;   /* tokens, -1: never */
    int64_t cancel_at_ns;   /* 0: never */
    int64_t deadline_in_ns; /* 0: none */
    bool slow;              /* reads by fits and starts */
    int32_t priority;
    const char *rule, *drafter; /* NULL: the service's */
    float acceptance_length;    /* of the rule `synthetic`; 0: the service's */
    const char *metadata_key, *metadata_value;
    /* what must come of it */
    bool exact; /* tokens are known */
    int32_t expected[SIM_OUTPUT_MAX];
    int32_t n_expected;
    enum ft_wire_finish expected_finish;
    int expected_status;
    bool may_be_refused; /* RESOURCE_EXHAUSTED is an answer as well */
    /* what happened */
    bool started, done, cancelled, reads;
    int64_t started_ns, first_token_ns, done_ns;
    uint64_t started_step, first_token_step; /* of the target */
    int32_t n_got;
    int32_t got[SIM_OUTPUT_MAX];
    struct ft_buf text;
    struct ft_rpc_status status;
    enum ft_wire_finish finish;
    struct ft_wire_usage usage;
    struct ft_wire_spec_stats spec;
    char retry_after[16];
    int32_t n_missed; /* target steps in a row that left it out while it decoded */
    struct ft_rpc_stream *stream_call;
    struct ft_rpc_timer start_timer, cancel_timer, read_timer;
};

/* n ids; prompts of one family start alike. */
void sim_client_prompt(struct sim_client *client, uint32_t family, int32_t n);
/* Fill in what must come of the request; called when it starts. */
void sim_client_expect(struct sim_client *client, struct ft_transform *transform);
void sim_client_start(void *client);
/* After the end: everything is as expected, or the test fails. */
void sim_client_check(const struct sim_client *client);

#endif
