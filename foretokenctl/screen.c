#include "foretokenctl/screen.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "foretokenctl/print.h"

#define BOLD "\x1B[1m"
#define GREEN "\x1B[32m"
#define RED "\x1B[31m"
#define YELLOW "\x1B[33m"
#define DIM "\x1B[2m"
#define PLAIN "\x1B[0m"

struct screen {
    const struct ctl_screen_opts *opts;
    struct ft_buf *out;
    struct ft_buf line;
    int width; /* columns of line so far */
};

/* ---- lines ---------------------------------------------------------------------------------- */

static void colour(struct screen *s, const char *code) {
    if (s->opts->colour)
        ft_buf_add_c(&s->line, code);
}

/* Text of one column a character; what does not fit is left out. */
static void put_str(struct screen *s, struct ft_str text) {
    int room = s->opts->columns - s->width;
    size_t n = text.len < (size_t)(room > 0 ? room : 0) ? text.len : (size_t)(room > 0 ? room : 0);
    ft_buf_add(&s->line, text.ptr != NULL ? text.ptr : "", n);
    s->width += (int)n;
}

static void put(struct screen *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct screen *s, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_str(s, (struct ft_str){text, n < 0 ? 0 : strlen(text)});
}

/* Of the service: may hold anything. Characters past ASCII become '?': columns stay columns. */
static void put_foreign(struct screen *s, struct ft_str text) {
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (((unsigned char)c & 0xC0) == 0x80)
            continue; /* the rest of a character */
        put_str(s, c >= 0x20 && c <= 0x7e ? (struct ft_str){text.ptr + i, 1} : ft_str_c("?"));
    }
}

static void put_glyph(struct screen *s, const char *utf8, const char *ascii) {
    if (s->width >= s->opts->columns)
        return;
    ft_buf_add_c(&s->line, s->opts->utf8 ? utf8 : ascii);
    s->width++;
}

static void end_line(struct screen *s) {
    colour(s, PLAIN);
    ft_buf_add_str(s->out, ft_buf_str(&s->line));
    ft_buf_add_c(s->out, "\n");
    s->out->failed = s->out->failed || s->line.failed;
    ft_buf_reset(&s->line);
    s->width = 0;
}

static void label(struct screen *s, const char *text) {
    colour(s, DIM);
    put(s, "%-10s", text);
    colour(s, PLAIN);
}

/* ---- pieces --------------------------------------------------------------------------------- */

static void put_time(struct screen *s, double seconds) {
    int64_t t = (int64_t)seconds;
    if (t >= 86400)
        put(s, "%" PRId64 "d %02" PRId64 "h", t / 86400, t / 3600 % 24);
    else if (t >= 3600)
        put(s, "%" PRId64 "h %02" PRId64 "m", t / 3600, t / 60 % 60);
    else if (t >= 60)
        put(s, "%" PRId64 "m %02" PRId64 "s", t / 60, t % 60);
    else
        put(s, "%" PRId64 "s", t);
}

static void put_bytes(struct screen *s, uint64_t bytes) {
    if (bytes >= 10000000000)
        put(s, "%.1f GB", (double)bytes * 1e-9);
    else
        put(s, "%.0f MB", (double)bytes * 1e-6);
}

static void put_latency(struct screen *s, double seconds) {
    if (seconds <= 0)
        put(s, "%10s", "-");
    else if (seconds < 0.1)
        put(s, "%7.2f ms", seconds * 1e3);
    else if (seconds < 10)
        put(s, "%7.0f ms", seconds * 1e3);
    else
        put(s, "%8.1f s", seconds);
}

static void put_bar(struct screen *s, double part, double lighter, int cells) {
    for (int i = 0; i < cells; i++) {
        double at = (i + 0.5) / cells;
        if (at < part)
            put_glyph(s, "\xE2\x96\x88", "#");
        else if (at < part + lighter)
            put_glyph(s, "\xE2\x96\x92", "+");
        else
            put_glyph(s, "\xC2\xB7", ".");
    }
}

static void put_sparks(struct screen *s, const struct ctl_screen_past *past) {
    static const char *const utf8[] = {"\xE2\x96\x81", "\xE2\x96\x82", "\xE2\x96\x83",
                                       "\xE2\x96\x84", "\xE2\x96\x85", "\xE2\x96\x86",
                                       "\xE2\x96\x87", "\xE2\x96\x88"};
    static const char *const ascii[] = {"_", ".", ".", "-", "-", "=", "=", "#"};
    int room = s->opts->columns - s->width;
    int n = past->n_speeds < room ? past->n_speeds : room;
    double most = 0;
    for (int i = past->n_speeds - n; i < past->n_speeds; i++)
        most = past->speeds[i] > most ? past->speeds[i] : most;
    for (int i = past->n_speeds - n; i < past->n_speeds; i++) {
        int step = most > 0 ? (int)(past->speeds[i] / most * 7.0 + 0.5) : 0;
        put_glyph(s, utf8[step], ascii[step]);
    }
}

/* ---- the screen ----------------------------------------------------------------------------- */

static void add_title(struct screen *s, const struct ft_wire_stats *stats) {
    bool ready = ft_str_eq(stats->state, ft_str_c("ready"));
    colour(s, BOLD);
    put(s, "foretoken ");
    put_foreign(s, stats->version);
    put(s, "  ");
    colour(s, ready ? GREEN : RED);
    put_foreign(s, stats->state);
    colour(s, PLAIN);
    put(s, "  up ");
    put_time(s, stats->uptime_seconds);
    if (stats->state_reason.len > 0) {
        put(s, "  ");
        colour(s, YELLOW);
        put_foreign(s, stats->state_reason);
    }
    end_line(s);
}

static void add_mode(struct screen *s, const struct ft_wire_stats *stats) {
    label(s, "drafting");
    put_foreign(s, stats->speculation);
    if (stats->speculation_reason.len > 0) {
        put(s, " (");
        colour(s, YELLOW);
        put_foreign(s, stats->speculation_reason);
        colour(s, PLAIN);
        put(s, ")");
    }
    put(s, "  drafter ");
    put_foreign(s, stats->drafter);
    put(s, "  K ");
    put_foreign(s, stats->num_speculative_tokens);
    if (stats->draft_length_mean > 0) /* what the controller chose of late */
        put(s, " (%.1f)", stats->draft_length_mean);
    put(s, "  rule ");
    put_foreign(s, stats->rejection_sample_method);
    end_line(s);
    end_line(s);
}

/* Per second of the service's own clock; 0 without a past, or after a restart. */
static double rate(uint64_t now, uint64_t before, double seconds) {
    return seconds > 0 && now >= before ? (double)(now - before) / seconds : 0;
}

static void add_load(struct screen *s, const struct ft_wire_stats *stats,
                     struct ctl_screen_past *past, double seconds) {
    double speed = rate(stats->generation_tokens_total, past->generation, seconds);
    if (seconds > 0) {
        if (past->n_speeds == CTL_SCREEN_HISTORY)
            memmove(past->speeds, past->speeds + 1, sizeof past->speeds - sizeof past->speeds[0]);
        else
            past->n_speeds++;
        past->speeds[past->n_speeds - 1] = speed;
    }
    label(s, "tokens/s");
    colour(s, BOLD);
    put(s, "%8.1f", speed);
    colour(s, PLAIN);
    put(s, "  prompt %8.1f  rounds/s %7.1f  ",
        rate(stats->prompt_tokens_total, past->prompt, seconds),
        rate(stats->rounds_total, past->rounds, seconds));
    put_sparks(s, past);
    end_line(s);
    label(s, "requests");
    colour(s, BOLD);
    put(s, "%" PRIu32 " running  %" PRIu32 " waiting", stats->num_requests_running,
        stats->num_requests_waiting);
    colour(s, PLAIN);
    put(s, "  %" PRIu64 " done  %" PRIu64 " failed  %" PRIu64 " cancelled  %" PRIu64 " preempted",
        stats->num_requests_finished, stats->num_requests_failed, stats->num_requests_cancelled,
        stats->num_preemptions_total);
    end_line(s);
    end_line(s);
}

static void add_latency(struct screen *s, const char *name, const struct ft_wire_percentiles *p) {
    colour(s, DIM);
    put(s, "%-18s", name);
    colour(s, PLAIN);
    put_latency(s, p->p50);
    put_latency(s, p->p90);
    put_latency(s, p->p99);
    put(s, "  of %" PRIu64, p->count);
    end_line(s);
}

static void add_latencies(struct screen *s, const struct ft_wire_stats *stats) {
    colour(s, DIM);
    put(s, "%-18s%10s%10s%10s", "latency, all time", "p50", "p90", "p99");
    end_line(s);
    add_latency(s, "first token", &stats->time_to_first_token_seconds);
    add_latency(s, "between tokens", &stats->inter_token_latency_seconds);
    add_latency(s, "whole request", &stats->e2e_request_latency_seconds);
    end_line(s);
}

static void add_acceptance(struct screen *s, const struct ft_wire_stats *stats,
                           const struct ctl_screen_past *past) {
    double drafts = rate(stats->num_drafts_total, past->drafts, 1);
    double drafted = rate(stats->num_draft_tokens_total, past->drafted, 1);
    double accepted = rate(stats->num_accepted_tokens_total, past->accepted, 1);
    label(s, "accepted");
    if (stats->num_draft_tokens_total == 0)
        put(s, "nothing was drafted");
    else
        put(s, "%5.1f %% of %" PRIu64 ", %.2f tokens a draft",
            100 * ctl_print_ratio((double)stats->num_accepted_tokens_total,
                                  (double)stats->num_draft_tokens_total),
            stats->num_draft_tokens_total,
            1 + ctl_print_ratio((double)stats->num_accepted_tokens_total,
                                (double)stats->num_drafts_total));
    if (past->known && drafted > 0)
        put(s, "; now %5.1f %%, %.2f", 100 * accepted / drafted, 1 + accepted / drafts);
    end_line(s);
    label(s, "by place");
    for (size_t i = 0; i < stats->n_pos; i++)
        put(s, "%.0f ",
            100 * ctl_print_ratio((double)stats->accepted_per_pos[i],
                                  (double)stats->num_drafts_total));
    put(s, "%s", stats->n_pos > 0 ? "% of drafts" : "-");
    end_line(s);
    label(s, "drafters");
    for (size_t i = 0; i < stats->n_drafters; i++) {
        const struct ft_wire_drafter *d = &stats->drafters[i];
        put_foreign(s, d->name);
        put(s, " %.0f %% of %" PRIu64 "  ",
            100 * ctl_print_ratio((double)d->num_accepted_tokens, (double)d->num_draft_tokens),
            d->num_draft_tokens);
    }
    put(s, "plain steps %" PRIu64, stats->plain_steps_total);
    end_line(s);
    label(s, "round");
    put(s, "%.2f ms = draft %.2f + target %.2f + rest %.2f (accept %.2f)",
        stats->round_p50_us * 1e-3, stats->draft_step_p50_us * 1e-3,
        stats->target_step_p50_us * 1e-3, stats->host_p50_us * 1e-3, stats->accept_p50_us * 1e-3);
    end_line(s);
    end_line(s);
}

static void add_worker(struct screen *s, const char *name, const struct ft_wire_worker_state *w) {
    label(s, name);
    colour(s, w->up ? GREEN : RED);
    put(s, "%s", w->up ? "up " : "DOWN ");
    colour(s, PLAIN);
    if (w->up)
        put_time(s, w->up_seconds);
    else
        put_foreign(s, w->trouble);
    put(s, "  epoch %016" PRIx64 "  restarts %" PRIu64 "  ", w->epoch, w->restarts);
    put_foreign(s, ft_str_base_name(w->model));
    end_line(s);
    double total = (double)w->kv_blocks_total;
    double cached = ctl_print_ratio((double)w->kv_blocks_cached, total);
    double used = total > 0 ? 1 - cached - (double)w->kv_blocks_free / total : 0;
    label(s, "  KV");
    put_bar(s, used, cached, 20);
    put(s, " %3.0f %% used %3.0f %% cached of %" PRIu64 "  %" PRIu32 " seqs  ", 100 * used,
        100 * cached, w->kv_blocks_total, w->sequences);
    put_bytes(s, w->resident_bytes);
    end_line(s);
}

void ctl_screen_add(const struct ft_wire_stats *stats, const struct ctl_screen_opts *opts,
                    struct ctl_screen_past *past, struct ft_buf *out) {
    struct screen s = {.opts = opts, .out = out};
    ft_buf_init(&s.line, 0);
    if (past->known && stats->uptime_seconds < past->uptime_seconds) /* another process */
        *past = (struct ctl_screen_past){0};
    double seconds = past->known ? stats->uptime_seconds - past->uptime_seconds : 0;
    add_title(&s, stats);
    add_mode(&s, stats);
    add_load(&s, stats, past, seconds);
    add_latencies(&s, stats);
    add_acceptance(&s, stats, past);
    add_worker(&s, "target", &stats->target);
    if (stats->has_draft)
        add_worker(&s, "draft", &stats->draft);
    past->known = true;
    past->uptime_seconds = stats->uptime_seconds;
    past->generation = stats->generation_tokens_total;
    past->prompt = stats->prompt_tokens_total;
    past->rounds = stats->rounds_total;
    past->drafts = stats->num_drafts_total;
    past->drafted = stats->num_draft_tokens_total;
    past->accepted = stats->num_accepted_tokens_total;
    ft_buf_fini(&s.line);
}
