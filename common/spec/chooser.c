#include "common/spec/chooser.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

#define MODULE "chooser"
#define DRAFTED_BYTES (FT_CHOICE_DRAFTED_MAX * sizeof(int32_t)) /* of a row's share */
/* Decisions take microseconds. After so long without one it is asked whether something failed. */
#define PATIENCE_NS 2000000

struct ft_chooser {
    struct ft_device *device;
    struct ft_choice_batch batch;
    int32_t (*drafted)[FT_CHOICE_DRAFTED_MAX]; /* [rows_max] of the round that begins at that row */
    int32_t *round_of;                         /* [rows_max] where the row's round begins */
    char *staging;                             /* pinned: what is copied to d_memory */
    char *d_memory;
    size_t bytes;
    struct ft_choice_result *results; /* pinned [rows_max]; the device writes them */
    size_t result_bytes;
    bool is_staging_pinned, are_results_pinned;
    int32_t stamp;
};

static size_t page_round(size_t bytes) {
    return (bytes + 4095) / 4096 * 4096;
}

static enum ft_code take_memory(struct ft_chooser *c, int32_t rows_max, struct ft_err *err) {
    const struct ft_device_kind *kind = c->device->kind;
    size_t n = (size_t)rows_max;
    if (!ft_choice_batch_create(&c->batch, rows_max))
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %d rows", rows_max);
    c->bytes = page_round(n * (sizeof(struct ft_choice_row) + DRAFTED_BYTES) +
                          (size_t)c->batch.edits_max * sizeof(struct ft_choice_edit) +
                          (size_t)c->batch.ids_max * sizeof(int32_t));
    c->result_bytes = page_round(n * sizeof *c->results);
    c->drafted = calloc(n, sizeof *c->drafted);
    c->round_of = calloc(n, sizeof *c->round_of);
    c->staging = aligned_alloc(4096, c->bytes);
    c->results = aligned_alloc(4096, c->result_bytes);
    if (c->drafted == NULL || c->round_of == NULL || c->staging == NULL || c->results == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %d rows", rows_max);
    memset(c->results, 0, c->result_bytes);
    c->is_staging_pinned = kind->pin(c->device, c->staging, c->bytes);
    c->are_results_pinned = kind->pin(c->device, c->results, c->result_bytes);
    if (!c->is_staging_pinned || !c->are_results_pinned)
        return ft_err_set(err, FT_E_PROC_OS, MODULE, "%zu bytes of memory cannot be pinned",
                          c->bytes + c->result_bytes);
    void *memory = NULL;
    enum ft_code code = kind->alloc(c->device, c->bytes, &memory, err);
    c->d_memory = memory;
    return code;
}

enum ft_code ft_chooser_create(struct ft_chooser **out, struct ft_device *device, int32_t rows_max,
                               struct ft_err *err) {
    struct ft_chooser *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    c->device = device;
    enum ft_code code = take_memory(c, rows_max, err);
    if (code != FT_OK) {
        ft_chooser_destroy(&c);
        return code;
    }
    *out = c;
    return FT_OK;
}

void ft_chooser_destroy(struct ft_chooser **chooser) {
    struct ft_chooser *c = *chooser;
    if (c == NULL)
        return;
    if (c->is_staging_pinned)
        c->device->kind->unpin(c->device, c->staging);
    if (c->are_results_pinned)
        c->device->kind->unpin(c->device, c->results);
    if (c->d_memory != NULL)
        c->device->kind->give_back(c->device, c->d_memory, c->bytes);
    ft_choice_batch_destroy(&c->batch);
    free(c->drafted);
    free(c->round_of);
    free(c->staging);
    free(c->results);
    free(c);
    *chooser = NULL;
}

void ft_chooser_reset(struct ft_chooser *c) {
    ft_choice_batch_reset(&c->batch);
}

bool ft_chooser_add(struct ft_chooser *c, const struct ft_rule *rule, const struct ft_round *round,
                    struct ft_choice_round *at) {
    if (!ft_choice_add_round(&c->batch, rule, round, NULL, at))
        return false;
    if (round->n_draft > 0)
        memcpy(c->drafted[at->first_row], round->draft, (size_t)round->n_draft * sizeof(int32_t));
    for (int32_t i = 0; i < at->n_rows; i++)
        c->round_of[at->first_row + i] = at->first_row;
    return true;
}

/* Puts count elements into staging; returns where they will be on the device. */
static const void *put(struct ft_chooser *c, size_t *used, const void *from, size_t bytes) {
    void *to = c->staging + *used;
    const void *there = c->d_memory + *used;
    if (bytes > 0)
        memcpy(to, from, bytes);
    *used += (bytes + 15) / 16 * 16;
    return there;
}

static void fill(struct ft_chooser *c, struct ft_op_choose *op, size_t *used) {
    struct ft_choice_batch *b = &c->batch;
    *used = 0;
    const char *drafted = put(c, used, c->drafted, (size_t)b->n_rows * DRAFTED_BYTES);
    for (int32_t i = 0; i < b->n_rows; i++)
        b->rows[i].drafted =
            (const int32_t *)(const void *)(drafted + (size_t)c->round_of[i] * DRAFTED_BYTES);
    op->rows = put(c, used, b->rows, (size_t)b->n_rows * sizeof *b->rows);
    op->edits = put(c, used, b->edits, (size_t)b->n_edits * sizeof *b->edits);
    op->ids = put(c, used, b->ids, (size_t)b->n_ids * sizeof *b->ids);
}

/* A row's stamp is written when the rest of its result is there. */
static bool is_there(const struct ft_choice_result *result, int32_t stamp) {
    return __atomic_load_n(&result->stamp, __ATOMIC_ACQUIRE) == stamp;
}

enum ft_code ft_chooser_run(struct ft_chooser *c, struct ft_err *err) {
    const struct ft_device_kind *kind = c->device->kind;
    size_t used;
    struct ft_op_choose op = {.n_rows = c->batch.n_rows,
                              .n_vocab_max = c->batch.n_vocab_max,
                              .results = c->results,
                              .stamp = ++c->stamp};
    if (op.n_rows == 0)
        return FT_OK;
    fill(c, &op, &used);
    if (used <= FT_CHOICE_BROUGHT_MAX) {
        op.lists = c->staging;
        op.lists_at = c->d_memory;
        op.lists_bytes = (uint32_t)used;
    } else {
        kind->copy(c->device, c->d_memory, c->staging, used);
    }
    kind->ops->choose(c->device, &op);
    int64_t until_ns = ft_clock_now_ns() + PATIENCE_NS;
    for (int32_t i = 0; i < op.n_rows; i++)
        while (!is_there(&c->results[i], op.stamp)) {
            if (ft_clock_now_ns() < until_ns)
                continue;
            enum ft_code code = kind->sync(c->device, err);
            if (code == FT_OK && !is_there(&c->results[i], op.stamp))
                code = ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "row %d was not decided", i);
            if (code != FT_OK)
                return code;
        }
    return FT_OK;
}

bool ft_chooser_verdict(const struct ft_chooser *c, const struct ft_rule *rule,
                        const struct ft_round *round, const struct ft_choice_round *at,
                        struct ft_verdict *out) {
    return ft_choice_verdict(rule, round, at, c->results, out);
}
