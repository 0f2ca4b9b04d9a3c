/* Several continuations of one prompt in one call. */
#include <check.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { N = 5, TOKENS = 60, INVALID = 3, INTERNAL = 13 };

static struct cluster g_cluster;
static struct gen g_gen, g_other;

static void run_ok(const struct ft_wire_generate *request, struct gen *gen) {
    gen_run(&g_cluster, request, gen);
    gen_require_ok(gen);
}

static struct ft_wire_generate request_of(uint32_t n, int k, const char *text) {
    struct ft_wire_generate request = gen_text(text, TOKENS, k);
    request.params.has_n = true;
    request.params.n = n;
    request.params.temperature = 1;
    request.params.has_seed = true;
    request.params.seed = UINT64_MAX - 1; /* seed + 2 is 0 */
    request.params.ignore_eos = true;
    return request;
}

/* Everything is given back: nothing runs, nothing waits, the pools are whole. */
static void require_idle(void) {
    struct ft_wire_stats stats;
    for (int i = 0; i < 200; i++) {
        stats = cluster_stats(&g_cluster);
        if (stats.num_requests_running == 0 && stats.num_requests_waiting == 0 &&
            stats.target.sequences == 0 && stats.draft.sequences == 0)
            return;
    }
    ck_abort_msg("%u run, %u wait, %u and %u sequences", stats.num_requests_running,
                 stats.num_requests_waiting, stats.target.sequences, stats.draft.sequences);
}

START_TEST(continuation_i_is_the_text_of_seed_plus_i) {
    static const char *const rules[] = {"standard", "coupled"};
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    for (int round = 0; round < 4; round++) {
        struct ft_wire_generate request = request_of(N, 4, "several ways to go on");
        request.spec.rejection_sample_method = ft_str_c(rules[round % 2]);
        request.stream = round < 2;
        run_ok(&request, &g_gen);
        ck_assert(round < 2 || g_gen.n_messages == N);
        for (uint32_t i = 0; i < N; i++) {
            struct ft_wire_generate alone = request;
            alone.params.has_n = false;
            alone.params.seed += i;
            run_ok(&alone, &g_other);
            const int32_t *ids = i == 0 ? g_gen.ids : g_gen.others[i - 1].ids;
            size_t n_ids = i == 0 ? g_gen.n_ids : g_gen.others[i - 1].n_ids;
            ck_assert_uint_eq(n_ids, TOKENS);
            ck_assert_mem_eq(ids, g_other.ids, TOKENS * sizeof *ids);
            ck_assert_int_eq(i == 0 ? g_gen.finish : g_gen.others[i - 1].finish,
                             FT_WIRE_FINISH_LENGTH);
            gen_fini(&g_other);
        }
        gen_fini(&g_gen);
    }
    require_idle();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(each_continuation_has_the_logprobs_of_its_own_tokens) {
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    struct ft_wire_generate request = request_of(3, 4, "several ways to go on");
    request.params.has_logprobs = true;
    request.params.logprobs = 2;
    run_ok(&request, &g_gen);
    for (uint32_t i = 0; i < 3; i++) {
        struct ft_wire_generate alone = request;
        alone.params.has_n = false;
        alone.params.seed += i;
        run_ok(&alone, &g_other);
        ck_assert(i == 0 || g_gen.others[i - 1].n_logprobs == TOKENS);
        for (size_t k = 0; k < TOKENS; k++) {
            float logprob =
                i == 0 ? gen_logprobs(&g_gen, k)->token_logprob : g_gen.others[i - 1].logprobs[k];
            ck_assert(logprob == gen_logprobs(&g_other, k)->token_logprob);
        }
        gen_fini(&g_other);
    }
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(prompt_is_computed_once) {
    static char text[101];
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    memset(text, 'p', 100); /* all of them fit one step */
    struct ft_wire_generate request = request_of(N, 4, text);
    request.return_prompt_token_ids = true;
    run_ok(&request, &g_gen);
    ck_assert_uint_eq(g_gen.prompt_ids.len, 100 * sizeof(int32_t)); /* said once */
    ck_assert_uint_eq(g_gen.usage.cached_tokens, 0);
    for (int i = 0; i < N - 1; i++) {
        ck_assert_uint_eq(g_gen.others[i].usage.prompt_tokens, 100);
        ck_assert_uint_eq(g_gen.others[i].usage.cached_tokens, 96); /* whole blocks of 16 */
    }
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(greedy_continuations_are_the_same_and_end_each_by_itself) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--max_num_seqs=2"); /* they take turns */
    struct ft_wire_generate request = request_of(N, 3, "a");
    struct ft_str stop = ft_str_c("ea");
    request.params.temperature = 0;
    request.params.stop = &stop;
    request.params.n_stop = 1;
    run_ok(&request, &g_gen);
    ck_assert_uint_eq(g_gen.n_ids, 5); /* bcdea, cut before ea */
    ck_assert(ft_str_eq(ft_buf_str(&g_gen.text), ft_str_c("bcd")));
    for (int i = 0; i < N - 1; i++) {
        ck_assert_uint_eq(g_gen.others[i].n_ids, 5);
        ck_assert_int_eq(g_gen.others[i].finish, FT_WIRE_FINISH_STOP);
    }
    gen_fini(&g_gen);
    require_idle();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(cancelled_call_ends_all_of_them) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", NULL);
    struct ft_wire_generate request = request_of(N, 4, "a");
    request.params.max_tokens = 4000;
    g_gen.cancel_after = 40;
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_int_eq(g_gen.status.code, 1);
    gen_fini(&g_gen);
    require_idle();
    cluster_stop(&g_cluster);
}
END_TEST

/* Non-finite logits come once a continuation says z: the call fails, and nobody is left behind. */
START_TEST(one_failure_fails_the_call) {
    cluster_start_pair(&g_cluster, "nant", "cyc", NULL);
    static const struct ft_bias bias[] = {{'z', 30.0f}}; /* sometimes, after some tokens */
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct ft_wire_generate request = request_of(N, 4, "a");
        request.params.logit_bias = bias;
        request.params.n_logit_bias = 1;
        request.params.max_tokens = 200;
        request.params.seed = seed * 100;
        request.params.temperature = 8;
        gen_run(&g_cluster, &request, &g_gen);
        ck_assert_int_eq(g_gen.status.code, INTERNAL);
        gen_fini(&g_gen);
    }
    require_idle();
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(more_than_can_ever_be_there_are_refused) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("cyc"),
        .draft_dir = ft_fixture_model("cyc-draft"),
        .args = {[CLUSTER_COORDINATOR] = {"--max_num_seqs=2", "--max_queue=3"}},
    };
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = request_of(6, 4, "a");
    gen_run(&g_cluster, &request, &g_gen);
    ck_assert_int_eq(g_gen.status.code, INVALID); /* it would be too many at any time */
    ck_assert_ptr_nonnull(strstr(g_gen.status.text, "n is 6: at most 5 run and wait together "
                                                    "(max_num_seqs 2 and max_queue 3)"));
    gen_fini(&g_gen);
    request.params.n = 5;
    run_ok(&request, &g_gen);
    gen_fini(&g_gen);
    require_idle();
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_n");
    TCase *tc = tcase_create("n");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, continuation_i_is_the_text_of_seed_plus_i);
    tcase_add_test(tc, each_continuation_has_the_logprobs_of_its_own_tokens);
    tcase_add_test(tc, prompt_is_computed_once);
    tcase_add_test(tc, greedy_continuations_are_the_same_and_end_each_by_itself);
    tcase_add_test(tc, cancelled_call_ends_all_of_them);
    tcase_add_test(tc, one_failure_fails_the_call);
    tcase_add_test(tc, more_than_can_ever_be_there_are_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
