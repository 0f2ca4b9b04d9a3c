#include "common/model/drafts.h"

#include <stdlib.h>
#include <string.h>

#include "common/model/forward.h"

#define STEPS_MAX FT_CHOICE_DRAFTED_MAX

/* All lists of a step, laid out alike here and on the device. */
struct lists {
    struct ft_choice_row *rows; /* [STEPS_MAX * n_seqs_max] step by step */
    struct ft_choice_edit *edits;
    int32_t *ids;
    struct ft_plan_ids steps[STEPS_MAX]; /* [n_seqs_max] each; they share picks and table */
    /* written by the device */
    int32_t (*drafted)[STEPS_MAX]; /* [n_seqs_max] */
    struct ft_choice_result *results;
};

struct ft_drafts {
    struct ft_plan *plan;
    struct ft_drafts_opts opts;
    char *host, *dev; /* host is pinned where that can be */
    size_t bytes;
    bool is_pinned;
    struct lists h, d;
};

static void *carve(char *base, size_t *at, size_t count, size_t size) {
    void *p = base == NULL ? NULL : base + *at;
    *at += (count * size + 63) / 64 * 64;
    return p;
}

static size_t lay_out(const struct ft_drafts *drafts, char *base, struct lists *l) {
    size_t n = (size_t)drafts->opts.n_seqs_max, at = 0;
    l->rows = carve(base, &at, STEPS_MAX * n, sizeof *l->rows);
    l->edits = carve(base, &at, (size_t)drafts->opts.n_edits_max, sizeof *l->edits);
    l->ids = carve(base, &at, (size_t)drafts->opts.n_ids_max, sizeof *l->ids);
    int32_t *picks = carve(base, &at, n, sizeof *picks);
    int32_t *table = carve(base, &at, (size_t)drafts->plan->n_table, sizeof *table);
    for (int k = 0; k < STEPS_MAX; k++) {
        l->steps[k].tokens = carve(base, &at, n, sizeof(int32_t));
        l->steps[k].positions = carve(base, &at, n, sizeof(int32_t));
        l->steps[k].slots = carve(base, &at, n, sizeof(int32_t));
        l->steps[k].pieces = carve(base, &at, n, sizeof(struct ft_span));
        l->steps[k].picks = picks;
        l->steps[k].table = table;
    }
    l->drafted = carve(base, &at, n, sizeof *l->drafted);
    l->results = carve(base, &at, STEPS_MAX * n, sizeof *l->results);
    return at;
}

enum ft_code ft_drafts_create(struct ft_drafts **out, struct ft_plan *plan,
                              const struct ft_drafts_opts *opts, struct ft_err *err) {
    const struct ft_device_kind *kind = plan->device->kind;
    struct ft_drafts *drafts = calloc(1, sizeof *drafts);
    if (drafts == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, "model", "no memory for drafts");
    drafts->plan = plan;
    drafts->opts = *opts;
    drafts->bytes = (lay_out(drafts, NULL, &drafts->h) + 4095) / 4096 * 4096;
    drafts->host = aligned_alloc(4096, drafts->bytes);
    void *dev = NULL;
    enum ft_code code = drafts->host == NULL
                            ? ft_err_set(err, FT_E_PROC_MEMORY, "model", "no memory for drafts")
                            : kind->alloc(plan->device, drafts->bytes, &dev, err);
    drafts->dev = dev;
    if (code != FT_OK) {
        ft_drafts_destroy(&drafts);
        return code;
    }
    memset(drafts->host, 0, drafts->bytes);
    drafts->is_pinned = kind->pin(plan->device, drafts->host, drafts->bytes);
    lay_out(drafts, drafts->host, &drafts->h);
    lay_out(drafts, drafts->dev, &drafts->d);
    for (int32_t i = 0; i < opts->n_seqs_max; i++)
        drafts->h.steps[0].picks[i] = i;
    kind->copy(plan->device, drafts->d.steps[0].picks, drafts->h.steps[0].picks,
               (size_t)opts->n_seqs_max * sizeof(int32_t));
    *out = drafts;
    return FT_OK;
}

void ft_drafts_destroy(struct ft_drafts **drafts) {
    struct ft_drafts *d = *drafts;
    if (d == NULL)
        return;
    if (d->is_pinned)
        d->plan->device->kind->unpin(d->plan->device, d->host);
    if (d->dev != NULL)
        d->plan->device->kind->give_back(d->plan->device, d->dev, d->bytes);
    free(d->host);
    free(d);
    *drafts = NULL;
}

/* Positions of a sequence that steps look back on or write: its drafts but the last are fed. */
static int32_t end_of(const struct ft_draft_seq *seq) {
    return seq->start + seq->n_steps - 1;
}

static int32_t n_blocks_of(const struct ft_draft_seq *seq) {
    return (end_of(seq) + FT_KV_BLOCK_TOKENS - 1) / FT_KV_BLOCK_TOKENS;
}

bool ft_drafts_fit(const struct ft_drafts *drafts, const struct ft_draft_step *step) {
    int64_t n_blocks = 0;
    for (int32_t i = 0; i < step->n_seqs; i++)
        n_blocks += n_blocks_of(&step->seqs[i]);
    return step->n_seqs <= drafts->opts.n_seqs_max && n_blocks <= drafts->plan->n_table &&
           step->n_seqs <= drafts->plan->n_tile && step->n_edits <= drafts->opts.n_edits_max &&
           step->n_ids <= drafts->opts.n_ids_max;
}

/* How many sequences draft a k-th token; they come first. */
static int32_t width_of(const struct ft_draft_step *step, int32_t k) {
    int32_t n = 0;
    while (n < step->n_seqs && step->seqs[n].n_steps > k)
        n++;
    return n;
}

/* Where each token that is fed goes. Returns the entries of the table. */
static int32_t fill_steps(struct ft_drafts *drafts, const struct ft_draft_step *step) {
    int32_t n_table = 0;
    for (int32_t i = 0; i < step->n_seqs; i++) {
        const struct ft_draft_seq *seq = &step->seqs[i];
        int32_t n_blocks = n_blocks_of(seq);
        memcpy(drafts->h.steps[0].table + n_table, seq->blocks, (size_t)n_blocks * sizeof(int32_t));
        for (int32_t k = 1; k < seq->n_steps; k++) {
            const struct ft_plan_ids *ids = &drafts->h.steps[k];
            int32_t position = seq->start + k - 1;
            ids->positions[i] = position;
            ids->slots[i] = seq->blocks[position / FT_KV_BLOCK_TOKENS] * FT_KV_BLOCK_TOKENS +
                            position % FT_KV_BLOCK_TOKENS;
            ids->pieces[i] =
                (struct ft_span){.row = i, .n_rows = 1, .position = position, .table = n_table};
        }
        n_table += n_blocks;
    }
    return n_table;
}

static void fill_rows(struct ft_drafts *drafts, const struct ft_draft_step *step) {
    const struct ft_plan *plan = drafts->plan;
    struct ft_choice_row *row = drafts->h.rows;
    memcpy(row, step->rows, (size_t)step->n_rows * sizeof *row);
    for (int32_t k = 0; k < step->seqs[0].n_steps; k++)
        for (int32_t i = 0; i < width_of(step, k); i++, row++) {
            row->logits = plan->logits + i * plan->logits_stride;
            row->drafted = drafts->d.drafted[i];
            row->tokens[0] = &drafts->d.drafted[i][k];
            row->tokens[1] =
                k + 1 < step->seqs[i].n_steps ? &drafts->d.steps[k + 1].tokens[i] : NULL;
        }
}

static void send(struct ft_drafts *drafts, const void *from, size_t bytes) {
    size_t at = (size_t)((const char *)from - drafts->host);
    if (bytes > 0)
        drafts->plan->device->kind->copy(drafts->plan->device, drafts->dev + at, from, bytes);
}

static void run_program(struct ft_drafts *drafts, const struct ft_draft_step *step,
                        int32_t len_max) {
    struct ft_plan *plan = drafts->plan;
    const struct ft_choice_row *rows = drafts->d.rows;
    struct ft_choice_result *results = drafts->d.results;
    for (int32_t k = 0; k < step->seqs[0].n_steps; k++) {
        int32_t n = width_of(step, k);
        if (k > 0)
            ft_forward_token(plan, &drafts->d.steps[k], n, len_max);
        struct ft_op_choose op = {.rows = rows,
                                  .n_rows = n,
                                  .n_vocab_max = plan->config->vocab_size,
                                  .edits = drafts->d.edits,
                                  .ids = drafts->d.ids,
                                  .results = results,
                                  .stamp = 1};
        plan->device->kind->ops->choose(plan->device, &op);
        rows += n;
        results += n;
    }
}

/* Widths of up to sixteen steps and the length say which program it is. */
static struct ft_device_key key_of(const struct ft_draft_step *step, int32_t len_max) {
    struct ft_device_key key = {{-1, step->seqs[0].n_steps, len_max}};
    for (int32_t k = 0; k < step->seqs[0].n_steps; k++)
        key.at[3 + k / 4] = key.at[3 + k / 4] << 16 | width_of(step, k);
    return key;
}

/* Positions that any of its steps looks back on, as programs count them. */
static int32_t len_of(const struct ft_draft_step *step) {
    int32_t len_max = 1;
    for (int32_t i = 0; i < step->n_seqs; i++)
        len_max = end_of(&step->seqs[i]) > len_max ? end_of(&step->seqs[i]) : len_max;
    return ft_forward_len(len_max);
}

bool ft_drafts_note(struct ft_drafts *drafts, const struct ft_draft_step *step) {
    const struct ft_device_kind *kind = drafts->plan->device->kind;
    int32_t len_max = len_of(step);
    struct ft_device_key key = key_of(step, len_max);
    if (!kind->note(drafts->plan->device, &key))
        return false;
    run_program(drafts, step, len_max);
    kind->end(drafts->plan->device);
    return true;
}

/* Everything that the program reads, in order with what the device did before. */
static void send_lists(struct ft_drafts *drafts, const struct ft_draft_step *step) {
    int32_t n_table = fill_steps(drafts, step);
    int32_t n_steps = step->seqs[0].n_steps;
    fill_rows(drafts, step);
    if (step->n_edits > 0)
        memcpy(drafts->h.edits, step->edits, (size_t)step->n_edits * sizeof *step->edits);
    if (step->n_ids > 0)
        memcpy(drafts->h.ids, step->ids, (size_t)step->n_ids * sizeof *step->ids);
    send(drafts, drafts->h.rows, (size_t)step->n_rows * sizeof *step->rows);
    send(drafts, drafts->h.edits, (size_t)step->n_edits * sizeof *step->edits);
    send(drafts, drafts->h.ids, (size_t)step->n_ids * sizeof *step->ids);
    send(drafts, drafts->h.steps[0].table, (size_t)n_table * sizeof(int32_t));
    const char *begin = (const char *)drafts->h.steps[0].tokens;
    const char *end = n_steps < STEPS_MAX ? (const char *)drafts->h.steps[n_steps].tokens
                                          : (const char *)drafts->h.drafted;
    send(drafts, begin, (size_t)(end - begin));
}

static enum ft_code run_once(struct ft_drafts *drafts, const struct ft_batch_seq *batch,
                             int32_t n_batch, const struct ft_draft_step *step,
                             struct ft_err *err) {
    struct ft_plan *plan = drafts->plan;
    struct ft_device *device = plan->device;
    const struct ft_device_kind *kind = device->kind;
    ft_forward_start(plan, batch, n_batch, plan->logits, plan->logits_stride);
    send_lists(drafts, step);
    int32_t len_max = len_of(step);
    struct ft_device_key key = key_of(step, len_max);
    if (!kind->begin(device, &key)) {
        run_program(drafts, step, len_max);
        if (!kind->end(device))
            run_program(drafts, step, len_max);
    }
    kind->fetch(device, drafts->h.results, drafts->d.results,
                (size_t)step->n_rows * sizeof *step->results);
    enum ft_code code = kind->sync(device, err);
    if (code == FT_OK)
        memcpy(step->results, drafts->h.results, (size_t)step->n_rows * sizeof *step->results);
    return code;
}

enum ft_code ft_drafts_run(struct ft_drafts *drafts, const struct ft_batch_seq *batch,
                           int32_t n_batch, const struct ft_draft_step *step, struct ft_err *err) {
    struct ft_device *device = drafts->plan->device;
    enum ft_code code = run_once(drafts, batch, n_batch, step, err);
    if (code != FT_OK || !device->kind->gave_up(device))
        return code;
    return run_once(drafts, batch, n_batch, step, err);
}
