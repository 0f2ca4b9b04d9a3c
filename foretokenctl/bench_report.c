/* What the samples say: figures of each row, as a table and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/spec/theory.h"
#include "foretokenctl/bench.h"
#include "foretokenctl/print.h"

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that a part of those in buf lie below; 0 of none. */
static double quantile(const struct ft_buf *buf, double part) {
    size_t n = buf->len / sizeof(double);
    double *sorted = n == 0 ? NULL : malloc(n * sizeof *sorted);
    if (sorted == NULL)
        return 0;
    memcpy(sorted, buf->ptr, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    size_t at = (size_t)(part * (double)(n - 1) + 0.5);
    double value = sorted[at];
    free(sorted);
    return value;
}

static double nth(const struct ft_buf *buf, size_t i) {
    double value;
    memcpy(&value, buf->ptr + i * sizeof value, sizeof value);
    return value;
}

/* 97.5 % point of Student's t: of few samples the mean is known worse than the normal curve says.
 */
static double student(size_t freedom) {
    static const double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                               2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                               2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
    size_t n = sizeof t / sizeof t[0];
    return freedom <= n ? t[freedom - 1] : 1.96 + 2.4 / (double)freedom;
}

/* Mean and 95 % interval of the ratio of paired samples, in logarithms: twice as fast and half as
 * fast are as far from 1. */
static void compare_to_base(const struct bench_row *row, const struct bench_row *base,
                            struct bench_summary *out) {
    size_t n = row->speeds.len / sizeof(double);
    size_t n_base = base->speeds.len / sizeof(double);
    double sum = 0, squares = 0;
    n = n < n_base ? n : n_base;
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        double ratio = log(nth(&row->speeds, i) / nth(&base->speeds, i));
        sum += ratio;
        squares += ratio * ratio;
    }
    double mean = sum / (double)n;
    double variance = n > 1 ? (squares - sum * mean) / (double)(n - 1) : 0;
    double error = n > 1 ? student(n - 1) * sqrt((variance > 0 ? variance : 0) / (double)n) : 0;
    out->speedup = exp(mean);
    out->low = exp(mean - error);
    out->high = exp(mean + error);
}

struct bench_summary bench_summarize(const struct bench *bench, const struct bench_row *row) {
    const struct bench_row *base = &bench->rows[row->base];
    struct bench_summary s = {.speed = quantile(&row->speeds, 0.5),
                              .first_p50 = quantile(&row->firsts, 0.5),
                              .gap_p50 = quantile(&row->gaps, 0.5),
                              .gap_p99 = quantile(&row->gaps, 0.99),
                              .first_p99 = quantile(&row->firsts, 0.99),
                              .gap_p90 = quantile(&row->gaps, 0.9)};
    compare_to_base(row, base, &s);
    if (row->rounds.len == 0 || base->rounds.len == 0)
        return s;
    double plain = quantile(&base->rounds, 0.5), plain_target = quantile(&base->targets_in, 0.5);
    s.round_ms = quantile(&row->rounds, 0.5);
    s.target_ms = quantile(&row->targets_in, 0.5);
    s.draft_ms = quantile(&row->drafts_in, 0.5);
    s.host_ms = s.round_ms - s.target_ms - s.draft_ms;
    if (row->drafts == 0)
        return s;
    double k_mean = (double)row->drafted / (double)row->drafts;
    s.alpha = ft_theory_alpha_counted(row->drafted_at, row->accepted_at, FT_DRAFT_LEN_MAX);
    s.length = 1 + (double)row->accepted / (double)row->drafts;
    s.c = plain_target > 0 ? quantile(&row->draft_steps, 0.5) / plain_target : 0;
    /* A length that changes from round to round has no equation 1: what it committed stands in. */
    double tokens =
        row->k > 0 ? ft_theory_tokens(s.alpha, row->k) : (double)row->tokens / (double)row->steps;
    const struct ft_theory_times times = {
        .plain = plain, .draft = s.draft_ms, .verify = s.target_ms + plain - plain_target};
    s.predicted = ft_theory_speedup_measured(tokens, &times);
    s.theorem = ft_theory_speedup(s.alpha, (int32_t)(k_mean + 0.5), s.c);
    return s;
}

void bench_table(const struct bench *bench, struct ft_buf *out) {
    ft_buf_addf(out,
                "%zu prompts; speed-up: mean of paired samples and its 95 %% interval; predicted: "
                "from alpha and\nmeasured costs of all phases; 3.8: from alpha and c alone\n\n",
                bench->n_prompts);
    ft_buf_addf(out, "%-4s %-9s %8s  %-18s %6s %6s %6s %6s %7s %8s %8s %8s  %s\n", "conc", "row",
                "tok/s", "speed-up", "alpha", "c", "pred.", "3.8", "length", "ttft ms", "itl p50",
                "itl p99", "round = draft + target + host, ms");
    for (size_t i = 0; i < bench->n_rows; i++) {
        const struct bench_row *row = &bench->rows[i];
        struct bench_summary s = bench_summarize(bench, row);
        ft_buf_addf(out, "%-4d %-9.9s %8.1f  %4.2f ", row->together, row->label, s.speed,
                    s.speedup);
        if (row->speeds.len > sizeof(double))
            ft_buf_addf(out, "[%4.2f, %4.2f]", s.low, s.high);
        else
            ft_buf_addf(out, "%-12s", "[one sample]");
        if (row->drafts > 0)
            ft_buf_addf(out, "  %6.3f %6.3f %6.2f %6.2f %7.2f", s.alpha, s.c, s.predicted,
                        s.theorem, s.length);
        else
            ft_buf_addf(out, "  %6s %6s %6s %6s %7s", "-", "-", "-", "-", "-");
        ft_buf_addf(out, " %8.1f %8.2f %8.2f  %.2f = %.2f + %.2f + %.2f%s\n", 1e3 * s.first_p50,
                    1e3 * s.gap_p50, 1e3 * s.gap_p99, s.round_ms, s.draft_ms, s.target_ms,
                    s.host_ms, row->lossy ? "  lossy" : "");
    }
    ft_buf_add_c(out, "\naccepted of those drafted, by position\n");
    for (size_t i = 0; i < bench->n_rows; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->drafts == 0)
            continue;
        ft_buf_addf(out, "%-4d %-9.9s", row->together, row->label);
        for (size_t at = 0; at < FT_DRAFT_LEN_MAX && row->drafted_at[at] > 0; at++)
            ft_buf_addf(out, " %5.3f", (double)row->accepted_at[at] / (double)row->drafted_at[at]);
        ft_buf_add_c(out, "\n");
    }
}

void bench_json(const struct bench *bench, struct ft_buf *out) {
    ft_buf_add_c(out, "{\"rows\":[\n");
    for (size_t i = 0; i < bench->n_rows; i++) {
        const struct bench_row *row = &bench->rows[i];
        struct bench_summary s = bench_summarize(bench, row);
        ft_buf_add_c(out, i > 0 ? ",\n{\"row\":" : "{\"row\":");
        ft_buf_add_json(out, ft_str_c(row->label));
        ft_buf_addf(out,
                    ",\"concurrency\":%d,\"output_throughput\":%.3f,\"speedup\":%.4f,"
                    "\"speedup_low\":%.4f,\"speedup_high\":%.4f,\"alpha\":%.4f,\"c\":%.4f,"
                    "\"predicted_speedup\":%.4f,\"theorem_speedup\":%.4f,"
                    "\"mean_acceptance_length\":%.4f,\"output_tokens\":%" PRIu64
                    ",\"num_target_steps\":%" PRIu64 ",\"num_drafts\":%" PRIu64
                    ",\"num_draft_tokens\":%" PRIu64 ",\"num_accepted_tokens\":%" PRIu64
                    ",\"median_ttft_ms\":%.3f,\"p99_ttft_ms\":%.3f,\"median_itl_ms\":%.4f,"
                    "\"p90_itl_ms\":%.4f,\"p99_itl_ms\":%.4f,"
                    "\"round_ms\":%.4f,\"draft_ms\":%.4f,\"target_ms\":%.4f,\"host_ms\":%.4f,"
                    "\"lossy\":%s,\"num_accepted_tokens_per_pos\":",
                    row->together, s.speed, s.speedup, s.low, s.high, s.alpha, s.c, s.predicted,
                    s.theorem, s.length, row->tokens, row->steps, row->drafts, row->drafted,
                    row->accepted, 1e3 * s.first_p50, 1e3 * s.first_p99, 1e3 * s.gap_p50,
                    1e3 * s.gap_p90, 1e3 * s.gap_p99, s.round_ms, s.draft_ms, s.target_ms,
                    s.host_ms, row->lossy ? "true" : "false");
        ctl_print_json_counts(out, row->accepted_at, FT_DRAFT_LEN_MAX);
        ft_buf_add_c(out, ",\"num_draft_tokens_per_pos\":");
        ctl_print_json_counts(out, row->drafted_at, FT_DRAFT_LEN_MAX);
        ft_buf_add_c(out, "}");
    }
    ft_buf_add_c(out, "],\n\"requests\":[\n");
    ft_buf_add_str(out, ft_buf_str(&bench->requests));
    ft_buf_add_c(out, "]}\n");
}
