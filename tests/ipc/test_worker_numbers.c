/* Real models in real workers: what the rows hold, whatever way they came about. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/rule.h"
#include "common/spec/transform.h"
#include "ipc/worker_client.h"
#include "ipc/worker_process.h"
#include "support/fixtures.h"
#include "support/suite.h"

enum { VOCAB = 264, LEN = 200 };

/* What memory may grow by between request 200 and the last. Sanitizers keep what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RESIDENT_SLACK (UINT64_C(1) << 30)
#else
#define RESIDENT_SLACK (UINT64_C(5) << 20)
#endif

/* Greedy continuation of 97 98 99 by r7 in double precision; smallest gap of two logits 0.043. */
static const int32_t k_prompt[3] = {97, 98, 99};
static const int32_t k_r7[32] = {133, 73,  241, 192, 242, 211, 118, 66,  241, 206, 21,
                                 214, 4,   28,  113, 154, 243, 206, 236, 177, 3,   89,
                                 6,   242, 183, 11,  21,  72,  152, 257, 107, 64};

struct pair {
    struct worker_process process;
    struct worker_client client;
};

static void start(struct pair *p, const char *role, const char *model, const char *const *args) {
    worker_process_init(&p->process, role);
    int status = worker_process_start(&p->process, model, args);
    ck_assert_msg(status == 0, "exit %d: %s", status, p->process.log);
    worker_client_open(&p->client, NULL, p->process.endpoint, role);
    worker_client_connect(&p->client);
}

static void stop(struct pair *p) {
    worker_client_close(&p->client);
    int status = worker_process_kill(&p->process, SIGTERM);
    ck_assert_msg(status == 0, "exit %d: %s", status, p->process.log);
    worker_process_end(&p->process);
}

static int32_t argmax(const float *row, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

static const char *const k_args[] = {"--kv_cache_bytes=8Mi", "--num_threads=1", NULL};

START_TEST(target_continues_as_the_reference_says) {
    struct pair t;
    start(&t, "target", ft_fixture_model("r7"), k_args);
    int32_t x[LEN], n = 3;
    memcpy(x, k_prompt, sizeof k_prompt);
    uint32_t keep = 0;
    for (int i = 0; i < 32; i++) {
        struct ft_wire_seq_step s = {1, keep, x + keep, (size_t)n - keep, .n_logits = 1};
        const struct ft_wire_seq_result *r = worker_client_step(&t.client, &s, 1);
        ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
        keep = r->cached;
        x[n] = argmax(worker_client_row(&t.client, r, 0), VOCAB);
        ck_assert_int_eq(x[n], k_r7[i]);
        n++;
    }
    stop(&t);
}
END_TEST

/* Speculation between two real workers with the same weights: every draft is what the target wants,
 * for every K and across block boundaries. */
START_TEST(dev18_same_model_accepts_every_greedy_draft) {
    struct pair t, d;
    start(&t, "target", ft_fixture_model("r7"), k_args);
    start(&d, "draft", ft_fixture_model("r7"), k_args);
    for (uint32_t k = 1; k <= 8; k++) {
        int32_t x[LEN], n = 3;
        memcpy(x, k_prompt, sizeof k_prompt);
        uint32_t held = 0;
        while (n < 120) {
            struct ft_wire_seq_step draft = {k, held, x + held, (size_t)n - held, .draft_len = k};
            const struct ft_wire_seq_result *r = worker_client_step(&d.client, &draft, 1);
            ck_assert_uint_eq(r->n_draft_ids, k);
            memcpy(x + n, r->draft_ids, k * sizeof *x);
            held = r->cached;
            uint32_t keep = n == 3 ? 0 : (uint32_t)n - 1;
            struct ft_wire_seq_step verify = {k, keep, x + keep, (size_t)n + k - keep,
                                              .n_logits = k + 1};
            r = worker_client_step(&t.client, &verify, 1);
            ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
            for (uint32_t i = 0; i < k; i++)
                ck_assert_int_eq(argmax(worker_client_row(&t.client, r, (int32_t)i), VOCAB),
                                 x[n + (int32_t)i]);
            int32_t bonus = argmax(worker_client_row(&t.client, r, (int32_t)k), VOCAB);
            n += (int32_t)k;
            x[n++] = bonus;
        }
        for (int32_t i = 0; i < 32; i++)
            ck_assert_int_eq(x[3 + i], k_r7[i]);
    }
    stop(&d);
    stop(&t);
}
END_TEST

/* Bits of a row by every way to get there. */
static void rows_are_bitwise_the_same(const char *model, int32_t vocab, const char *const *args) {
    struct pair t;
    static float want[LEN][8192];
    int32_t x[LEN];
    unsigned seed = 4;
    for (int32_t i = 0; i < LEN; i++)
        x[i] = (int32_t)((unsigned)rand_r(&seed) % 250);
    start(&t, "target", model,
          (const char *[]){"--kv_cache_bytes=64Mi", "--num_threads=2", "--no-enable_prefix_caching",
                           "--max_step_rows=400", NULL});
    struct ft_wire_seq_step all = {1, 0, x, LEN, .n_logits = LEN};
    const struct ft_wire_seq_result *r = worker_client_step(&t.client, &all, 1);
    ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
    for (int32_t i = 0; i < LEN; i++)
        memcpy(want[i], worker_client_row(&t.client, r, i), (size_t)vocab * sizeof(float));
    stop(&t);

    start(&t, "target", model, args);
    for (int round = 0; round < 60; round++) {
        /* Up to eight sequences in chunks of their own; those of even rounds meet the cache. */
        struct ft_wire_seq_step steps[8];
        static int32_t len[8];
        size_t n = 1 + (size_t)rand_r(&seed) % 8;
        if (round % 10 == 0)
            memset(len, 0, sizeof len);
        for (size_t i = 0; i < n; i++) {
            int32_t size = 1 + (int32_t)((unsigned)rand_r(&seed) % 40);
            if (len[i] + size > LEN)
                len[i] = 0;
            steps[i] = (struct ft_wire_seq_step){
                i + 10 * (uint64_t)(round / 10), (uint32_t)len[i], x + len[i], (size_t)size,
                .n_logits = (uint32_t)rand_r(&seed) % ((unsigned)size + 1)};
            len[i] += size;
        }
        r = worker_client_step(&t.client, steps, n);
        for (size_t i = 0; i < n; i++) {
            ck_assert_msg(r[i].status == FT_WIRE_SEQ_OK, "%.*s", (int)r[i].detail.len,
                          r[i].detail.ptr);
            int32_t first = (int32_t)(r[i].cached - r[i].n_rows);
            for (int32_t k = 0; k < (int32_t)r[i].n_rows; k++)
                ck_assert_msg(memcmp(worker_client_row(&t.client, &r[i], k), want[first + k],
                                     (size_t)vocab * sizeof(float)) == 0,
                              "round %d, position %d", round, first + k);
        }
    }
    stop(&t);
}

START_TEST(dev50_rows_are_bitwise_the_same_for_any_chunk_batch_and_cache) {
    const char *const paged[] = {"--kv_cache_bytes=64Mi", "--num_threads=1", "--max_step_rows=400",
                                 NULL};
    const char *const slotted[] = {"--kv_cache_bytes=64Mi",
                                   "--num_threads=1",
                                   "--max_step_rows=400",
                                   "--max_model_len=200",
                                   "--kv_layout=slotted",
                                   "--no-enable_prefix_caching",
                                   NULL};
    rows_are_bitwise_the_same(ft_fixture_model("r7"), VOCAB, paged);
    rows_are_bitwise_the_same(ft_fixture_source("models/demo-draft"), 4096, paged);
    rows_are_bitwise_the_same(ft_fixture_source("models/demo-draft"), 4096, slotted);
}
END_TEST

/* q rows of a real draft equal the transform of the logits that a target makes of the same weights,
 * bit for bit, and the ids are drawn from them. */
START_TEST(dev02_sampled_rows_equal_the_transform_of_the_logits) {
    struct pair t, d;
    start(&t, "target", ft_fixture_model("r7"), k_args);
    start(&d, "draft", ft_fixture_model("r7"), k_args);
    struct ft_transform *transform = ft_transform_create(VOCAB);
    int32_t x[LEN];
    for (uint32_t round = 0; round < 10; round++) {
        int32_t n = 1 + (int32_t)round * 7;
        for (int32_t i = 0; i < n; i++)
            x[i] = (int32_t)((uint32_t)i * 31 + round) % 250;
        struct ft_wire_seq_step draft = {
            round, 0, x, (size_t)n, .draft_len = 5, .has_sampling = true};
        draft.sampling = ft_sampling_default();
        draft.sampling.temperature = 0.8f;
        draft.sampling.top_p = 0.9f;
        draft.sampling.seed = 1000 + round;
        const struct ft_wire_seq_result *rd = worker_client_step(&d.client, &draft, 1);
        ck_assert_uint_eq(rd->n_draft_ids, 5);
        ck_assert_uint_eq(rd->n_rows, 5);
        memcpy(x + n, rd->draft_ids, 5 * sizeof *x);
        struct ft_wire_seq_step verify = {round, 0, x, (size_t)n + 5, .n_logits = 6};
        const struct ft_wire_seq_result *rt = worker_client_step(&t.client, &verify, 1);
        for (int32_t i = 0; i < 5; i++) {
            float q[VOCAB];
            struct ft_row_context context = {
                .sampling = &draft.sampling, .drafted = x + n, .n_drafted = (size_t)i};
            ck_assert_int_eq(ft_transform_row(transform, worker_client_row(&t.client, rt, i), VOCAB,
                                              &context, q, NULL),
                             FT_OK);
            ck_assert(memcmp(q, worker_client_row(&d.client, rd, i), sizeof q) == 0);
            ck_assert_int_eq(ft_rule_propose(&draft.sampling, q, VOCAB, (uint64_t)(n + i), i),
                             x[n + i]);
        }
    }
    ft_transform_destroy(&transform);
    stop(&d);
    stop(&t);
}
END_TEST

START_TEST(dev17_nan_of_a_real_model_fails_its_own_sequence) {
    struct pair t, d;
    start(&t, "target", ft_fixture_model("nant"), k_args);
    start(&d, "draft", ft_fixture_model("nant"), k_args);
    int32_t good[1] = {'a'}, bad[2] = {'a', 'z'};
    struct ft_wire_seq_step steps[3] = {{1, 0, good, 1, .n_logits = 1},
                                        {2, 0, bad, 2, .n_logits = 1},
                                        {3, 0, good, 1, .n_logits = 1}};
    const struct ft_wire_seq_result *r = worker_client_step(&t.client, steps, 3);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_NUMERIC);
    ck_assert_int_eq(argmax(worker_client_row(&t.client, &r[0], 0), 384), 'b');
    ck_assert_int_eq(argmax(worker_client_row(&t.client, &r[2], 0), 384), 'b');
    for (int i = 0; i < 3; i++) {
        steps[i].n_logits = 0;
        steps[i].draft_len = 3;
    }
    r = worker_client_step(&d.client, steps, 3);
    ck_assert_int_eq(r[1].status, FT_WIRE_SEQ_NUMERIC);
    ck_assert_int_eq(r[0].draft_ids[2], 'd');
    ck_assert_int_eq(r[2].draft_ids[2], 'd');
    stop(&d);
    stop(&t);
}
END_TEST

/* Many requests with speculation, rollbacks and releases: nothing may be left behind. */
START_TEST(dev41_blocks_and_memory_come_back) {
    struct pair d;
    /* A pool that is touched all over before the first look at the memory. */
    start(&d, "draft", ft_fixture_model("r7n"),
          (const char *[]){"--kv_cache_bytes=1Mi", "--num_threads=1", NULL});
    unsigned seed = 8;
    uint64_t resident = 0; /* after 200 requests */
    int32_t ids[64];
    for (int32_t i = 0; i < 64; i++)
        ids[i] = (int32_t)((unsigned)rand_r(&seed) % 250);
    for (uint64_t request = 1; request <= 600; request++) {
        uint32_t held = 0;
        size_t n = 1 + (size_t)rand_r(&seed) % 40;
        for (int round = 0; round < 3; round++) {
            struct ft_wire_seq_step s = {request, held, ids + held, n - held,
                                         .draft_len = (uint32_t)rand_r(&seed) % 9};
            const struct ft_wire_seq_result *r = worker_client_step(&d.client, &s, 1);
            ck_assert_int_eq(r->status, FT_WIRE_SEQ_OK);
            held = (uint32_t)n - (uint32_t)rand_r(&seed) % (uint32_t)n;
            n += 1 + (size_t)rand_r(&seed) % 3;
        }
        ck_assert_int_eq(worker_client_release(&d.client, &request, 1).code, 0);
        if (request == 200)
            resident = worker_client_stats(&d.client).resident_bytes;
    }
    struct ft_wire_worker_stats stats = worker_client_stats(&d.client);
    ck_assert_uint_gt(resident, 0);
    ck_assert_uint_eq(stats.sequences, 0);
    ck_assert_uint_eq(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
    ck_assert_msg(stats.resident_bytes < resident + RESIDENT_SLACK, "resident: %llu then %llu",
                  (unsigned long long)resident, (unsigned long long)stats.resident_bytes);
    stop(&d);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_numbers");
    TCase *tc = tcase_create("worker_numbers");
    tcase_add_test(tc, target_continues_as_the_reference_says);
    tcase_add_test(tc, dev18_same_model_accepts_every_greedy_draft);
    tcase_add_test(tc, dev50_rows_are_bitwise_the_same_for_any_chunk_batch_and_cache);
    tcase_add_test(tc, dev02_sampled_rows_equal_the_transform_of_the_logits);
    tcase_add_test(tc, dev17_nan_of_a_real_model_fails_its_own_sequence);
    tcase_add_test(tc, dev41_blocks_and_memory_come_back);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
