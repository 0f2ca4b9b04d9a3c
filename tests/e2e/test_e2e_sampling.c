/* Sampling end to end: the distribution of what is emitted is the target's, whatever the draft, K
 * and the other requests; a seed means what it says; penalties count right inside a block. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "support/cluster.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { TOGETHER = 32, POSITIONS = 4 };

static struct cluster g_cluster;
static struct gen g_gen, g_other;
static struct gen g_gens[TOGETHER];

/* Counts of b, c, d, others at each position over seeds first .. first + n - 1. */
static void sample(struct ft_wire_generate request, uint64_t first, int n,
                   double counts[POSITIONS][4], struct ft_wire_spec_stats *spec) {
    memset(counts, 0, sizeof(double[POSITIONS][4]));
    request.params.max_tokens = POSITIONS;
    request.params.has_seed = true;
    for (int done = 0; done < n; done += TOGETHER) {
        struct gen *all[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            all[i] = &g_gens[i];
            request.params.seed = first + (uint64_t)(done + i);
            gen_start(&g_cluster, &request, all[i]);
        }
        gen_wait(&g_cluster, all, TOGETHER);
        for (int i = 0; i < TOGETHER; i++) {
            gen_require_ok(all[i]);
            ck_assert_uint_eq(all[i]->n_ids, POSITIONS);
            for (int p = 0; p < POSITIONS; p++) {
                int32_t id = all[i]->ids[p];
                counts[p][id >= 'b' && id <= 'd' ? id - 'b' : 3] += 1;
            }
            spec->num_draft_tokens += all[i]->spec.num_draft_tokens;
            spec->num_accepted_tokens += all[i]->spec.num_accepted_tokens;
            spec->num_drafts += all[i]->spec.num_drafts;
            gen_fini(all[i]);
        }
    }
}

/* Chi-square of one position against p of b, c, d; 13.82 and 10.83 are the 0.1 % points for two
 * and one degrees of freedom. Impossible tokens must not occur at all. */
static void require_distribution(double counts[POSITIONS][4], const double p[3], const char *what) {
    for (int at = 0; at < POSITIONS; at++) {
        double n = 0, chi = 0;
        int degrees = -1;
        for (int i = 0; i < 4; i++)
            n += counts[at][i];
        for (int i = 0; i < 3; i++) {
            if (p[i] <= 0) {
                ck_assert_msg(counts[at][i] < 1, "%s: an impossible token at %d", what, at);
                continue;
            }
            degrees++;
            chi += (counts[at][i] - n * p[i]) * (counts[at][i] - n * p[i]) / (n * p[i]);
        }
        ck_assert_msg(counts[at][3] < 1, "%s: another token at position %d", what, at);
        double limit = degrees == 2 ? 13.82 : 10.83;
        ck_assert_msg(degrees <= 0 || chi < limit, "%s, position %d: chi-square %.1f, limit %.1f",
                      what, at, chi, limit);
    }
}

/* softmax of (2, 1, 0) / temperature over the first n_kept tokens */
static void expected(double temperature, int n_kept, double p[3]) {
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += p[i] = i < n_kept ? exp((2.0 - i) / temperature) : 0;
    for (int i = 0; i < 3; i++)
        p[i] /= sum;
}

/* Draws a case: FORETOKEN_TEST_DRAWS, 20,000 in the slow run; a small bias needs the large number,
 * the failures that other projects had show in the small one. */
static int n_draws(void) {
    const char *text = getenv("FORETOKEN_TEST_DRAWS");
    return text != NULL ? atoi(text) : 1000;
}

START_TEST(dev02_every_position_has_the_targets_distribution) {
    static const int ks[] = {1, 2, 4};
    static const struct {
        const char *what;
        float temperature, top_p, min_p;
        int32_t top_k;
        int n_kept;
    } rows[] = {
        {"T=1", 1.0f, 1.0f, 0.0f, 0, 3},       {"T=0.5", 0.5f, 1.0f, 0.0f, 0, 3},
        {"T=1.5", 1.5f, 1.0f, 0.0f, 0, 3},     {"top_k=2", 1.0f, 1.0f, 0.0f, 2, 2},
        {"top_p=0.7", 1.0f, 0.7f, 0.0f, 0, 2}, {"min_p=0.2", 1.0f, 1.0f, 0.2f, 0, 2},
    };
    cluster_start_pair(&g_cluster, "iid", "iid-draft", NULL);
    size_t row = (size_t)_i / 3;
    int k = ks[_i % 3];
    struct ft_wire_generate request = gen_text("a", POSITIONS, k);
    request.stream = false;
    request.params.temperature = rows[row].temperature;
    request.params.has_top_p = true;
    request.params.top_p = rows[row].top_p;
    request.params.min_p = rows[row].min_p;
    request.params.top_k = rows[row].top_k;
    double counts[POSITIONS][4], p[3];
    char what[64];
    struct ft_wire_spec_stats spec = {0};
    snprintf(what, sizeof what, "K=%d %s", k, rows[row].what);
    sample(request, 1000000u * (uint64_t)(_i + 1), n_draws(), counts, &spec);
    expected((double)rows[row].temperature, rows[row].n_kept, p);
    require_distribution(counts, p, what);
    ck_assert_uint_gt(spec.num_draft_tokens, 0);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev65_sampled_acceptance_is_what_theory_says) {
    cluster_start_pair(&g_cluster, "iid", "iid-draft", NULL);
    struct ft_wire_generate request = gen_text("a", 1000, 4);
    request.params.temperature = 1.0f;
    request.params.has_seed = true;
    double drafts = 0, drafted = 0, accepted = 0, first = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        request.params.seed = seed;
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        drafts += (double)g_gen.spec.num_drafts;
        drafted += (double)g_gen.spec.num_draft_tokens;
        accepted += (double)g_gen.spec.num_accepted_tokens;
        first += (double)g_gen.spec.accepted_per_pos[0];
        gen_fini(&g_gen);
    }
    ck_assert_msg(fabs(accepted / drafted - 0.1786) < 0.01, "rate %f", accepted / drafted);
    ck_assert_msg(fabs(accepted / drafts - 0.7145) < 0.04, "per round %f", accepted / drafts);
    ck_assert_msg(fabs(first / drafts - 0.42479) < 0.025, "first %f", first / drafts);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev49_a_seed_gives_the_same_text_alone_and_in_company) {
    struct gen *all[TOGETHER];
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    struct ft_wire_generate request = gen_text("the seed", 64, 4);
    request.params.temperature = 1.0f;
    request.params.ignore_eos = true;
    request.params.has_seed = true;
    request.params.seed = 42;
    gen_run(&g_cluster, &request, &g_other);
    gen_require_ok(&g_other);
    for (int trial = 0; trial < 4; trial++) {
        for (int i = 0; i < 15; i++) { /* neighbours */
            struct ft_wire_generate noise = gen_text("noise", 20 + (uint32_t)i, i % 5);
            noise.params.temperature = 1.3f;
            all[i] = &g_gens[i];
            gen_start(&g_cluster, &noise, all[i]);
        }
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_same(&g_gen, &g_other, "under load");
        gen_wait(&g_cluster, all, 15);
        for (int i = 0; i < 15; i++)
            gen_fini(all[i]);
        gen_fini(&g_gen);
    }
    static const uint64_t others[] = {43, 0, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        request.params.seed = others[i];
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        ck_assert_int_ne(memcmp(g_gen.ids, g_other.ids, 64 * sizeof g_gen.ids[0]), 0);
        gen_fini(&g_gen);
    }
    cluster_stop(&g_cluster);
    /* After a restart as well. */
    cluster_start_pair(&g_cluster, "r7", "r7n", NULL);
    request.params.seed = 42;
    gen_run(&g_cluster, &request, &g_gen);
    gen_require_same(&g_gen, &g_other, "after a restart");
    gen_fini(&g_gen);
    gen_fini(&g_other);
    cluster_stop(&g_cluster);
}
END_TEST

static void require_letters(const struct ft_wire_generate *request, const char *letters) {
    gen_run(&g_cluster, request, &g_gen);
    gen_require_ok(&g_gen);
    ck_assert_msg(ft_str_eq(ft_buf_str(&g_gen.text), ft_str_c(letters)), "'%.*s', not '%s'",
                  (int)g_gen.text.len, g_gen.text.ptr, letters);
    gen_fini(&g_gen);
}

START_TEST(dev10_dev19_dev45_penalties_count_exactly_at_every_row) {
    static const char *const drafts[] = {"pen", "pen-swap", "pen-b"};
    cluster_start_pair(&g_cluster, "pen", drafts[_i], NULL);
    for (int k = 0; k <= 8; k++) {
        struct ft_wire_generate request = gen_text("a", 12, k);
        request.params.has_repetition_penalty = true;
        request.params.repetition_penalty = 2.0f;
        require_letters(&request, "bcdbbbbbbbbb");
        request.input.text = ft_str_c("bbb");
        request.params.max_tokens = 1;
        require_letters(&request, "c");
    }
    /* frequency: b at 4, then 4 - 1.5 = 2.5, c 3 -> c; ... the same at every K as at K = 0 */
    struct ft_wire_generate request = gen_text("a", 40, 0);
    request.params.frequency_penalty = 0.7f;
    request.params.presence_penalty = 0.4f;
    gen_run(&g_cluster, &request, &g_other);
    for (int k = 1; k <= 8; k++) {
        request.num_speculative_tokens = (uint32_t)k;
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_same(&g_gen, &g_other, "frequency and presence");
        gen_fini(&g_gen);
    }
    gen_fini(&g_other);
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev45_negative_logits_are_made_more_negative) {
    cluster_start_pair(&g_cluster, "neg", "neg", NULL);
    for (int k = 0; k <= 4; k += 2) {
        struct ft_wire_generate request = gen_text("a", 12, k);
        request.params.has_repetition_penalty = true;
        request.params.repetition_penalty = 2.0f;
        require_letters(&request, "bcbbbbbbbbbb");
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev46_dev47_extreme_parameters_are_defined) {
    static const float cold[] = {0.0f, 1e-45f, 1e-38f, 1e-6f, 1e-4f, 1e-2f};
    static const int32_t top_ks[] = {0, -1, 1, 2, 383, 384, 385, INT32_MAX};
    cluster_start_pair(&g_cluster, "iid", "iid-draft", NULL);
    for (size_t i = 0; i < 6; i++) {
        struct ft_wire_generate request = gen_text("a", 12, 4);
        request.params.temperature = cold[i];
        require_letters(&request, "bbbbbbbbbbbb");
    }
    for (size_t i = 0; i < 8; i++) {
        struct ft_wire_generate request = gen_text("a", 24, 4);
        request.params.temperature = 1.0f;
        request.params.top_k = top_ks[i];
        gen_run(&g_cluster, &request, &g_gen);
        gen_require_ok(&g_gen);
        for (size_t j = 0; j < g_gen.n_ids; j++) {
            int32_t most = top_ks[i] == 1 ? 'b' : top_ks[i] == 2 ? 'c' : 'd';
            ck_assert(g_gen.ids[j] >= 'b' && g_gen.ids[j] <= most);
        }
        gen_fini(&g_gen);
    }
    struct ft_wire_generate request = gen_text("a", 12, 4);
    request.params.temperature = 1.0f;
    request.params.has_top_p = true;
    request.params.top_p = 0.0f;
    require_letters(&request, "bbbbbbbbbbbb");
    request.params.top_p = 1e-9f;
    require_letters(&request, "bbbbbbbbbbbb");
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(dev16_equal_models_accept_nearly_everything) {
    static const float temperatures[] = {0.7f, 0.05f, 1e-4f};
    cluster_start_pair(&g_cluster, "r7", "r7", NULL);
    for (int t = 0; t < 3; t++) {
        uint64_t drafted = 0, accepted = 0;
        for (uint64_t seed = 0; seed < 40; seed++) {
            struct ft_wire_generate request = gen_text("abc", 64, 4);
            request.params.temperature = temperatures[t];
            request.params.ignore_eos = true;
            request.params.has_seed = true;
            request.params.seed = seed;
            gen_run(&g_cluster, &request, &g_gen);
            gen_require_ok(&g_gen);
            drafted += g_gen.spec.num_draft_tokens;
            accepted += g_gen.spec.num_accepted_tokens;
            gen_fini(&g_gen);
        }
        ck_assert_msg((double)accepted >= 0.99 * (double)drafted, "%llu of %llu",
                      (unsigned long long)accepted, (unsigned long long)drafted);
    }
    cluster_stop(&g_cluster);
}
END_TEST

START_TEST(logit_bias_moves_and_bans) {
    static const struct ft_bias bias[] = {{'b', -100.0f}, {'c', -100.0f}};
    cluster_start_pair(&g_cluster, "iid", "iid-draft", NULL);
    for (int k = 0; k <= 4; k += 2) {
        struct ft_wire_generate request = gen_text("a", 12, k);
        request.params.temperature = 1.0f;
        request.params.logit_bias = bias;
        request.params.n_logit_bias = 2;
        require_letters(&request, "dddddddddddd");
    }
    cluster_stop(&g_cluster);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_sampling");
    TCase *distribution = tcase_create("distribution");
    tcase_set_timeout(distribution, 1200);
    tcase_add_loop_test(distribution, dev02_every_position_has_the_targets_distribution, 0, 18);
    suite_add_tcase(suite, distribution);
    TCase *tc = tcase_create("sampling");
    tcase_set_timeout(tc, 550);
    tcase_add_test(tc, dev65_sampled_acceptance_is_what_theory_says);
    tcase_add_test(tc, dev49_a_seed_gives_the_same_text_alone_and_in_company);
    tcase_add_loop_test(tc, dev10_dev19_dev45_penalties_count_exactly_at_every_row, 0, 3);
    tcase_add_test(tc, dev45_negative_logits_are_made_more_negative);
    tcase_add_test(tc, dev46_dev47_extreme_parameters_are_defined);
    tcase_add_test(tc, dev16_equal_models_accept_nearly_everything);
    tcase_add_test(tc, logit_bias_moves_and_bans);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
