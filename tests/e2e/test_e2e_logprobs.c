/* Log-probabilities end to end, the echo of the prompt, and its truncation. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

static struct cluster g_cluster;
static struct gen g_gen, g_other;

static void run_ok(const struct ft_wire_generate *request, struct gen *gen) {
    gen_run(&g_cluster, request, gen);
    gen_require_ok(gen);
}

static struct ft_wire_generate with_logprobs(const char *text, uint32_t max_tokens, int k,
                                             int32_t n_top) {
    struct ft_wire_generate request = gen_text(text, max_tokens, k);
    request.params.has_logprobs = true;
    request.params.logprobs = n_top;
    return request;
}

/* -0.40761, -1.40761 and -2.40761 of b, c and d, as the iid target has it before anything. */
static void require_iid(const struct gen *gen, int32_t n_top) {
    ck_assert_uint_eq(gen->logprobs.len, gen->n_ids * sizeof(struct ft_logprobs));
    for (size_t i = 0; i < gen->n_ids; i++) {
        const struct ft_logprobs *row = gen_logprobs(gen, i);
        double want = -0.40761 - (gen->ids[i] - 'b');
        ck_assert_double_eq_tol((double)row->token_logprob, want, 1e-4);
        ck_assert_int_eq(row->n_top, n_top);
        for (int32_t j = 0; j < n_top && j < 3; j++) {
            ck_assert_int_eq(row->ids[j], 'b' + j);
            ck_assert_double_eq_tol((double)row->values[j], -0.40761 - j, 1e-4);
        }
    }
}

START_TEST(dev48_every_token_has_the_logprob_of_its_own_row) {
    static const char *const rules[] = {"standard", "coupled", "block", "lenient"};
    cluster_start_pair(&g_cluster, "iid", "iid-draft", "--allow_lossy=true");
    for (int rule = 0; rule < 4; rule++)
        for (int k = 0; k <= 4; k += 2)
            for (int stream = 0; stream < 2; stream++) {
                struct ft_wire_generate request = with_logprobs("a", 100, k, 3);
                request.params.temperature = 1;
                request.stream = stream;
                request.spec.rejection_sample_method = ft_str_c(rules[rule]);
                run_ok(&request, &g_gen);
                require_iid(&g_gen, 3);
                ck_assert(k == 0 || g_gen.spec.num_accepted_tokens > 0);
                gen_fini(&g_gen);
            }
    struct ft_wire_generate request = with_logprobs("a", 20, 4, 0);
    run_ok(&request, &g_gen);
    require_iid(&g_gen, 0);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    for (int k = 0; k <= 8; k += 4) {
        request = with_logprobs("a", 60, k, 1);
        run_ok(&request, &g_gen);
        for (size_t i = 0; i < g_gen.n_ids; i++) {
            const struct ft_logprobs *row = gen_logprobs(&g_gen, i);
            ck_assert_double_lt(fabs((double)row->token_logprob), 1e-3);
            ck_assert_int_eq(row->ids[0], g_gen.ids[i]);
        }
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev69_logprobs_are_of_the_raw_logits_whatever_the_sampling) {
    static const struct ft_bias bias[] = {{'b', -100.0f}};
    static const int32_t banned[] = {'c'};
    cluster_start_pair(&g_cluster, "iid", "iid-draft", "--allow_lossy=true");
    for (int k = 0; k <= 4; k += 4) {
        struct ft_wire_generate request = with_logprobs("a", 60, k, 3);
        request.params.temperature = 0.5f;
        run_ok(&request, &g_gen);
        require_iid(&g_gen, 3);
        gen_fini(&g_gen);
        request.params.top_k = 1;
        run_ok(&request, &g_gen);
        require_iid(&g_gen, 3);
        gen_fini(&g_gen);
        request.params.logit_bias = bias;
        request.params.n_logit_bias = 1;
        request.params.banned_token_ids = banned;
        request.params.n_banned_token_ids = 1;
        request.params.presence_penalty = 1;
        request.params.logprobs = 20;
        run_ok(&request, &g_gen);
        require_iid(&g_gen, 20);
        for (size_t i = 0; i < g_gen.n_ids; i++)
            for (int32_t j = 0; j < 20; j++)
                ck_assert(isfinite(gen_logprobs(&g_gen, i)->values[j]));
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
}
END_TEST

/* Bit for bit the same with speculation, in company and after a prefix hit: the rows are. */
START_TEST(logprobs_do_not_depend_on_speculation) {
    cluster_start_pair(&g_cluster, "r7", "r7n", "--allow_lossy=true");
    struct ft_wire_generate request = with_logprobs("a prompt of some length", 80, 0, 5);
    request.params.ignore_eos = true;
    run_ok(&request, &g_other);
    for (int k = 1; k <= 8; k++) {
        request.num_speculative_tokens = (uint32_t)k;
        run_ok(&request, &g_gen);
        ck_assert_uint_eq(g_gen.logprobs.len, g_other.logprobs.len);
        ck_assert_mem_eq(g_gen.logprobs.ptr, g_other.logprobs.ptr, g_other.logprobs.len);
        gen_fini(&g_gen);
    }
    gen_fini(&g_other);
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- the prompt ------------------------------------------------------------------------------ */

static const struct ft_logprobs *prompt_logprobs(const struct gen *gen, size_t n) {
    ck_assert_uint_eq(gen->prompt_logprobs.len, n * sizeof(struct ft_logprobs));
    return (const struct ft_logprobs *)(const void *)gen->prompt_logprobs.ptr;
}

/* The log-probability that generation gives a token is the one that a prompt with it has. */
START_TEST(prompt_logprobs_are_those_of_the_same_text_generated) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_model("r7"),
        .draft_dir = ft_fixture_model("r7n"),
        .args = {{"--max_num_batched_tokens=64"},
                 {"--max_num_batched_tokens=64"},
                 {"--max_num_batched_tokens=64"}},
    };
    int32_t ids[201] = {'q'};
    cluster_start(&g_cluster, &opts);
    struct ft_wire_generate request = with_logprobs("q", 200, 4, 4);
    request.params.ignore_eos = true;
    run_ok(&request, &g_other);
    ck_assert_uint_eq(g_other.n_ids, 200);
    memcpy(ids + 1, g_other.ids, 200 * sizeof *ids);
    request.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = ids, .n_ids = 201};
    request.params.max_tokens = 3;
    request.params.has_prompt_logprobs = true;
    request.params.prompt_logprobs = 4;
    for (int round = 0; round < 2; round++) { /* the second finds the prefix in the cache */
        run_ok(&request, &g_gen);
        ck_assert_mem_eq(prompt_logprobs(&g_gen, 200), g_other.logprobs.ptr, g_other.logprobs.len);
        ck_assert_uint_eq(g_gen.logprobs.len, 3 * sizeof(struct ft_logprobs));
        gen_fini(&g_gen);
    }
    request.params.prompt_logprobs = 0; /* without alternatives, beside neighbours */
    struct gen *both[] = {&g_gen, &(struct gen){0}};
    gen_start(&g_cluster, &request, both[0]);
    gen_start(&g_cluster, &request, both[1]);
    gen_wait(&g_cluster, both, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(both[i]->status.code, 0);
        for (size_t j = 0; j < 200; j++) {
            const struct ft_logprobs *row = prompt_logprobs(both[i], 200) + j;
            ck_assert_int_eq(row->n_top, 0);
            ck_assert_float_eq(row->token_logprob, gen_logprobs(&g_other, j)->token_logprob);
        }
        gen_fini(both[i]);
    }
    gen_fini(&g_other);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(prompt_of_one_token_has_no_logprobs) {
    cluster_start_pair(&g_cluster, "iid", "iid-draft", "--allow_lossy=true");
    struct ft_wire_generate request = gen_text("a", 5, 4);
    request.params.has_prompt_logprobs = true;
    request.params.prompt_logprobs = 2;
    run_ok(&request, &g_gen);
    ck_assert_uint_eq(g_gen.prompt_logprobs.len, 0);
    ck_assert_uint_eq(g_gen.logprobs.len, 0);
    gen_fini(&g_gen);
    request.input.text = ft_str_c("ab");
    run_ok(&request, &g_gen);
    ck_assert_double_eq_tol((double)prompt_logprobs(&g_gen, 1)->token_logprob, -0.40761, 1e-4);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

static void require_prompt_ids(const struct gen *gen, const char *text) {
    ck_assert_uint_eq(gen->prompt_ids.len, strlen(text) * sizeof(int32_t));
    const int32_t *ids = (const int32_t *)(const void *)gen->prompt_ids.ptr;
    for (size_t i = 0; text[i] != 0; i++)
        ck_assert_int_eq(ids[i], text[i]);
}

START_TEST(prompt_is_echoed_and_truncated) {
    static char text[6001];
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", "--allow_lossy=true");
    struct ft_wire_generate request = gen_text("edcba", 5, 4);
    request.return_prompt_token_ids = true;
    for (int stream = 0; stream < 2; stream++) {
        request.stream = stream;
        run_ok(&request, &g_gen);
        require_prompt_ids(&g_gen, "edcba");
        gen_fini(&g_gen);
    }
    request.params.has_truncate_prompt_tokens = true;
    request.params.truncate_prompt_tokens = 2;
    run_ok(&request, &g_gen);
    require_prompt_ids(&g_gen, "ba");
    ck_assert_uint_eq(g_gen.usage.prompt_tokens, 2);
    gen_fini(&g_gen);
    request.params.truncate_prompt_tokens = 100; /* more than there is */
    run_ok(&request, &g_gen);
    require_prompt_ids(&g_gen, "edcba");
    gen_fini(&g_gen);
    memset(text, 'x', 6000); /* longer than the context, as text and as ids */
    memcpy(text + 5997, "cba", 3);
    request.input.text = ft_str_c(text);
    request.params.truncate_prompt_tokens = 3;
    run_ok(&request, &g_gen);
    require_prompt_ids(&g_gen, "cba");
    ck_assert_int_eq(g_gen.ids[0], 'b');
    gen_fini(&g_gen);
    static int32_t ids[6000];
    for (int i = 0; i < 6000; i++)
        ids[i] = text[i];
    request.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = ids, .n_ids = 6000};
    run_ok(&request, &g_gen);
    require_prompt_ids(&g_gen, "cba");
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_logprobs");
    TCase *tc = tcase_create("logprobs");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, dev48_every_token_has_the_logprob_of_its_own_row);
    tcase_add_test(tc, dev69_logprobs_are_of_the_raw_logits_whatever_the_sampling);
    tcase_add_test(tc, logprobs_do_not_depend_on_speculation);
    tcase_add_test(tc, prompt_logprobs_are_those_of_the_same_text_generated);
    tcase_add_test(tc, prompt_of_one_token_has_no_logprobs);
    tcase_add_test(tc, prompt_is_echoed_and_truncated);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
