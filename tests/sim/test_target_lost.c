/* The target worker goes and comes back, or does not: what the coordinator takes back, and how long
 * requests wait for it. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/pair.h"
#include "sim/net.h"
#include "sim/world.h"
#include "support/suite.h"

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

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("target_lost");
    TCase *tc = tcase_create("target_lost");
    tcase_add_test(tc, target_that_comes_back_as_another_model_is_refused_with_both_values);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
