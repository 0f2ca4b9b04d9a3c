#include "common/model/warmup.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/model/forward.h"
#include "common/model/shapes.h"

/* Of all programs of a device; the others are for shapes that nobody foresaw. */
#define SHARE_PERCENT 75

_Static_assert(FT_SHAPES_DRAFTS_MAX <= FT_CHOICE_DRAFTED_MAX, "drafts that a device can make");
_Static_assert(FT_SHAPES_DRAFTS_MAX < FT_KV_BLOCK_TOKENS, "positions of a step lie in one block");

/* A step of a shape: any tokens will do, and each sequence has one block, again and again: what it
 * looks back on is nobody's, and what it writes are different places of that block. */
struct example {
    struct ft_batch_seq batch[FT_SHAPES_SEQS_MAX];
    struct ft_draft_seq seqs[FT_SHAPES_SEQS_MAX];
    struct ft_choice_row rows[FT_SHAPES_ROWS_MAX];
    struct ft_choice_result results[FT_SHAPES_ROWS_MAX];
    struct ft_draft_step drafts; /* of a shape that drafts */
    int32_t *tables;             /* [FT_SHAPES_SEQS_MAX, n_table] */
    int32_t n_table;
};

static enum ft_code make_tables(struct example *example, const struct ft_plan *plan,
                                struct ft_err *err) {
    example->n_table = (plan->max_len - 1) / FT_KV_BLOCK_TOKENS + 1;
    size_t n = (size_t)example->n_table * FT_SHAPES_SEQS_MAX;
    example->tables = calloc(n, sizeof *example->tables);
    if (example->tables == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "model", "no memory for %zu blocks of a table", n);
    for (size_t i = 0; i < n; i++)
        example->tables[i] = (int32_t)(i / (size_t)example->n_table);
    return FT_OK;
}

/* Sequence i of n tokens, with so many rows of logits, that ends n_after positions before the
 * shape does. */
static void set_seq(struct example *example, const struct ft_shape *shape, int32_t i, int32_t n,
                    int32_t n_logits, int32_t n_after) {
    static const int32_t tokens[FT_SHAPES_DRAFTS_MAX + 1];
    example->batch[i] = (struct ft_batch_seq){.blocks = example->tables + i * example->n_table,
                                              .start = shape->len - n - n_after,
                                              .tokens = tokens,
                                              .n_tokens = n,
                                              .n_logits = n_logits};
}

/* Greedy drafts: what is drawn is data, and no part of a program. */
static void set_drafts(struct example *example, const struct ft_plan *plan,
                       const struct ft_shape *shape) {
    int32_t n_rows = shape->n_seqs * shape->n;
    for (int32_t i = 0; i < n_rows; i++)
        example->rows[i] =
            (struct ft_choice_row){.n_vocab = plan->config->vocab_size, .kind = FT_CHOICE_GREEDY};
    for (int32_t i = 0; i < shape->n_seqs; i++)
        example->seqs[i] = (struct ft_draft_seq){.blocks = example->batch[i].blocks,
                                                 .start = example->batch[i].start + 1,
                                                 .n_steps = shape->n};
    example->drafts = (struct ft_draft_step){.seqs = example->seqs,
                                             .n_seqs = shape->n_seqs,
                                             .rows = example->rows,
                                             .n_rows = n_rows,
                                             .results = example->results};
}

static void make(struct example *example, const struct ft_plan *plan,
                 const struct ft_shape *shape) {
    for (int32_t i = 0; i < shape->n_seqs; i++)
        switch (shape->kind) {
        case FT_SHAPE_ROWS:
            set_seq(example, shape, i, shape->n, shape->n, 0);
            break;
        case FT_SHAPE_FEED:
            set_seq(example, shape, i, i < shape->n - shape->n_seqs ? 2 : 1, 1, 0);
            break;
        case FT_SHAPE_DRAFTS: /* the last draft is not fed */
            set_seq(example, shape, i, 1, 1, shape->n - 1);
            break;
        }
    if (shape->kind == FT_SHAPE_DRAFTS)
        set_drafts(example, plan, shape);
}

/* One call of run. */
struct warmup {
    struct ft_plan *plan;
    struct ft_drafts *drafts;
    struct ft_warmup_opts opts;
    struct ft_warmup_done *done;
    struct example example;
};

static enum ft_code compute(struct warmup *w, const struct ft_shape *shape, struct ft_err *err) {
    struct ft_plan *plan = w->plan;
    enum ft_code code =
        shape->kind == FT_SHAPE_DRAFTS
            ? ft_drafts_run(w->drafts, w->example.batch, shape->n_seqs, &w->example.drafts, err)
            : ft_forward_run(plan, w->example.batch, shape->n_seqs, plan->logits,
                             plan->logits_stride, err);
    w->done->n_computed += code == FT_OK;
    return code;
}

static void count(struct ft_warmup_done *done, const struct ft_shape *shape) {
    if (shape->kind == FT_SHAPE_DRAFTS)
        done->n_drafts++;
    else if (shape->kind == FT_SHAPE_ROWS && shape->n > 1)
        done->n_verify++;
    else
        done->n_plain++;
}

/* A program for each place, and what the device has to say of it. */
static enum ft_code note(struct warmup *w, const struct ft_shape *shape, struct ft_err *err) {
    for (int32_t i = 0; i < w->opts.n_places; i++) {
        bool is_new = shape->kind == FT_SHAPE_DRAFTS
                          ? ft_drafts_note(w->drafts, &w->example.drafts)
                          : ft_forward_note(w->plan, w->example.batch, shape->n_seqs,
                                            w->opts.places[i], w->opts.row_stride);
        enum ft_code code = w->plan->device->kind->sync(w->plan->device, err);
        if (code != FT_OK)
            return ft_err_prefix(err, "%d sequences of %d positions", shape->n_seqs, shape->len);
        if (is_new)
            count(w->done, shape);
    }
    return FT_OK;
}

static int32_t list_shapes(const struct warmup *w, struct ft_shape *shapes, int32_t n_max) {
    const struct ft_plan *plan = w->plan;
    int32_t n_asked = w->opts.n_shapes_max;
    struct ft_shapes_limits limits = {.is_drafting = w->drafts != NULL,
                                      .n_seqs_max = w->opts.n_seqs_max,
                                      .n_tokens_max = plan->n_tile,
                                      .n_rows_max = w->opts.n_rows_max,
                                      .len_max = plan->max_len,
                                      .len_step = ft_forward_len(1),
                                      .block_tokens = FT_KV_BLOCK_TOKENS,
                                      .n_blocks = plan->n_blocks < plan->n_table ? plan->n_blocks
                                                                                 : plan->n_table};
    return ft_shapes_list(&limits, shapes, n_asked > 0 && n_asked < n_max ? n_asked : n_max);
}

static enum ft_code walk(struct warmup *w, const struct ft_shape *shapes, int32_t n,
                         struct ft_err *err) {
    struct ft_warmup_done *done = w->done;
    int64_t end_ns = ft_clock_now_ns() + w->opts.budget_ns;
    enum ft_code code = w->plan->device->kind->sync(w->plan->device, err);
    while (code == FT_OK && done->n_shapes < n && ft_clock_now_ns() < end_ns) {
        const struct ft_shape *shape = &shapes[done->n_shapes];
        make(&w->example, w->plan, shape);
        if (w->opts.computes && shape->is_first)
            code = compute(w, shape, err);
        if (code == FT_OK && w->opts.places != NULL)
            code = note(w, shape, err);
        done->n_shapes += code == FT_OK;
    }
    done->n_left = n - done->n_shapes;
    return code;
}

enum ft_code ft_warmup_run(struct ft_plan *plan, struct ft_drafts *drafts,
                           const struct ft_warmup_opts *opts, struct ft_warmup_done *done,
                           struct ft_err *err) {
    struct warmup w = {.plan = plan, .drafts = drafts, .opts = *opts, .done = done};
    *done = (struct ft_warmup_done){0};
    if (drafts != NULL) { /* its forward passes leave rows to the choice behind them */
        w.opts.places = &plan->logits;
        w.opts.n_places = 1;
        w.opts.row_stride = plan->logits_stride;
    }
    FT_ASSERT(w.opts.n_places >= 1 && w.opts.n_places <= FT_WARMUP_PLACES_MAX);
    int32_t n_max = plan->device->kind->n_programs_max * SHARE_PERCENT / 100 / w.opts.n_places;
    if (n_max == 0 || plan->logits == NULL)
        return FT_OK;
    struct ft_shape *shapes = calloc((size_t)n_max, sizeof *shapes);
    if (shapes == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "model", "no memory for %d shapes", n_max);
    enum ft_code code = make_tables(&w.example, plan, err);
    if (code == FT_OK)
        code = walk(&w, shapes, list_shapes(&w, shapes, n_max), err);
    free(w.example.tables);
    free(shapes);
    return code;
}
