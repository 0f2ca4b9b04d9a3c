#include "common/worker/warm.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/clock.h"

_Static_assert(FT_REGION_GENERATIONS <= FT_WARMUP_PLACES_MAX, "each generation is a place");

/* One run, which is told of by a line of the log. */
struct run {
    const char *when;
    struct ft_warmup_opts opts;
    struct ft_warmup_done done;
    int64_t took_ms;
};

static void say(const struct ft_worker *worker, const struct run *run) {
    const struct ft_warmup_done *done = &run->done;
    char line[320];
    int n, n_new = done->n_plain + done->n_verify + done->n_drafts;
    if (n_new == 0 && done->n_computed == 0)
        return;
    if (run->opts.places == NULL && n_new == 0)
        n = snprintf(line, sizeof line, "programs prepared %d at %s", done->n_shapes, run->when);
    else
        n = snprintf(line, sizeof line, "programs captured %d at %s plain %d %s %d", n_new,
                     run->when, done->n_plain, worker->role->rows_from_model ? "verify" : "drafts",
                     done->n_verify + done->n_drafts);
    n += snprintf(line + n, sizeof line - (size_t)n, " took_ms %" PRId64, run->took_ms);
    if (done->n_left > 0)
        snprintf(line + n, sizeof line - (size_t)n, " left %d reason \"warmup_ms is %d\"",
                 done->n_left, worker->params->warmup_ms);
    worker->role->notify(FT_LOG_INFO, line);
}

static void say_failed(const struct ft_worker *worker, const struct run *run,
                       const struct ft_err *err) {
    char line[FT_ERR_TEXT_MAX + 160];
    snprintf(
        line, sizeof line,
        "programs-failed at %s captured %d reason \"%.300s\" effect \"captured when they come\"",
        run->when, run->done.n_plain + run->done.n_verify + run->done.n_drafts, err->text);
    worker->role->notify(FT_LOG_WARN, line);
}

static bool warm_up(struct ft_worker *worker, struct run *run) {
    struct ft_err err = {0};
    int64_t begin_ns = ft_clock_now_ns();
    run->opts.n_seqs_max = worker->params->max_num_seqs;
    run->opts.n_rows_max =
        worker->role->rows_from_model ? worker->step_rows_max : worker->params->max_num_seqs;
    run->opts.budget_ns = (int64_t)worker->params->warmup_ms * 1000000;
    enum ft_code code = ft_model_warm_up(worker->model, &run->opts, &run->done, &err);
    run->took_ms = (ft_clock_now_ns() - begin_ns) / 1000000;
    if (code == FT_OK)
        say(worker, run);
    else
        say_failed(worker, run, &err);
    return code == FT_OK;
}

void ft_warm_start(struct ft_worker *worker) {
    bool is_target = worker->role->rows_from_model;
    struct run run = {
        .when = "start",
        .opts = {.computes = true, .n_places = is_target ? FT_REGION_GENERATIONS : 1}};
    if (worker->params->warmup_ms == 0 || ft_model_programs_max(worker->model) == 0)
        return;
    if (!is_target && !ft_model_drafts_ahead(worker->model))
        return; /* the host draws between its steps, from rows of its own */
    if (warm_up(worker, &run))
        worker->n_warm_shapes = run.done.n_shapes;
}

void ft_warm_attach(struct ft_worker *worker) {
    float *places[FT_REGION_GENERATIONS];
    struct run run = {.when = "attach",
                      .opts = {.n_shapes_max = worker->n_warm_shapes,
                               .places = places,
                               .n_places = FT_REGION_GENERATIONS,
                               .row_stride = ft_region_row_stride(worker->region)}};
    if (!worker->role->rows_from_model || worker->n_warm_shapes == 0)
        return;
    for (uint32_t i = 0; i < FT_REGION_GENERATIONS; i++)
        places[i] = ft_region_row_mut(worker->region, i, 0);
    if (!warm_up(worker, &run))
        worker->n_warm_shapes = 0; /* said once; it would be no better the next time */
}
