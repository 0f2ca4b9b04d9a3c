/* The page of a run: plots as SVG in one HTML file that loads nothing. Labels of rows are letters,
 * digits and signs that need no escape: bench.c makes them. */
#include <math.h>
#include <string.h>

#include "common/spec/theory.h"
#include "foretokenctl/bench.h"
#include "foretokenctl/bench_plot.h"

static const char *const k_head =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>foretoken "
    "bench</title>"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
    "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" "
    "href=\"data:,\"><style>\n"
    ":root{--paper:#f6f6f3;--card:#fff;--ink:#1b222b;--soft:#5b6572;--line:#e3e3dd;--edge:#c9cac4;"
    "--c0:#2463a6;--c1:#bf4f2c;--c2:#2c7a4b;--c3:#7a4fa0;--c4:#9a6d0a;--c5:#0d7a82;--c6:#a83e73;"
    "--c7:#55606d;--draft:#e0a03c;--target:#2f6f9f;--host:#aab2bb}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#14181d;--card:#1c2229;--ink:#e6eaef;"
    "--soft:#9aa6b3;--line:#2b333c;--edge:#46515d;--c0:#7ab3ef;--c1:#f0906c;--c2:#74c897;"
    "--c3:#c29ce6;--c4:#dfb64d;--c5:#5fc7ce;--c6:#ec8fb8;--c7:#aab6c2;--draft:#d99a35;"
    "--target:#5a9fd4;--host:#66717d}}\n"
    "*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);"
    "background:var(--paper);max-width:880px;margin:0 auto;padding:2rem 1rem 4rem}"
    "h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:0 0 .4rem}"
    "p{margin:.3rem 0 .8rem;color:var(--soft);max-width:46rem}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:1.1rem 1.2rem;margin-top:1.2rem}"
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.8rem;"
    "margin:1.2rem 0 0;padding:0;list-style:none}"
    ".figures li{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:.7rem .9rem;color:var(--soft);font-size:.85rem}"
    ".figures b{display:block;font-size:1.45rem;color:var(--ink);font-weight:600}\n"
    ".plot,.wide{overflow-x:auto}svg{display:block;width:100%;min-width:560px;height:auto}"
    "text{font:12px system-ui,sans-serif;fill:var(--soft)}.name{font-size:13px}"
    ".label{fill:var(--ink)}.grid{stroke:var(--line)}.axis,.notch{stroke:var(--edge)}"
    ".rule{stroke:var(--edge);stroke-dasharray:2 4}"
    ".line{fill:none;stroke-width:2}.dashed{stroke-dasharray:6 5;opacity:.75}"
    ".bar{fill:none;stroke-width:1.6}.open{fill:var(--card);stroke-width:2.4}\n"
    ".draft{fill:var(--draft)}.target{fill:var(--target)}.host{fill:var(--host)}"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;list-style:none;margin:.2rem 0 .6rem;"
    "padding:0;font-size:.85rem}.key{display:inline-block;width:11px;height:11px;"
    "margin-right:.45em;border-radius:50%}.key.ring{background:none;border:2.4px solid}"
    ".key.diamond{border-radius:0;transform:rotate(45deg) scale(.85)}"
    ".key.line,.key.dash{width:20px;height:0;border-radius:0;background:none;"
    "border-top:2.4px solid;vertical-align:middle}.key.dash{border-top-style:dashed}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.85rem;width:100%}"
    "th{color:var(--soft);font-weight:600}th,td{padding:.35em .6em;text-align:right;"
    "border-bottom:1px solid var(--line);white-space:nowrap}"
    "th:nth-child(2),td:nth-child(2){text-align:left}\n";

/* The colour of each series: of its strokes, fills and keys. */
static void add_style(struct ft_buf *out) {
    ft_buf_add_c(out, k_head);
    for (int i = 0; i < PLOT_SERIES; i++)
        ft_buf_addf(out,
                    ".s%d .bar,.s%d .open,.line.s%d{stroke:var(--c%d)}.s%d .fill{fill:var(--c%d)}"
                    ".key.s%d{background:var(--c%d);border-color:var(--c%d)}",
                    i, i, i, i, i, i, i, i, i);
    ft_buf_add_c(out, "\n.key.ring,.key.line,.key.dash{background:none}"
                      ".key.draft,.key.target,.key.host{border-radius:2px}"
                      ".key.draft{background:var(--draft)}.key.target{background:var(--target)}"
                      ".key.host{background:var(--host)}</style></head><body>\n");
}

/* ---- what matters first --------------------------------------------------------------------- */

static void figure(struct ft_buf *out, const char *what, const char *format, double value) {
    ft_buf_add_c(out, "<li><b>");
    ft_buf_addf(out, format, value);
    ft_buf_addf(out, "</b>%s</li>", what);
}

static void header(const struct bench *bench, struct ft_buf *out) {
    ft_buf_addf(out,
                "<h1>Speculation on this machine</h1><p>%zu prompts. Every way of decoding had its "
                "turn on each of them, so that what disturbs the machine disturbs all alike; "
                "intervals are 95 %%.</p><ul class=\"figures\">",
                bench->n_prompts);
    const struct bench_row *best = NULL, *service = NULL;
    double best_speedup = 0;
    for (size_t i = 0; i < bench->n_rows && bench->rows[i].base == 0; i++) {
        const struct bench_row *row = &bench->rows[i];
        double speedup = bench_summarize(bench, row).speedup;
        if (row->k > 0 && speedup > best_speedup) {
            best = row;
            best_speedup = speedup;
        }
        if (row->k < 0 && row->drafter.len == 0)
            service = row;
    }
    char what[96];
    if (bench->n_rows > 0) {
        snprintf(what, sizeof what, "tokens/s decoding plainly, %d at once",
                 bench->rows[0].together);
        figure(out, what, "%.0f", bench_summarize(bench, &bench->rows[0]).speed);
    }
    if (best != NULL) {
        struct bench_summary s = bench_summarize(bench, best);
        snprintf(what, sizeof what, "best fixed length, %s", best->label);
        figure(out, what, "%.2f&times;", s.speedup);
        figure(out, "acceptance &alpha; there", "%.3f", s.alpha);
        figure(out, "draft step / target step, c", "%.3f", s.c);
    }
    if (service != NULL)
        figure(out, "as the service chooses", "%.2f&times;",
               bench_summarize(bench, service).speedup);
    ft_buf_add_c(out, "</ul>\n");
}

/* ---- speed-up ------------------------------------------------------------------------------- */

static double mean_k(const struct bench_row *row) {
    return row->steps > 0 ? (double)row->drafted / (double)row->steps : 0;
}

static void hint(const struct bench_row *row, const struct bench_summary *s, char text[160]) {
    snprintf(text, 160, "%s, %d at once: %.2f&#215; (%.2f to %.2f), predicted %.2f", row->label,
             row->together, s->speedup, s->low, s->high, s->predicted);
}

/* Mean alpha and c of the fixed lengths of one concurrency; false: nothing was drafted. */
static bool mean_costs(const struct bench *bench, size_t base, double *alpha, double *c) {
    double n = 0;
    *alpha = *c = 0;
    for (size_t i = base; i < bench->n_rows && bench->rows[i].base == base; i++) {
        if (bench->rows[i].k <= 0 || bench->rows[i].drafts == 0)
            continue;
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        *alpha += s.alpha;
        *c += s.c;
        n++;
    }
    if (n == 0)
        return false;
    *alpha /= n;
    *c /= n;
    return true;
}

static void speed_legend(const struct bench *bench, struct ft_buf *out) {
    size_t series = 0;
    char text[160];
    plot_legend_begin(out);
    for (size_t i = 0; i < bench->n_rows; i++) {
        const struct bench_row *row = &bench->rows[i];
        double alpha, c;
        if (row->base != i)
            continue;
        snprintf(text, sizeof text, "fixed K, %d at once", row->together);
        plot_legend_add(out, "dot", series, text);
        if (mean_costs(bench, i, &alpha, &c)) {
            snprintf(text, sizeof text, "theorem 3.8 at &alpha; %.2f, c %.3f", alpha, c);
            plot_legend_add(out, "dash", series, text);
        }
        snprintf(text, sizeof text, "the service's choice, %d at once", row->together);
        plot_legend_add(out, "ring", series++, text);
    }
    bool drafters = false;
    for (size_t i = 0; i < bench->n_rows; i++)
        drafters = drafters || bench->rows[i].drafter.len > 0;
    if (drafters)
        plot_legend_add(out, "diamond", 7, "other drafters, under the pointer");
    plot_legend_end(out);
}

static void speed_series(const struct bench *bench, struct ft_buf *out,
                         const struct plot_axes *axes, size_t base, size_t series) {
    double alpha, c;
    if (mean_costs(bench, base, &alpha, &c)) {
        plot_path_begin(out, series, true);
        for (int k = 0; k <= (int)axes->x_max; k++)
            plot_path_add(out, axes, k == 0, k, ft_theory_speedup(alpha, k, c));
        plot_path_end(out);
    }
    for (size_t i = base; i < bench->n_rows && bench->rows[i].base == base; i++) {
        const struct bench_row *row = &bench->rows[i];
        struct bench_summary s = bench_summarize(bench, row);
        char text[160];
        if (row->steps == 0)
            continue;
        hint(row, &s, text);
        bool is_drafter = row->drafter.len > 0;
        struct plot_point point = {
            .shape = is_drafter   ? PLOT_DIAMOND
                     : row->k < 0 ? PLOT_RING
                                  : PLOT_DOT,
            .series = is_drafter ? PLOT_SERIES - 1 : series,
            .x = row->k < 0 ? mean_k(row) : row->k,
            .y = s.speedup,
            .low = s.low,
            .high = s.high,
            .hint = text,
        };
        plot_mark(out, axes, &point);
    }
}

static void speed_plot(const struct bench *bench, struct ft_buf *out) {
    struct plot_axes axes = {.x_max = 4,
                             .y_min = 0.5,
                             .y_max = 1.5,
                             .x_step = 1,
                             .x_name = "K, tokens drafted a round (mean, where it varies)",
                             .y_name = "speed-up over plain decoding",
                             .y_format = "%.1f&#215;"};
    for (size_t i = 0; i < bench->n_rows; i++) {
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        axes.x_max = fmax(axes.x_max, fmax(bench->rows[i].k, ceil(mean_k(&bench->rows[i]))));
        axes.y_max = fmax(axes.y_max, fmax(fmin(s.high, 2 * s.speedup), s.theorem) * 1.06);
        if (bench->rows[i].steps > 0 && s.low < axes.y_min)
            axes.y_min = 0;
    }
    axes.x_step = axes.x_max > 10 ? 2 : 1;
    axes.y_step = plot_step(axes.y_max - axes.y_min, 6);
    ft_buf_add_c(out,
                 "<section><h2>Speed-up against K</h2><p>Dashed: what theorem 3.8 of Leviathan et "
                 "al. 2023 promises for the acceptance and the cost ratio measured here, if "
                 "verifying more rows and handing over cost nothing. What lies below it is what "
                 "they cost.</p>\n");
    speed_legend(bench, out);
    plot_begin(out, &axes, "speed-up against K");
    plot_rule(out, &axes, 1, "plain");
    size_t series = 0;
    for (size_t i = 0; i < bench->n_rows; i++)
        if (bench->rows[i].base == i)
            speed_series(bench, out, &axes, i, series++);
    plot_end(out);
    ft_buf_add_c(out, "</section>\n");
}

/* ---- acceptance ----------------------------------------------------------------------------- */

#define REACHED_MIN 20 /* of fewer a rate says nothing */

/* Where all earlier drafts of the round were accepted: what theory calls alpha, by position. */
static bool accepted_there(const struct bench_row *row, int at, double *rate) {
    uint64_t reached = at == 0 ? row->drafted_at[0] : row->accepted_at[at - 1];
    reached = reached < row->drafted_at[at] ? reached : row->drafted_at[at];
    *rate = reached > 0 ? (double)row->accepted_at[at] / (double)reached : 0;
    return reached >= REACHED_MIN;
}

static bool is_in_acceptance(const struct bench *bench, const struct bench_row *row) {
    double rate;
    return row->drafts > 0 && row->together == bench->rows[0].together &&
           accepted_there(row, 0, &rate);
}

static void acceptance_plot(const struct bench *bench, struct ft_buf *out) {
    struct plot_axes axes = {.x_min = 1,
                             .x_max = 2,
                             .y_max = 1,
                             .x_step = 1,
                             .y_step = 0.2,
                             .x_name = "position in the draft",
                             .y_name = "accepted, of those reached",
                             .y_format = "%.1f"};
    double rate;
    for (size_t i = 0; i < bench->n_rows; i++)
        for (int at = 0; at < FT_DRAFT_LEN_MAX; at++)
            if (is_in_acceptance(bench, &bench->rows[i]) &&
                accepted_there(&bench->rows[i], at, &rate))
                axes.x_max = fmax(axes.x_max, at + 1);
    ft_buf_add_c(out, "<section><h2>Acceptance by position</h2><p>How often a draft is accepted "
                      "once all before it in its round were. Theory takes it to be the same "
                      "everywhere.</p>\n");
    plot_legend_begin(out);
    size_t series = 0;
    for (size_t i = 0; i < bench->n_rows; i++)
        if (is_in_acceptance(bench, &bench->rows[i]))
            plot_legend_add(out, "line", series++, bench->rows[i].label);
    plot_legend_end(out);
    plot_begin(out, &axes, "acceptance by position");
    series = 0;
    for (size_t i = 0; i < bench->n_rows; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (!is_in_acceptance(bench, row))
            continue;
        plot_path_begin(out, series, false);
        for (int at = 0; at < FT_DRAFT_LEN_MAX && accepted_there(row, at, &rate); at++)
            plot_path_add(out, &axes, at == 0, at + 1, rate);
        plot_path_end(out);
        for (int at = 0; at < FT_DRAFT_LEN_MAX && accepted_there(row, at, &rate); at++) {
            char text[80];
            snprintf(text, sizeof text, "%s, position %d: %.3f", row->label, at + 1, rate);
            struct plot_point point = {
                .series = series, .x = at + 1, .y = rate, .low = rate, .high = rate, .hint = text};
            plot_mark(out, &axes, &point);
        }
        series++;
    }
    plot_end(out);
    ft_buf_add_c(out, "</section>\n");
}

/* ---- rounds --------------------------------------------------------------------------------- */

enum { ROUND_LEFT = 118, ROUND_RIGHT = 70, ROUND_TOP = 8, ROUND_STEP = 24 };

static void bar(struct ft_buf *out, double *x, double y, double scale, const char *what,
                double ms) {
    double width = ms > 0 ? ms * scale : 0;
    if (width > 0)
        ft_buf_addf(out,
                    "<rect class=\"mark %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\">"
                    "<title>%s %.2f ms</title></rect>",
                    what, *x, y, width, what, ms);
    *x += width;
}

static void round_plot(const struct bench *bench, struct ft_buf *out) {
    double longest = 1e-3;
    for (size_t i = 0; i < bench->n_rows; i++)
        longest = fmax(longest, bench_summarize(bench, &bench->rows[i]).round_ms);
    double scale = (PLOT_W - ROUND_LEFT - ROUND_RIGHT) / longest, step = plot_step(longest, 8);
    double bottom = ROUND_TOP + ROUND_STEP * (double)bench->n_rows;
    ft_buf_add_c(out, "<section><h2>A round, from left to right</h2><p>The draft worker computes, "
                      "then the target worker; host is all else: hand-overs, acceptance, "
                      "scheduling. Of requests at once, a round is all of theirs.</p>\n");
    plot_legend_begin(out);
    plot_legend_add(out, "draft", 7, "draft worker");
    plot_legend_add(out, "target", 7, "target worker");
    plot_legend_add(out, "host", 7, "host");
    plot_legend_end(out);
    ft_buf_addf(
        out,
        "<div class=\"plot\"><svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"time of "
        "a round\">\n",
        PLOT_W, bottom + 42);
    for (double ms = 0; ms <= longest + 1e-9; ms += step)
        ft_buf_addf(out,
                    "<path class=\"grid\" d=\"M%.1f %dV%.1f\"/><text class=\"tick\" x=\"%.1f\" "
                    "y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                    ROUND_LEFT + ms * scale, ROUND_TOP, bottom, ROUND_LEFT + ms * scale,
                    bottom + 16, ms);
    for (size_t i = 0; i < bench->n_rows; i++) {
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        double x = ROUND_LEFT, y = ROUND_TOP + ROUND_STEP * (double)i + 4;
        ft_buf_addf(out,
                    "<text class=\"label\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d &#215; "
                    "%s</text>",
                    ROUND_LEFT - 8, y + 12, bench->rows[i].together, bench->rows[i].label);
        bar(out, &x, y, scale, "draft", s.draft_ms);
        bar(out, &x, y, scale, "target", s.target_ms);
        bar(out, &x, y, scale, "host", s.host_ms);
        ft_buf_addf(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">%.2f ms</text>\n", x + 7,
                    y + 12, s.round_ms);
    }
    ft_buf_addf(out,
                "<text class=\"name\" x=\"%d\" y=\"%.0f\" text-anchor=\"middle\">milliseconds"
                "</text>",
                ROUND_LEFT + (PLOT_W - ROUND_LEFT - ROUND_RIGHT) / 2, bottom + 36);
    plot_end(out);
    ft_buf_add_c(out, "</section>\n");
}

/* ---- all figures ---------------------------------------------------------------------------- */

static void table(const struct bench *bench, struct ft_buf *out) {
    ft_buf_add_c(out,
                 "<section><h2>All figures</h2><p>Predicted: equation 1 for the measured &alpha;, "
                 "with the measured costs of all phases. Length: tokens of a round that drafts, "
                 "the target's own included. Times are those that a client sees.</p>"
                 "<div class=\"wide\"><table><tr><th>at once<th>row<th>tokens/s<th>speed-up<th>95 %"
                 "<th>predicted<th>thm 3.8<th>&alpha;<th>c<th>length<th>first token"
                 "<th>next p50<th>p99</tr>\n");
    for (size_t i = 0; i < bench->n_rows; i++) {
        const struct bench_row *row = &bench->rows[i];
        struct bench_summary s = bench_summarize(bench, row);
        ft_buf_addf(out, "<tr><td>%d<td>%s%s<td>%.1f<td>%.2f<td>%.2f&ndash;%.2f", row->together,
                    row->label, row->lossy ? " (lossy)" : "", s.speed, s.speedup, s.low, s.high);
        if (row->drafts > 0)
            ft_buf_addf(out, "<td>%.2f<td>%.2f<td>%.3f<td>%.3f<td>%.2f", s.predicted, s.theorem,
                        s.alpha, s.c, s.length);
        else
            ft_buf_add_c(out, "<td><td><td><td><td>");
        ft_buf_addf(out, "<td>%.1f ms<td>%.2f ms<td>%.2f ms</tr>\n", 1e3 * s.first_p50,
                    1e3 * s.gap_p50, 1e3 * s.gap_p99);
    }
    ft_buf_add_c(out, "</table></div></section>\n");
}

void bench_page(const struct bench *bench, struct ft_buf *out) {
    add_style(out);
    header(bench, out);
    speed_plot(bench, out);
    acceptance_plot(bench, out);
    round_plot(bench, out);
    table(bench, out);
    ft_buf_add_c(out, "</body></html>\n");
}
