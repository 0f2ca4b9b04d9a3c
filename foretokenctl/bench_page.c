/* The page of a run: plots as SVG in one HTML file that loads nothing. */
#include <math.h>
#include <string.h>

#include "common/spec/theory.h"
#include "foretokenctl/bench.h"

enum { W = 640, H = 300, LEFT = 46, BOTTOM = 34, TOP = 14 };

static const char *const k_head =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>foretoken bench</title>"
    "<meta name=\"viewport\" content=\"width=device-width\"><style>\n"
    "body{font:15px/1.45 system-ui,sans-serif;color:#1d2530;background:#fbfbf9;max-width:980px;"
    "margin:2em auto;padding:0 1em}h1{font-size:1.5em}h2{font-size:1.1em;margin-top:2em}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.87em}"
    "th,td{padding:.25em .7em;text-align:right;border-bottom:1px solid #e2e2dc}"
    "th:nth-child(2),td:nth-child(2){text-align:left}.wide{overflow-x:auto}\n"
    "svg{width:100%;max-width:760px;height:auto;background:#fff;border:1px solid #e2e2dc}"
    "text{font:11px system-ui,sans-serif;fill:#4c5561}p{max-width:46em}\n"
    ".draft{fill:#e0a03c}.target{fill:#2f6f9f}.host{fill:#b9bfc6}"
    "</style></head><body><h1>Speculation on this machine</h1>\n";

static const char *const k_colours[] = {"#2f6f9f", "#c2573a", "#3f8f5f", "#8a5aa8", "#b58a1f"};
#define N_COLOURS 5

struct axes {
    double x_max, y_max;
};

static double px(const struct axes *axes, double x) {
    return LEFT + x / axes->x_max * (W - LEFT - 12);
}

static double py(const struct axes *axes, double y) {
    return H - BOTTOM - y / axes->y_max * (H - BOTTOM - TOP);
}

static void begin_plot(struct ft_buf *out, const struct axes *axes, const char *x_name,
                       const char *y_name) {
    double step = axes->y_max > 4 ? 1 : axes->y_max > 1.5 ? 0.5 : 0.2;
    ft_buf_addf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s by %s\">\n", W, H,
                y_name, x_name);
    for (double y = 0; y <= axes->y_max + 1e-9; y += step)
        ft_buf_addf(out,
                    "<path d=\"M%d %.1fH%d\" stroke=\"#ecece6\"/><text x=\"%d\" y=\"%.1f\" "
                    "text-anchor=\"end\">%.1f</text>\n",
                    LEFT, py(axes, y), W - 12, LEFT - 6, py(axes, y) + 4, y);
    for (int x = 0; x <= (int)axes->x_max; x++)
        ft_buf_addf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                    px(axes, x), H - BOTTOM + 16, x);
    ft_buf_addf(out,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>"
                "<text x=\"%d\" y=\"%d\">%s</text>\n",
                W - 12, H - 4, x_name, 4, 11, y_name);
}

static void dot(struct ft_buf *out, const struct axes *axes, double x,
                const struct bench_summary *s, const char *colour) {
    ft_buf_addf(
        out,
        "<path d=\"M%.1f %.1fV%.1f\" stroke=\"%s\" stroke-width=\"2\"/>"
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"><title>%.2f</title></circle>\n",
        px(axes, x), py(axes, s->low), py(axes, s->high), colour, px(axes, x), py(axes, s->speedup),
        colour, s->speedup);
}

/* Measured points of the fixed lengths of one concurrency, and theorem 3.8 for their mean alpha and
 * c behind them. */
static void speed_series(const struct bench *bench, struct ft_buf *out, const struct axes *axes,
                         size_t base, const char *colour) {
    double alpha = 0, c = 0, n = 0;
    for (size_t i = base; i < bench->n_rows && bench->rows[i].base == base; i++) {
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        if (bench->rows[i].k <= 0 || bench->rows[i].drafts == 0)
            continue;
        alpha += s.alpha;
        c += s.c;
        n++;
    }
    if (n > 0) {
        ft_buf_addf(out, "<path fill=\"none\" stroke=\"%s\" stroke-dasharray=\"5 4\" d=\"", colour);
        for (int32_t k = 0; k <= (int32_t)axes->x_max; k++)
            ft_buf_addf(out, "%s%.1f %.1f", k == 0 ? "M" : "L", px(axes, k),
                        py(axes, fmin(ft_theory_speedup(alpha / n, k, c / n), axes->y_max)));
        ft_buf_add_c(out, "\"/>\n");
    }
    for (size_t i = base; i < bench->n_rows && bench->rows[i].base == base; i++) {
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        if (bench->rows[i].k >= 0)
            dot(out, axes, bench->rows[i].k, &s, colour);
    }
}

static void speed_plot(const struct bench *bench, struct ft_buf *out) {
    struct axes axes = {.x_max = 1, .y_max = 1.2};
    for (size_t i = 0; i < bench->n_rows; i++) {
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        axes.x_max = fmax(axes.x_max, bench->rows[i].k);
        axes.y_max = fmax(axes.y_max, fmax(s.high, s.theorem) * 1.08);
    }
    ft_buf_add_c(out,
                 "<h2>Speed-up against K</h2><p>Points: measured, with their 95 % interval. "
                 "Dashed: theorem 3.8 of Leviathan et al. 2023 for the acceptance and the cost "
                 "ratio measured here; what lies below it is the cost of verifying more rows "
                 "and of hand-overs. Colours: requests at once.</p>\n");
    begin_plot(out, &axes, "K, tokens drafted a round", "speed-up");
    size_t colour = 0;
    for (size_t i = 0; i < bench->n_rows; i++)
        if (bench->rows[i].base == i) {
            ft_buf_addf(out, "<text x=\"%d\" y=\"%zu\" style=\"fill:%s\">%d at once</text>\n",
                        LEFT + 8, TOP + 14 + 14 * colour, k_colours[colour % N_COLOURS],
                        bench->rows[i].together);
            speed_series(bench, out, &axes, i, k_colours[colour++ % N_COLOURS]);
        }
    ft_buf_add_c(out, "</svg>\n");
}

static void acceptance_plot(const struct bench *bench, struct ft_buf *out) {
    struct axes axes = {.x_max = 2, .y_max = 1};
    for (size_t i = 0; i < bench->n_rows; i++)
        for (int at = 0; at < FT_DRAFT_LEN_MAX; at++)
            if (bench->rows[i].drafted_at[at] > 0)
                axes.x_max = fmax(axes.x_max, at + 1);
    ft_buf_add_c(out, "<h2>Acceptance by position</h2><p>The part of the tokens drafted at a "
                      "position that was accepted, all before it included.</p>\n");
    begin_plot(out, &axes, "position in the draft", "accepted");
    size_t colour = 0;
    for (size_t i = 0; i < bench->n_rows; i++) {
        const struct bench_row *row = &bench->rows[i];
        if (row->drafts == 0 || row->together != bench->rows[0].together)
            continue;
        const char *ink = k_colours[colour % N_COLOURS];
        ft_buf_addf(out, "<path fill=\"none\" stroke-width=\"2\" stroke=\"%s\" d=\"", ink);
        for (int at = 0; at < FT_DRAFT_LEN_MAX && row->drafted_at[at] > 0; at++)
            ft_buf_addf(out, "%s%.1f %.1f", at == 0 ? "M" : "L", px(&axes, at + 1),
                        py(&axes, (double)row->accepted_at[at] / (double)row->drafted_at[at]));
        ft_buf_addf(out, "\"/><text x=\"%d\" y=\"%zu\" style=\"fill:%s\">", W - 110,
                    TOP + 12 + 13 * colour++, ink);
        ft_buf_addf(out, "%s</text>\n", row->label); /* escaped when it was made */
    }
    ft_buf_add_c(out, "</svg>\n");
}

static void bar(struct ft_buf *out, double *x, double y, double width, const char *what,
                double ms) {
    if (width > 0)
        ft_buf_addf(out,
                    "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"14\">"
                    "<title>%s %.2f ms</title></rect>",
                    what, *x, y, width, what, ms);
    *x += width > 0 ? width : 0;
}

static void round_plot(const struct bench *bench, struct ft_buf *out) {
    double longest = 1e-9, y = 22;
    for (size_t i = 0; i < bench->n_rows; i++)
        longest = fmax(longest, bench_summarize(bench, &bench->rows[i]).round_ms);
    ft_buf_addf(out,
                "<h2>A round</h2><p>Where its time goes: the draft worker, then the target worker, "
                "then hand-overs, acceptance and scheduling.</p>\n"
                "<svg viewBox=\"0 0 %d %zu\" role=\"img\" aria-label=\"time of a round\">"
                "<rect class=\"draft\" x=\"110\" y=\"4\" width=\"10\" height=\"10\"/>"
                "<text x=\"124\" y=\"13\">draft</text>"
                "<rect class=\"target\" x=\"170\" y=\"4\" width=\"10\" height=\"10\"/>"
                "<text x=\"184\" y=\"13\">target</text>"
                "<rect class=\"host\" x=\"230\" y=\"4\" width=\"10\" height=\"10\"/>"
                "<text x=\"244\" y=\"13\">host</text>\n",
                W, 30 + 19 * bench->n_rows);
    for (size_t i = 0; i < bench->n_rows; i++, y += 19) {
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        double x = 110, scale = (W - 180) / longest;
        ft_buf_addf(out, "<text x=\"104\" y=\"%.1f\" text-anchor=\"end\">%d x %s</text>", y + 11,
                    bench->rows[i].together, bench->rows[i].label);
        bar(out, &x, y, s.draft_ms * scale, "draft", s.draft_ms);
        bar(out, &x, y, s.target_ms * scale, "target", s.target_ms);
        bar(out, &x, y, s.host_ms * scale, "host", s.host_ms);
        ft_buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\">%.2f ms</text>\n", x + 5, y + 11, s.round_ms);
    }
    ft_buf_add_c(out, "</svg>\n");
}

static void table(const struct bench *bench, struct ft_buf *out) {
    ft_buf_add_c(out, "<h2>All figures</h2><div class=\"wide\"><table><tr><th>at once<th>row"
                      "<th>tokens/s<th>speed-up<th>95 %<th>predicted<th>thm 3.8<th>&alpha;<th>c"
                      "<th>length<th>first token<th>between p50<th>p99</tr>\n");
    for (size_t i = 0; i < bench->n_rows; i++) {
        struct bench_summary s = bench_summarize(bench, &bench->rows[i]);
        ft_buf_addf(out,
                    "<tr><td>%d<td>%s%s<td>%.1f<td>%.2f<td>%.2f&ndash;%.2f<td>%.2f<td>%.2f"
                    "<td>%.3f<td>%.3f<td>%.2f<td>%.1f ms<td>%.2f ms<td>%.2f ms</tr>\n",
                    bench->rows[i].together, bench->rows[i].label,
                    bench->rows[i].lossy ? " (lossy)" : "", s.speed, s.speedup, s.low, s.high,
                    s.predicted, s.theorem, s.alpha, s.c, s.length, 1e3 * s.first_p50,
                    1e3 * s.gap_p50, 1e3 * s.gap_p99);
    }
    ft_buf_add_c(out, "</table></div>\n");
}

void bench_page(const struct bench *bench, struct ft_buf *out) {
    ft_buf_add_c(out, k_head);
    ft_buf_addf(out,
                "<p>%zu prompts; each way of decoding in turn on each of them, so that what "
                "disturbs the machine disturbs all alike.</p>\n",
                bench->n_prompts);
    speed_plot(bench, out);
    acceptance_plot(bench, out);
    round_plot(bench, out);
    table(bench, out);
    ft_buf_add_c(out, "</body></html>\n");
}
