/* The target worker goes and comes back, or does not: what the coordinator takes back, and how long
 * requests wait for it. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/pair.h"
#include "sim/net.h"
#include "sim/world.h"
#include "support/suite.h"

#define MS ((int64_t)1000000)

static struct world g_world;

static void begin(const struct sim_opts *opts) {
    net_reset(1);
    world_start(&g_world, 1, opts);
}

/* The target comes back and describes itself so. */
static void require_refused(const struct ft_wire_describe *d, const char *what) {
    struct ft_err err = {0};
    ck_assert_int_eq(co_pair_target(g_world.app, d, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strstr(err.text, what) != NULL, "no '%s' in: %s", what, err.text);
}

START_TEST(target_that_comes_back_as_another_model_is_refused_with_both_values) {
    begin(&(struct sim_opts){.max_seqs = 4});
    struct co_target_model *model = &g_world.app->pair.target_model;
    struct ft_wire_describe same = *co_peer_describe(g_world.app->target);
    /* The simulated model has no weights. */
    model->n_parameters = same.n_parameters = 1000;
    model->weight_bytes = same.weight_bytes = 2000;
    model->fingerprint = same.weights_fingerprint = 0xabc;
    struct ft_wire_describe d = same;
    ck_assert_int_eq(co_pair_target(g_world.app, &d, NULL), FT_OK);
    d.architecture = ft_str_c("Qwen2ForCausalLM");
    require_refused(&d, "architecture is Qwen2ForCausalLM, was HistoryForTests");
    d = same;
    d.dtype = ft_str_c("bf16");
    require_refused(&d, "dtype is bf16, was ");
    d = same;
    d.n_parameters = 1001;
    require_refused(&d, "num_parameters is 1001, was 1000");
    d = same;
    d.weight_bytes = 4000;
    require_refused(&d, "weight_bytes is 4000, was 2000");
    d = same;
    d.weights_fingerprint = 0xabd;
    require_refused(&d, "weights_fingerprint is 0000000000000abd, was 0000000000000abc");
    d.weights_fingerprint = 0; /* a worker that does not tell */
    ck_assert_int_eq(co_pair_target(g_world.app, &d, NULL), FT_OK);
    d = same;
    d.max_step_sequences = 3;
    require_refused(&d, "max_step_sequences is 3, 4 are needed");
    world_stop(&g_world);
}
END_TEST

START_TEST(request_waits_for_a_lost_target_as_long_as_it_says) {
    static const int64_t arrives_ms[] = {0, 12, 1000, 2800, 2900, 3200, 5900, 11000};
    enum { N = sizeof arrives_ms / sizeof arrives_ms[0], LOST_MS = 20, WAITS_MS = 3000 };
    begin(&(struct sim_opts){.args = {"--target_recovery_timeout_ms=3000"}});
    struct sim_client *c[N];
    int64_t begin_ns = net_now_ns();
    world_fault(&g_world, SIM_KILL, SIM_TARGET, LOST_MS * MS, 20000 * MS);
    for (uint32_t i = 0; i < N; i++) {
        c[i] = world_client(&g_world, arrives_ms[i] * MS);
        sim_client_prompt(c[i], i, 20);
        c[i]->params.ignore_eos = true;
        c[i]->params.max_tokens = i < 2 ? 500 : 20;
        c[i]->has_k = i < 2;          /* they still run when the target goes */
        c[i]->long_text = i % 3 == 2; /* tokenized meanwhile */
        c[i]->expected_status = 14;
    }
    world_run(&g_world, 30000);
    for (int i = 0; i < N; i++) {
        int64_t from_ms = arrives_ms[i] > LOST_MS ? arrives_ms[i] : LOST_MS;
        int64_t waited_ms = (c[i]->done_ns - begin_ns) / MS - from_ms;
        ck_assert_msg(waited_ms >= WAITS_MS && waited_ms < WAITS_MS + 200,
                      "client %d waited %lld ms", i, (long long)waited_ms);
        ck_assert_str_eq(c[i]->status.text, "the target worker did not come back within 3000 ms");
    }
    struct sim_client *later = world_client(&g_world, 20000 * MS);
    sim_client_prompt(later, 1, 20);
    world_run(&g_world, 30000);
    ck_assert_int_eq(later->status.code, 0);
    world_stop(&g_world);
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("target_lost");
    TCase *tc = tcase_create("target_lost");
    tcase_add_test(tc, target_that_comes_back_as_another_model_is_refused_with_both_values);
    tcase_add_test(tc, request_waits_for_a_lost_target_as_long_as_it_says);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
