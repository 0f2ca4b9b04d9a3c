#include "foretokenctl/progress.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/clock.h"

#define INTERVAL_NS 200000000
#define BAR 24

static double seconds_since(int64_t begin_ns) {
    return (double)(ft_clock_now_ns() - begin_ns) * 1e-9;
}

void ctl_progress_show(struct ctl_progress *p) {
    int64_t now_ns = ft_clock_now_ns();
    if (!p->bar || now_ns - p->shown_ns < INTERVAL_NS)
        return;
    p->shown_ns = now_ns;
    char bar[BAR + 1];
    double part = p->n_all == 0 ? 1 : (double)p->n_done / (double)p->n_all;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    double seconds = seconds_since(p->begin_ns);
    uint64_t n_here = p->n_done - p->n_before;
    double rate = seconds > 0 ? (double)p->n_tokens / seconds : 0;
    fprintf(stderr, "\r[%s] %" PRIu64 "/%" PRIu64 " lines, %" PRIu64 " failed, %.0f tokens/s", bar,
            p->n_done, p->n_all, p->n_failed, rate);
    if (n_here > 0)
        fprintf(stderr, ", %.0f s left", seconds / (double)n_here * (double)(p->n_all - p->n_done));
    fputs("\x1B[K", stderr); /* what a longer line left */
    fflush(stderr);
}

void ctl_progress_end(struct ctl_progress *p) {
    double seconds = seconds_since(p->begin_ns);
    fprintf(stderr,
            "%s%" PRIu64 " of %" PRIu64 " lines, %" PRIu64 " failed, %" PRIu64
            " tokens in %.1f s, %.1f tokens/s\n",
            p->bar ? "\r\x1B[K" : "", p->n_done, p->n_all, p->n_failed, p->n_tokens, seconds,
            seconds > 0 ? (double)p->n_tokens / seconds : 0);
}
