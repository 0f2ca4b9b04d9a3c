/* bench_samples: a run of the benchmark that was made up, for tests of its figures and its page.
 * Owns:    g_bench, from setup to teardown.
 * Runs in: tests.
 * Never:   included twice in a program. */
#ifndef TEST_BENCH_SAMPLES_H
#define TEST_BENCH_SAMPLES_H

#include <string.h>

#include "foretokenctl/bench.h"

static struct bench g_bench;

static struct bench_row *add(const char *label, int32_t k) {
    struct bench_row *row = &g_bench.rows[g_bench.n_rows++];
    *row = (struct bench_row){.together = 1, .k = k, .speculates = k != 0};
    snprintf(row->label, sizeof row->label, "%s", label);
    return row;
}

static void add_number(struct ft_buf *buf, double value) {
    ft_buf_add(buf, &value, sizeof value);
}

static void add_round(struct bench_row *row, double ms, double draft_ms, double target_ms, int k) {
    add_number(&row->rounds, ms);
    add_number(&row->drafts_in, draft_ms);
    add_number(&row->targets_in, target_ms);
    if (k > 0)
        add_number(&row->draft_steps, draft_ms / k);
}

/* Plain: 1000 rounds of 2.5 ms, 2 of them in the target. K = 2 at alpha 0.5: a draft step costs a
 * tenth of a target step and three rows cost no more than one. */
static void bench_samples_setup(void) {
    memset(&g_bench, 0, sizeof g_bench);
    ft_buf_init(&g_bench.requests, 0);
    g_bench.n_prompts = 2;
    struct bench_row *off = add("off", 0), *two = add("K = 2", 2);
    off->steps = off->tokens = 1000;
    add_round(off, 2.5, 0, 2, 0);
    two->steps = two->drafts = 1000;
    two->tokens = 1750;
    two->drafted = 2000;
    two->accepted = 750;
    two->drafted_at[0] = two->drafted_at[1] = 1000;
    two->accepted_at[0] = 500;
    two->accepted_at[1] = 250;
    add_round(two, 2.9, 0.4, 2, 2);
    for (int i = 0; i < 4; i++) {
        add_number(&off->speeds, 400 + i);
        add_number(&two->speeds, (400 + i) * (i % 2 == 0 ? 1.5 : 1.7));
        add_number(&off->firsts, 0.01 * (i + 1));
        for (int j = 0; j < 25; j++)
            add_number(&off->gaps, i == 3 && j == 24 ? 0.1 : 0.0025);
    }
}

static void teardown(void) {
    for (size_t i = 0; i < g_bench.n_rows; i++)
        bench_row_fini(&g_bench.rows[i]);
    ft_buf_fini(&g_bench.requests);
}

#endif
