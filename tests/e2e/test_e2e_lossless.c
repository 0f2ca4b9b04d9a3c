/* Greedy text is the same with speculation on or off, at any K, alone or in a batch; and it is what
 * transformers computes for the reference prompts. */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { BATCH = 16 };

static struct cluster g_cluster;
static struct gen g_gen, g_plain, g_gens[BATCH];

static void require_ok(const struct gen *gen) {
    gen_require_ok(gen);
    ck_assert(!gen->bad_utf8);
}

static void require_same(const struct gen *got, const struct gen *expected, const char *what) {
    gen_require_same(got, expected, what);
    ck_assert(!got->bad_utf8);
    ck_assert_msg(ft_str_eq(ft_buf_str(&got->text), ft_buf_str(&expected->text)), "%s: the text",
                  what);
}

/* 60 letters of the cycle that follow `a`. */
static void require_cycle(const struct gen *gen, size_t n) {
    require_ok(gen);
    ck_assert_uint_eq(gen->n_ids, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(gen->ids[i], "bcdea"[i % 5]);
}

START_TEST(dev01_rejection_takes_the_token_of_its_own_row) {
    static const int ks[] = {0, 1, 2, 3, 4, 8};
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft", NULL);
    for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
        struct ft_wire_generate request = gen_text("a", 60, ks[i]);
        gen_run(&g_cluster, &request, &g_gen);
        require_cycle(&g_gen, 60);
        gen_fini(&g_gen);
        for (uint64_t seed = 0; seed < 20; seed++) {
            request.params.temperature = 1.0f;
            request.params.has_seed = true;
            request.params.seed = seed;
            gen_run(&g_cluster, &request, &g_gen);
            require_cycle(&g_gen, 60);
            gen_fini(&g_gen);
        }
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev03_greedy_equals_plain_for_every_k_and_prompt_length) {
    static const int ks[] = {1, 2, 3, 5, 8};
    char prompt[48];
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    for (int len = 1; len <= 40; len += 3) {
        for (int i = 0; i < len; i++)
            prompt[i] = (char)('a' + (i * 7 + len) % 26);
        prompt[len] = 0;
        struct ft_wire_generate request = gen_text(prompt, 100, 0);
        request.params.ignore_eos = true;
        gen_run(&g_cluster, &request, &g_plain);
        require_ok(&g_plain);
        ck_assert_uint_eq(g_plain.n_ids, 100);
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
            request.num_speculative_tokens = (uint32_t)ks[i];
            gen_run(&g_cluster, &request, &g_gen);
            require_same(&g_gen, &g_plain, prompt);
            ck_assert_uint_gt(g_gen.spec.num_accepted_tokens, 0);
            gen_fini(&g_gen);
        }
        gen_fini(&g_plain);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(r7_greedy_equals_the_double_precision_reference) {
    static const int32_t expected[] = {133, 73,  241, 192, 242, 211, 118, 66,  241, 206, 21,
                                       214, 4,   28,  113, 154, 243, 206, 236, 177, 3,   89,
                                       6,   242, 183, 11,  21,  72,  152, 257, 107, 64};
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    struct ft_wire_generate request = gen_text("abc", 32, 4);
    request.params.ignore_eos = true;
    gen_run(&g_cluster, &request, &g_gen);
    require_ok(&g_gen);
    ck_assert_uint_eq(g_gen.n_ids, 32);
    ck_assert_mem_eq(g_gen.ids, expected, sizeof expected);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

/* Sixteen requests of different lengths in flight, with different K, each against its solo plain
 * run. */
static void require_batch(const char *prompts[BATCH], uint32_t n_step) {
    static struct gen solo[BATCH];
    struct gen *all[BATCH];
    struct ft_wire_generate requests[BATCH];
    for (int i = 0; i < BATCH; i++) {
        requests[i] = gen_text(prompts[i], 1 + (uint32_t)i * n_step, 0);
        requests[i].params.ignore_eos = true;
        gen_run(&g_cluster, &requests[i], &solo[i]);
        require_ok(&solo[i]);
        all[i] = &g_gens[i];
    }
    for (int i = 0; i < BATCH; i++) {
        requests[i].num_speculative_tokens = (uint32_t)(i % 3 == 0 ? 4 : i % 9);
        gen_start(&g_cluster, &requests[i], &g_gens[i]);
    }
    gen_wait(&g_cluster, all, BATCH);
    for (int i = 0; i < BATCH; i++) {
        require_same(&g_gens[i], &solo[i], prompts[i]);
        gen_fini(&g_gens[i]);
        gen_fini(&solo[i]);
    }
}

START_TEST(dev05_batch_of_different_lengths_equals_solo) {
    static char text[BATCH][320];
    const char *prompts[BATCH];
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    for (int i = 0; i < BATCH; i++) {
        int len = 1 + i * 19;
        for (int j = 0; j < len; j++)
            text[i][j] = (char)('a' + (i * 5 + j * 11) % 26);
        prompts[i] = text[i];
    }
    require_batch(prompts, 12);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev18_full_acceptance_leaves_no_hole_in_the_draft) {
    static const int lengths[] = {1, 15, 16, 17, 200};
    char prompt[256];
    cluster_start_pair(&g_cluster, "r7", "r7", NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int k = 1; k <= 8; k++) {
            memset(prompt, 'q', sizeof prompt);
            prompt[lengths[i]] = 0;
            struct ft_wire_generate request = gen_text(prompt, 128, k);
            request.params.ignore_eos = true;
            gen_run(&g_cluster, &request, &g_gen);
            require_ok(&g_gen);
            ck_assert_msg(g_gen.spec.num_accepted_tokens == g_gen.spec.num_draft_tokens,
                          "prompt of %d, K %d: %llu of %llu accepted", lengths[i], k,
                          (unsigned long long)g_gen.spec.num_accepted_tokens,
                          (unsigned long long)g_gen.spec.num_draft_tokens);
            gen_fini(&g_gen);
        }
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev20_draft_context_shorter_than_the_targets_stops_drafting) {
    cluster_start_pair(&g_cluster, "r7", "r7n+ctx=256", NULL);
    char prompt[301];
    static const int lengths[] = {200, 300};
    for (int i = 0; i < 2; i++) {
        memset(prompt, 'k', sizeof prompt);
        prompt[lengths[i]] = 0;
        struct ft_wire_generate request = gen_text(prompt, 200, 0);
        request.params.ignore_eos = true;
        gen_run(&g_cluster, &request, &g_plain);
        request.num_speculative_tokens = 8;
        gen_run(&g_cluster, &request, &g_gen);
        require_same(&g_gen, &g_plain, "short draft context");
        if (lengths[i] == 300)
            ck_assert_uint_eq(g_gen.spec.num_draft_tokens, 0);
        else
            ck_assert_uint_gt(g_gen.spec.num_plain_steps, 100);
        gen_fini(&g_gen);
        gen_fini(&g_plain);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev07_padded_vocabularies_work_and_foreign_ids_are_safe) {
    cluster_start_pair(&g_cluster, "cyc", "cyc-draft+vocab=320", NULL);
    struct ft_wire_generate request = gen_text("a", 60, 4);
    gen_run(&g_cluster, &request, &g_gen);
    require_cycle(&g_gen, 60);
    gen_fini(&g_gen);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev64_plain_rounds_then_drafting_catches_up) {
    cluster_start_pair(&g_cluster, "r7", "r7", NULL);
    struct ft_wire_generate request = gen_text("hello there", 64, 0);
    request.params.ignore_eos = true;
    gen_run(&g_cluster, &request, &g_plain);
    struct ft_wire_stats before = cluster_stats(&g_cluster);
    /* The continuation as prompt: the draft meets 75 tokens at once and drafts perfectly. */
    static int32_t ids[128];
    size_t n = 0;
    for (const char *p = "hello there"; *p; p++)
        ids[n++] = *p;
    memcpy(ids + n, g_plain.ids, g_plain.n_ids * sizeof ids[0]);
    n += g_plain.n_ids;
    request.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = ids, .n_ids = n};
    request.num_speculative_tokens = 4;
    request.params.max_tokens = 41;
    gen_run(&g_cluster, &request, &g_gen);
    require_ok(&g_gen);
    ck_assert_uint_eq(g_gen.spec.num_accepted_tokens, g_gen.spec.num_draft_tokens);
    struct ft_wire_stats after = cluster_stats(&g_cluster);
    ck_assert_uint_le(after.draft.steps - before.draft.steps, g_gen.spec.num_drafts);
    gen_fini(&g_gen);
    gen_fini(&g_plain);
    cluster_stop(&g_cluster);
}
END_TEST

/* ---- references ------------------------------------------------------------------------------ */

static void require_prompt(json_t *prompt, const char *what) {
    static int32_t ids[1024], expected[512];
    size_t n = 0, n_expected = 0, i;
    json_t *item;
    json_array_foreach(json_object_get(prompt, "prompt_ids"), i, item) ids[n++] =
        (int32_t)json_integer_value(item);
    json_t *target = json_object_get(prompt, "target");
    json_array_foreach(json_object_get(target, "greedy_ids"), i, item) expected[n_expected++] =
        (int32_t)json_integer_value(item);
    /* Below this another order of summation may rightly choose the other token. */
    bool close_call = json_number_value(json_object_get(target, "min_margin")) < 0.005;
    for (int k = 0; k <= 8; k++) {
        struct ft_wire_generate request = gen_request();
        request.input = (struct ft_wire_prompt){.kind = FT_WIRE_INPUT_IDS, .ids = ids, .n_ids = n};
        request.params.has_max_tokens = true;
        request.params.max_tokens = (uint32_t)n_expected;
        request.params.ignore_eos = true;
        request.num_speculative_tokens = (uint32_t)k;
        struct gen *gen = k == 0 ? &g_plain : &g_gen;
        gen_run(&g_cluster, &request, gen);
        require_ok(gen);
        ck_assert_uint_eq(gen->n_ids, n_expected);
        if (k > 0)
            require_same(gen, &g_plain, what);
        else if (!close_call)
            ck_assert_msg(memcmp(gen->ids, expected, n_expected * sizeof expected[0]) == 0,
                          "%s: plain decoding differs from the reference", what);
        if (k > 0)
            gen_fini(gen);
    }
    gen_fini(&g_plain);
}

static void require_reference(const char *file) {
    json_t *root = ft_fixture_json(ft_fixture_source("tests/data"), file);
    json_t *prompts = json_object_get(root, "prompts"), *prompt;
    const char *texts[BATCH];
    size_t i, n_texts = 0;
    json_array_foreach(prompts, i, prompt) {
        require_prompt(prompt, file);
        if (n_texts < BATCH)
            texts[n_texts++] = json_string_value(json_object_get(prompt, "prompt_text"));
    }
    ck_assert_uint_ge(i, 8);
    for (size_t j = n_texts; j < BATCH; j++)
        texts[j] = texts[j % n_texts];
    require_batch(texts, 8);
    json_decref(root);
}

START_TEST(demo_reference_prompts_are_equal_at_every_k) {
    struct cluster_opts opts = {
        .target_dir = ft_fixture_source("models/demo-target"),
        .draft_dir = ft_fixture_source("models/demo-draft"),
    };
    cluster_start(&g_cluster, &opts);
    require_reference("demo-reference.json");
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(bench_reference_prompts_are_equal_at_every_k) {
    const char *target = ft_fixture_bench_model("bench-target");
    if (target == NULL)
        return; /* the fixture said so */
    struct cluster_opts opts = {.target_dir = target,
                                .draft_dir = ft_fixture_bench_model("bench-draft")};
    cluster_start(&g_cluster, &opts);
    require_reference("bench-reference.json");
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_lossless");
    TCase *tc = tcase_create("lossless");
    tcase_set_timeout(tc, 500);
    tcase_add_test(tc, dev01_rejection_takes_the_token_of_its_own_row);
    tcase_add_test(tc, dev03_greedy_equals_plain_for_every_k_and_prompt_length);
    tcase_add_test(tc, r7_greedy_equals_the_double_precision_reference);
    tcase_add_test(tc, dev05_batch_of_different_lengths_equals_solo);
    tcase_add_test(tc, dev18_full_acceptance_leaves_no_hole_in_the_draft);
    tcase_add_test(tc, dev20_draft_context_shorter_than_the_targets_stops_drafting);
    tcase_add_test(tc, dev07_padded_vocabularies_work_and_foreign_ids_are_safe);
    tcase_add_test(tc, dev64_plain_rounds_then_drafting_catches_up);
    suite_add_tcase(suite, tc);
    TCase *demo = tcase_create("demo_pair");
    tcase_set_timeout(demo, 500);
    tcase_add_test(demo, demo_reference_prompts_are_equal_at_every_k);
    suite_add_tcase(suite, demo);
    TCase *bench = tcase_create("bench_pair");
    tcase_set_timeout(bench, 1200);
    tcase_add_test(bench, bench_reference_prompts_are_equal_at_every_k);
    suite_add_tcase(suite, bench);
    return suite_run(suite);
}
