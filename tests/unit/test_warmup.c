/* Workers on a device that notes programs: what they note before service, that service finds it,
 * and that nothing else comes of it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/worker/step.h"
#include "draft_worker/draft.h"
#include "support/fixtures.h"
#include "support/noting_device.h"
#include "support/suite.h"
#include "target_worker/verify.h"

enum { VOCAB = 264, LEN = 1100, SEQS = 8, LINES = 16, LINE = 512 };

/* ---- what is freed: every free of this program comes here */

void __real_free(void *memory);
void __wrap_free(void *memory);
void __wrap_free(void *memory) {
    if (noting_has_pinned(memory))
        ck_abort_msg("pinned memory is freed");
    __real_free(memory);
}

/* ---- what is logged */

static char g_lines[LINES][LINE];
static int g_n_lines;

static void notify(enum ft_log_level level, const char *line) {
    if (strncmp(line, "programs", 8) != 0)
        return;
    ck_assert_int_lt(g_n_lines, LINES);
    snprintf(g_lines[g_n_lines++], LINE, "%s %s", level == FT_LOG_INFO ? "info" : "warn", line);
}

/* The numbers of a line, by the words before them. */
static int number(int line, const char *word) {
    char key[64];
    snprintf(key, sizeof key, " %s ", word);
    ck_assert_int_lt(line, g_n_lines);
    const char *at = strstr(g_lines[line], key);
    ck_assert_msg(at != NULL, "no \"%s\" in: %s", word, g_lines[line]);
    return atoi(at + strlen(key));
}

static void begins(int line, const char *text) {
    ck_assert_int_lt(line, g_n_lines);
    ck_assert_msg(strncmp(g_lines[line], text, strlen(text)) == 0, "%s", g_lines[line]);
}

/* ---- a worker */

struct rig {
    struct ft_worker_role role;
    struct ft_worker_params params;
    struct ft_worker *worker;
    uint64_t step_id;
    int32_t text[SEQS + 1][LEN]; /* of sequence 1, 2, .. */
    int32_t n[SEQS + 1];         /* positions held */
};

static void set_up(struct rig *rig, const struct ft_worker_role *role, const char *device,
                   int32_t warmup_ms) {
    struct ft_worker_params *p = &rig->params;
    memset(rig, 0, sizeof *rig);
    rig->role = *role;
    rig->role.notify = notify;
    strcpy(p->model, ft_fixture_model("r7+ctx=1100"));
    strcpy(p->device, device);
    strcpy(p->kv_layout, "paged");
    p->kv_cache_bytes = (int64_t)32 << 20;
    p->max_num_seqs = SEQS;
    p->max_num_batched_tokens = 512;
    p->num_threads = 1;
    p->enable_prefix_caching = true;
    p->warmup_ms = warmup_ms;
    for (int32_t s = 1; s <= SEQS; s++)
        for (int32_t i = 0; i < LEN; i++)
            rig->text[s][i] = (s * 31 + i * 7) % 250;
}

static void open_worker(struct rig *rig) {
    struct ft_err err = {0};
    ck_assert_msg(ft_worker_open(&rig->worker, &rig->role, &rig->params, &err) == FT_OK, "%s",
                  err.text);
}

static void attach(struct rig *rig, bool device_rows) {
    struct ft_err err = {0};
    ck_assert_msg(ft_worker_attach(rig->worker, 1, device_rows, &err) == FT_OK, "%s", err.text);
    ft_region_unlink(rig->worker->region);
}

static void start(struct rig *rig, const struct ft_worker_role *role, const char *device,
                  int32_t warmup_ms) {
    set_up(rig, role, device, warmup_ms);
    open_worker(rig);
    attach(rig, strcmp(device, "noting") == 0);
}

static void stop(struct rig *rig) {
    ft_worker_detach(rig->worker);
    ft_worker_close(&rig->worker);
}

static struct ft_wire_worker_stats stats_of(const struct rig *rig) {
    struct ft_wire_worker_stats stats;
    ft_worker_stats(rig->worker, &stats);
    return stats;
}

/* n tokens more of each sequence, none of which stays but keep. */
struct ask {
    int32_t first_seq, n_seqs, n_tokens, n_keep;
    uint32_t n_logits, draft_len;
    float temperature;
};

static const struct ft_wire_seq_result *step(struct rig *rig, const struct ask *ask) {
    static struct ft_wire_step_reply reply;
    struct ft_wire_seq_step seqs[SEQS];
    struct ft_err err = {0};
    for (int32_t i = 0; i < ask->n_seqs; i++) {
        int32_t s = ask->first_seq + i;
        seqs[i] = (struct ft_wire_seq_step){
            (uint64_t)s,           (uint32_t)rig->n[s],       rig->text[s] + rig->n[s],
            (size_t)ask->n_tokens, .n_logits = ask->n_logits, .draft_len = ask->draft_len};
        seqs[i].has_sampling = true;
        seqs[i].sampling = ft_sampling_default();
        seqs[i].sampling.temperature = ask->temperature;
        seqs[i].sampling.seed = 7;
        rig->n[s] += ask->n_keep;
    }
    rig->step_id++;
    struct ft_wire_step in = {.step_id = rig->step_id,
                              .epoch = rig->worker->epoch,
                              .generation = (uint32_t)(rig->step_id % 2),
                              .seqs = seqs,
                              .n_seqs = (size_t)ask->n_seqs,
                              .coordinator_epoch = 1};
    enum ft_code code = ft_step_execute(rig->worker, &in, &reply, &err);
    ck_assert_msg(code == FT_OK, "%s", err.text);
    for (int32_t i = 0; i < ask->n_seqs; i++)
        ck_assert_int_eq(reply.results[i].status, FT_WIRE_SEQ_OK);
    return reply.results;
}

static const float *row_of(const struct rig *rig, const struct ft_wire_seq_result *r, int32_t i) {
    return ft_region_row(rig->worker->region, (uint32_t)(rig->step_id % 2),
                         (int64_t)r->first_row + i);
}

/* All sequences get a prompt of n tokens, each in a step of its own. */
static void prefill(struct rig *rig, int32_t n) {
    for (int32_t s = 1; s <= SEQS; s++)
        for (int32_t at = rig->n[s]; at < n; at = rig->n[s]) {
            int32_t chunk = n - at < 300 ? n - at : 300;
            step(rig,
                 &(struct ask){.first_seq = s, .n_seqs = 1, .n_tokens = chunk, .n_keep = chunk});
        }
}

/* A step that asks for what was promised is a program, all of it. */
static const struct ft_wire_seq_result *step_found(struct rig *rig, const struct ask *ask) {
    struct noting before = noting;
    const struct ft_wire_seq_result *r = step(rig, ask);
    if (noting.n_found - before.n_found != noting.n_begun - before.n_begun ||
        noting.n_begun == before.n_begun || noting.n_done != before.n_done)
        ck_abort_msg("%d sequences at %d, %d tokens, %u drafts: no program", ask->n_seqs,
                     rig->n[ask->first_seq], ask->n_tokens, ask->draft_len);
    return r;
}

/* ---- tests */

static struct rig g_warm, g_plain;

static void same_rows(const struct ft_wire_seq_result *r, int32_t n_seqs, int32_t n_rows) {
    for (int32_t i = 0; i < n_seqs; i++)
        for (int32_t k = 0; k < n_rows; k++)
            ck_assert_int_eq(memcmp(row_of(&g_warm, &r[i], k), row_of(&g_plain, &r[i], k),
                                    VOCAB * sizeof(float)),
                             0);
}

/* Rows of every plain step and verification that was promised, in both generations, at a short and
 * at a long context: each is found, with the bits that a CPU computes operation by operation. */
START_TEST(steps_of_a_target_find_their_programs_and_have_the_same_bits) {
    start(&g_warm, &tw_verify_role, "noting", 8000);
    start(&g_plain, &tw_verify_role, "cpu", 8000);
    const int32_t lens[] = {30, 600};
    for (size_t l = 0; l < 2; l++) {
        prefill(&g_warm, lens[l]);
        prefill(&g_plain, lens[l]);
        for (int32_t n_seqs = 1; n_seqs <= SEQS; n_seqs++)
            for (int32_t k = 0; k <= 8 && n_seqs * (k + 1) <= 32; k++)
                for (int generation = 0; generation < 2; generation++) {
                    struct ask ask = {1, n_seqs, k + 1, 0, (uint32_t)k + 1, 0, 0};
                    const struct ft_wire_seq_result *r = step(&g_plain, &ask);
                    step_found(&g_warm, &ask);
                    same_rows(r, n_seqs, k + 1);
                }
    }
    stop(&g_plain);
    stop(&g_warm);
}
END_TEST

/* Drafts of each length, behind one token or, after all of them were accepted, two. */
START_TEST(steps_of_a_draft_find_their_programs_and_draft_the_same) {
    start(&g_warm, &dw_draft_role, "noting", 8000);
    start(&g_plain, &dw_draft_role, "cpu", 8000);
    const int32_t lens[] = {30, 600};
    for (size_t l = 0; l < 2; l++) {
        prefill(&g_warm, lens[l]);
        prefill(&g_plain, lens[l]);
        for (int32_t n_seqs = 1; n_seqs <= SEQS; n_seqs++)
            for (int32_t k = 1; k <= 8 && n_seqs * (k + 1) <= 32; k++)
                for (int32_t n = 1; n <= 2; n++) {
                    struct ask ask = {1, n_seqs, n, 0, 0, (uint32_t)k, n == 1 ? 0.0f : 0.7f};
                    int32_t want[SEQS][8];
                    const struct ft_wire_seq_result *r = step(&g_plain, &ask);
                    for (int32_t i = 0; i < n_seqs; i++)
                        memcpy(want[i], r[i].draft_ids, (size_t)k * sizeof(int32_t));
                    r = step_found(&g_warm, &ask);
                    for (int32_t i = 0; i < n_seqs; i++)
                        ck_assert_int_eq(
                            memcmp(want[i], r[i].draft_ids, (size_t)k * sizeof(int32_t)), 0);
                }
    }
    stop(&g_plain);
    stop(&g_warm);
}
END_TEST

START_TEST(target_says_what_it_prepared_and_what_it_captured_for_whom) {
    set_up(&g_warm, &tw_verify_role, "noting", 8000);
    open_worker(&g_warm);
    ck_assert_int_eq(g_n_lines, 1);
    begins(0, "info programs prepared ");
    int n_shapes = number(0, "prepared");
    ck_assert_ptr_nonnull(strstr(g_lines[0], " at start took_ms "));
    ck_assert_int_eq(noting.n_noted, 0);
    attach(&g_warm, true);
    ck_assert_int_eq(g_n_lines, 2);
    begins(1, "info programs captured ");
    ck_assert_ptr_nonnull(strstr(g_lines[1], " at attach plain "));
    ck_assert_int_eq(number(1, "captured"), 2 * n_shapes); /* two generations */
    ck_assert_int_eq(number(1, "captured"), number(1, "plain") + number(1, "verify"));
    ck_assert_int_eq(number(1, "captured"), noting.n_noted);
    ck_assert_int_eq(number(1, "plain"), 2 * 8 * 3); /* 8 batch sizes, 3 lengths */
    ck_assert_int_ge(number(1, "took_ms"), 0);
    ck_assert_ptr_null(strstr(g_lines[1], " left "));
    /* The same GPU memory again: there is nothing to do, and nothing to say. */
    ft_worker_detach(g_warm.worker);
    attach(&g_warm, true);
    ck_assert_int_eq(g_n_lines, 2);
    /* Rows elsewhere are other programs. */
    ft_worker_detach(g_warm.worker);
    attach(&g_warm, false);
    ck_assert_int_eq(g_n_lines, 3);
    ck_assert_int_eq(number(2, "captured"), 2 * n_shapes);
    stop(&g_warm);
}
END_TEST

START_TEST(draft_says_what_it_captured_before_it_serves) {
    set_up(&g_warm, &dw_draft_role, "noting", 8000);
    open_worker(&g_warm);
    ck_assert_int_eq(g_n_lines, 1);
    begins(0, "info programs captured ");
    ck_assert_ptr_nonnull(strstr(g_lines[0], " at start plain "));
    ck_assert_int_eq(number(0, "captured"), noting.n_noted);
    ck_assert_int_eq(number(0, "captured"), number(0, "plain") + number(0, "drafts"));
    ck_assert_int_eq(number(0, "drafts"), 3 * 46); /* lengths of context; batch sizes and K */
    attach(&g_warm, true);
    ck_assert_int_eq(g_n_lines, 1);
    stop(&g_warm);
}
END_TEST

/* Nobody holds anything, nothing is counted, and what a prefix cache keeps, it keeps. */
START_TEST(warm_up_leaves_the_pool_the_cache_and_the_counts_alone) {
    for (int draft = 0; draft < 2; draft++) {
        start(&g_warm, draft ? &dw_draft_role : &tw_verify_role, "noting", 8000);
        struct ft_wire_worker_stats stats = stats_of(&g_warm);
        ck_assert_uint_eq(stats.kv_blocks_free, stats.kv_blocks_total);
        ck_assert_uint_eq(stats.kv_blocks_cached + stats.sequences, 0);
        ck_assert_uint_eq(stats.steps + stats.step_tokens, 0);
        prefill(&g_warm, 100);
        step(&g_warm, &(struct ask){1, SEQS, 1, 1, 0, 0, 0});
        ft_worker_detach(g_warm.worker);
        stats = stats_of(&g_warm);
        ck_assert_uint_gt(stats.kv_blocks_cached, 0);
        attach(&g_warm, false); /* captures, at a target */
        ck_assert_uint_eq(stats_of(&g_warm).kv_blocks_cached, stats.kv_blocks_cached);
        ck_assert_uint_eq(stats_of(&g_warm).kv_blocks_free, stats.kv_blocks_free);
        memset(g_warm.n, 0, sizeof g_warm.n);
        const struct ft_wire_seq_result *r =
            step(&g_warm, &(struct ask){1, 1, 100, 100, draft ? 0 : 1, 0, 0});
        ck_assert_uint_eq(r->prefix_hit, 96);
        if (!draft) { /* KV that was cached before the programs came is what it was */
            start(&g_plain, &tw_verify_role, "cpu", 0);
            g_plain.step_id = g_warm.step_id - 1;
            same_rows(step(&g_plain, &(struct ask){1, 1, 100, 100, 1, 0, 0}), 1, 1);
            stop(&g_plain);
        }
        stop(&g_warm);
    }
}
END_TEST

START_TEST(budget_ends_a_warm_up_and_the_rest_comes_when_it_comes) {
    noting.slow_ns = 2000000; /* as slow as a large model */
    set_up(&g_warm, &dw_draft_role, "noting", 50);
    int64_t begin_ns = ft_clock_now_ns();
    open_worker(&g_warm);
    int64_t took_ns = ft_clock_now_ns() - begin_ns;
    ck_assert_int_eq(g_n_lines, 1);
    ck_assert_int_gt(number(0, "captured"), 0);
    ck_assert_int_lt(number(0, "captured"), 60);
    ck_assert_int_gt(number(0, "left"), 100);
    ck_assert_ptr_nonnull(strstr(g_lines[0], "reason \"warmup_ms is 50\""));
    ck_assert_int_lt(took_ns, 5000000000); /* all of them would go on past its end */
    attach(&g_warm, true);
    prefill(&g_warm, 600);
    struct ask ask = {1, 8, 1, 0, 0, 2, 0};
    struct noting before = noting;
    for (int i = 0; i < 3; i++)
        step(&g_warm, &ask);
    ck_assert_int_eq(noting.n_found - before.n_found, 2);
    stop(&g_warm);

    /* What a target did not do at start it does not capture when it is attached to. */
    g_n_lines = 0;
    set_up(&g_warm, &tw_verify_role, "noting", 50);
    open_worker(&g_warm);
    int n_prepared = number(0, "prepared");
    ck_assert_int_gt(number(0, "left"), 0);
    g_warm.params.warmup_ms = 8000;
    attach(&g_warm, true);
    ck_assert_int_eq(number(1, "captured"), 2 * n_prepared);
    ck_assert_ptr_null(strstr(g_lines[1], " left "));
    stop(&g_warm);
}
END_TEST

START_TEST(failure_to_capture_is_a_warning_and_the_worker_serves) {
    noting.fail_at = 5;
    start(&g_warm, &tw_verify_role, "noting", 8000);
    ck_assert_int_eq(g_n_lines, 2);
    begins(1, "warn programs-failed at attach captured 4 reason \"");
    ck_assert_ptr_nonnull(strstr(g_lines[1], "it was told to"));
    start(&g_plain, &tw_verify_role, "cpu", 0);
    prefill(&g_warm, 30);
    prefill(&g_plain, 30);
    struct ask ask = {1, 4, 3, 0, 3, 0, 0};
    struct noting before = noting;
    for (int i = 0; i < 6; i++) {
        step(&g_warm, &ask);
        same_rows(step(&g_plain, &ask), 4, 3);
    }
    ck_assert_int_eq(noting.n_found - before.n_found, 2); /* of each generation the third */
    stop(&g_plain);
    ft_worker_detach(g_warm.worker);
    attach(&g_warm, false); /* said once */
    ck_assert_int_eq(g_n_lines, 2);
    stop(&g_warm);

    g_n_lines = 0;
    noting.n_captures = 0;
    set_up(&g_warm, &dw_draft_role, "noting", 8000);
    open_worker(&g_warm);
    ck_assert_int_eq(g_n_lines, 1);
    begins(0, "warn programs-failed at start captured 4 reason \"");
    attach(&g_warm, true);
    prefill(&g_warm, 30);
    step(&g_warm, &(struct ask){1, 2, 1, 0, 0, 3, 0});
    stop(&g_warm);
}
END_TEST

/* A program that cannot be made in service costs its step nothing but time. */
START_TEST(step_whose_program_cannot_be_made_is_served) {
    struct ask target_ask = {1, 4, 3, 0, 3, 0, 0}, draft_ask = {1, 4, 1, 0, 0, 3, 0};
    start(&g_warm, &tw_verify_role, "noting", 0);
    start(&g_plain, &tw_verify_role, "cpu", 0);
    prefill(&g_warm, 30);
    prefill(&g_plain, 30);
    noting.fail_at = noting.n_captures + 1; /* of one of two generations */
    noting.fail_in = (enum noting_stage)_i;
    struct noting before = noting;
    for (int i = 0; i < 8; i++) {
        target_ask.first_seq = i / 2 % 2 == 0 ? 1 : 5; /* what was computed before is no answer */
        step(&g_warm, &target_ask);
        same_rows(step(&g_plain, &target_ask), 4, 3);
    }
    ck_assert_int_eq(noting.n_captures - before.n_captures, 2);
    ck_assert_int_eq(noting.n_found - before.n_found, 2); /* of the other */
    stop(&g_plain);
    stop(&g_warm);

    start(&g_warm, &dw_draft_role, "noting", 0);
    start(&g_plain, &dw_draft_role, "cpu", 0);
    prefill(&g_warm, 30);
    prefill(&g_plain, 30);
    for (int i = 0; i < 6; i++) {
        int32_t want[4][3];
        draft_ask.first_seq = i % 2 == 0 ? 1 : 5;
        if (i == 1) /* the forward pass is a program, and its drafts another, which fails */
            noting.fail_at = noting.n_captures + 2;
        const struct ft_wire_seq_result *r = step(&g_plain, &draft_ask);
        for (int32_t s = 0; s < 4; s++)
            memcpy(want[s], r[s].draft_ids, sizeof want[s]);
        r = step(&g_warm, &draft_ask);
        for (int32_t s = 0; s < 4; s++)
            ck_assert_int_eq(memcmp(want[s], r[s].draft_ids, sizeof want[s]), 0);
    }
    ck_assert_int_eq(noting.n_captures, noting.fail_at);
    stop(&g_plain);
    stop(&g_warm);
}
END_TEST

/* Whatever there is no memory for: what was pinned is let go before it is freed. */
START_TEST(worker_that_cannot_be_opened_leaves_nothing_pinned) {
    for (int draft = 0; draft < 2; draft++) {
        set_up(&g_warm, draft ? &dw_draft_role : &tw_verify_role, "noting", 0);
        noting.n_allocs = noting.alloc_fails_at = 0;
        open_worker(&g_warm);
        ck_assert_int_eq(noting.n_pinned > 0, draft);
        stop(&g_warm);
        ck_assert_int_eq(noting.n_pinned, 0);
        int n = noting.n_allocs;
        ck_assert_int_gt(n, 2);
        for (int i = 1; i <= n; i++) {
            struct ft_err err = {0};
            noting.n_allocs = 0;
            noting.alloc_fails_at = i;
            ck_assert_int_eq(ft_worker_open(&g_warm.worker, &g_warm.role, &g_warm.params, &err),
                             FT_E_PROC_MEMORY);
            ck_assert_int_eq(noting.n_pinned, 0);
        }
    }
}
END_TEST

/* As a reload does: another model takes the place of the one that served. */
static void exchange(struct rig *rig, int32_t n_seqs) {
    struct ft_worker *fresh = NULL;
    struct ft_err err = {0};
    rig->params.max_num_seqs = n_seqs;
    ck_assert_msg(ft_worker_open(&fresh, &rig->role, &rig->params, &err) == FT_OK, "%s", err.text);
    ft_worker_detach(rig->worker);
    ft_worker_exchange(rig->worker, fresh);
    ft_worker_inherit(rig->worker, fresh);
    ft_worker_close(&fresh);
}

/* A coordinator may read them until it hears that the stream has ended. */
START_TEST(rows_on_the_device_outlive_the_model_that_wrote_them) {
    start(&g_warm, &dw_draft_role, "noting", 0);
    float *rows = g_warm.worker->device_rows.at;
    ck_assert_ptr_nonnull(rows);
    exchange(&g_warm, SEQS);
    ck_assert_ptr_eq(g_warm.worker->device_rows.at, rows);
    rows[0] = 1;
    attach(&g_warm, true);
    ck_assert_ptr_eq(g_warm.worker->device_rows.at, rows);

    exchange(&g_warm, 2 * SEQS); /* they are too few for that one */
    ck_assert_ptr_eq(g_warm.worker->rows_before.at, rows);
    rows[0] = 2;
    attach(&g_warm, true);
    ck_assert_ptr_ne(g_warm.worker->device_rows.at, rows);
    exchange(&g_warm, SEQS);
    ck_assert_ptr_null(g_warm.worker->rows_before.at);
    stop(&g_warm);
}
END_TEST

START_TEST(nothing_is_done_or_said_where_nothing_is_noted_or_wanted) {
    static const struct {
        const char *device;
        int32_t warmup_ms;
    } cases[] = {{"cpu", 8000}, {"noting", 0}};
    for (size_t i = 0; i < 2; i++)
        for (int draft = 0; draft < 2; draft++) {
            start(&g_warm, draft ? &dw_draft_role : &tw_verify_role, cases[i].device,
                  cases[i].warmup_ms);
            ck_assert_int_eq(g_n_lines, 0);
            ck_assert_int_eq(noting.n_begun + noting.n_noted, 0);
            stop(&g_warm);
        }
}
END_TEST

/* A pool of a few blocks, and slots: what cannot be held is not prepared for. */
START_TEST(small_pools_are_kept_within) {
    start(&g_warm, &tw_verify_role, "noting", 8000);
    int n_roomy = number(0, "prepared");
    stop(&g_warm);
    g_n_lines = 0;
    set_up(&g_warm, &tw_verify_role, "noting", 8000);
    g_warm.params.kv_cache_bytes = 3 * 64 * 1024;
    open_worker(&g_warm);
    attach(&g_warm, true);
    ck_assert_int_gt(number(0, "prepared"), 0);
    ck_assert_int_lt(number(0, "prepared"), n_roomy / 2);
    ck_assert_int_eq(number(1, "captured"), 2 * number(0, "prepared"));
    step_found(&g_warm, &(struct ask){1, 1, 1, 0, 1, 0, 0});
    stop(&g_warm);
}
END_TEST

static void fresh(void) {
    noting = (struct noting){0};
    g_n_lines = 0;
}

int main(void) {
    Suite *suite = suite_create("warmup");
    TCase *tcase = tcase_create("workers");
    tcase_add_checked_fixture(tcase, fresh, NULL);
    tcase_add_test(tcase, steps_of_a_target_find_their_programs_and_have_the_same_bits);
    tcase_add_test(tcase, steps_of_a_draft_find_their_programs_and_draft_the_same);
    tcase_add_test(tcase, target_says_what_it_prepared_and_what_it_captured_for_whom);
    tcase_add_test(tcase, draft_says_what_it_captured_before_it_serves);
    tcase_add_test(tcase, warm_up_leaves_the_pool_the_cache_and_the_counts_alone);
    tcase_add_test(tcase, budget_ends_a_warm_up_and_the_rest_comes_when_it_comes);
    tcase_add_test(tcase, failure_to_capture_is_a_warning_and_the_worker_serves);
    tcase_add_loop_test(tcase, step_whose_program_cannot_be_made_is_served, 0, NOTING_STAGES);
    tcase_add_test(tcase, worker_that_cannot_be_opened_leaves_nothing_pinned);
    tcase_add_test(tcase, rows_on_the_device_outlive_the_model_that_wrote_them);
    tcase_add_test(tcase, nothing_is_done_or_said_where_nothing_is_noted_or_wanted);
    tcase_add_test(tcase, small_pools_are_kept_within);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
