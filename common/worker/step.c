#include "common/worker/step.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

#define MODULE "step"
#define ARENA_CHUNK_BYTES ((size_t)1 << 16)

struct ft_step *ft_step_create(int32_t n_seqs_max) {
    struct ft_step *step = calloc(1, sizeof *step);
    if (step == NULL)
        return NULL;
    step->seqs = calloc((size_t)n_seqs_max, sizeof *step->seqs);
    step->batch = calloc((size_t)n_seqs_max, sizeof *step->batch);
    step->arena = ft_arena_create(ARENA_CHUNK_BYTES, 0); /* bounded by the decoded step */
    if (step->seqs == NULL || step->batch == NULL || step->arena == NULL)
        ft_step_destroy(&step);
    return step;
}

void ft_step_destroy(struct ft_step **step) {
    if (*step == NULL)
        return;
    free((*step)->seqs);
    free((*step)->batch);
    ft_arena_destroy(&(*step)->arena);
    free(*step);
    *step = NULL;
}

/* ---- plan ---- */

static enum ft_code check_tokens(const struct ft_worker *worker, const struct ft_wire_seq_step *in,
                                 const struct ft_step_need *need, struct ft_err *err) {
    for (size_t i = 0; i < in->n_tokens; i++)
        if (in->tokens[i] < 0 || in->tokens[i] >= worker->vocab_size)
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "tokens[%zu] is %d: must be 0 to %d",
                              i, in->tokens[i], worker->vocab_size - 1);
    uint64_t len = (uint64_t)in->keep + in->n_tokens + (uint64_t)need->n_drafted;
    if (len > (uint64_t)worker->len_max)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "keep %u + %zu tokens + %d drafted is %llu positions: max_model_len is "
                          "%d",
                          in->keep, in->n_tokens, need->n_drafted, (unsigned long long)len,
                          worker->len_max);
    return FT_OK;
}

static enum ft_code take_budget(const struct ft_worker *worker, const struct ft_wire_seq_step *in,
                                const struct ft_step_need *need, struct ft_err *err) {
    struct ft_step *step = worker->step;
    if (step->used.n_seqs >= worker->params->max_num_seqs)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "the step has more than max_num_seqs %d sequences",
                          worker->params->max_num_seqs);
    int64_t n_positions = (int64_t)step->used.n_positions + (int64_t)in->n_tokens;
    if (n_positions > worker->params->max_num_batched_tokens)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "the step has %lld tokens up to this sequence: max_num_batched_tokens "
                          "is %d",
                          (long long)n_positions, worker->params->max_num_batched_tokens);
    int64_t n_rows = (int64_t)step->used.n_rows + need->n_rows;
    if (n_rows > worker->step_rows_max)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "the step has %lld rows up to this sequence: max_step_rows is %d",
                          (long long)n_rows, worker->step_rows_max);
    step->used.n_seqs++;
    step->used.n_positions = (int32_t)n_positions;
    step->used.n_rows = (int32_t)n_rows;
    return FT_OK;
}

static enum ft_code check(const struct ft_worker *worker, const struct ft_wire_seq_step *in,
                          struct ft_step_need *need, struct ft_err *err) {
    enum ft_code code = worker->role->plan(worker, in, need, err);
    if (code == FT_OK)
        code = check_tokens(worker, in, need, err);
    if (code == FT_OK && in->n_tokens > 0)
        code = take_budget(worker, in, need, err);
    return code;
}

/* The sequence, truncated to keep. NULL with FT_OK: unknown, and nothing to append. */
static enum ft_code seek(struct ft_worker *worker, const struct ft_wire_seq_step *in,
                         struct ft_kvseq **out, uint32_t *held, struct ft_err *err) {
    struct ft_kvseq *seq = ft_kvseq_find(worker->seqs, in->seq_id);
    *held = seq == NULL ? 0 : (uint32_t)ft_kvseq_len(seq);
    if (seq != NULL && ft_kvseq_stamp(seq) == worker->step->serial)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "seq_id %llu is twice in the step",
                          (unsigned long long)in->seq_id);
    if (seq != NULL && in->keep <= *held)
        *held = (uint32_t)ft_kvseq_truncate(worker->seqs, seq, (int32_t)in->keep);
    if (in->keep > *held)
        return ft_err_set(err, FT_E_SEQ_LOST, MODULE, "keep is %u: %u positions are held", in->keep,
                          *held);
    if (seq == NULL && in->n_tokens > 0) {
        enum ft_code code = ft_kvseq_add(worker->seqs, in->seq_id, &seq, err);
        if (code != FT_OK)
            return code;
    }
    if (seq != NULL)
        ft_kvseq_set_stamp(seq, worker->step->serial);
    *out = seq;
    return FT_OK;
}

/* Second pass: append the tokens of a sequence that is where it should be, and make it part of the
 * step. */
static enum ft_code join(struct ft_worker *worker, struct ft_step_seq *s, struct ft_err *err) {
    struct ft_step *step = worker->step;
    struct ft_kvseq_tokens tokens = {
        .ids = s->in->tokens,
        .n = (int32_t)s->in->n_tokens,
        .n_compute = s->need.n_logits > 1 ? s->need.n_logits : 1,
        .n_reserve = s->need.n_reserve,
    };
    s->start = ft_kvseq_len(s->seq);
    enum ft_code code = ft_kvseq_append(worker->seqs, s->seq, &tokens, &s->n_hit, err);
    if (code != FT_OK) {
        if (s->start == 0)
            ft_kvseq_release(worker->seqs, s->in->seq_id);
        return code;
    }
    s->out->cached = (uint32_t)ft_kvseq_len(s->seq);
    s->out->prefix_hit = (uint32_t)s->n_hit;
    s->out->first_row = (uint32_t)step->n_rows;
    s->out->n_rows = (uint32_t)s->need.n_rows;
    step->n_rows += s->need.n_rows;
    step->seqs[step->n_seqs++] = *s;
    return FT_OK;
}

static enum ft_wire_seq_status status_of(enum ft_code code) {
    switch (code) {
    case FT_OK:
        return FT_WIRE_SEQ_OK;
    case FT_E_SEQ_LOST:
        return FT_WIRE_SEQ_LOST;
    case FT_E_SEQ_POOL_EMPTY:
        return FT_WIRE_SEQ_NO_BLOCKS;
    default:
        return FT_WIRE_SEQ_INVALID;
    }
}

static void set_status(struct ft_step *step, struct ft_wire_seq_result *out,
                       enum ft_wire_seq_status status, const char *text) {
    out->status = status;
    out->first_row = out->n_rows = 0;
    out->n_draft_ids = 0;
    out->prefix_hit = 0;
    struct ft_str copy = ft_arena_str(step->arena, ft_str_c(text));
    out->detail = copy.ptr != NULL ? copy : ft_str_c("no memory for details");
}

/* First pass: check it and truncate it. s->seq stays NULL when there is nothing to append. */
static void locate(struct ft_worker *worker, struct ft_step_seq *s) {
    struct ft_err err = {0};
    const struct ft_kvseq *known = ft_kvseq_find(worker->seqs, s->in->seq_id);
    uint32_t held = known == NULL ? 0 : (uint32_t)ft_kvseq_len(known);
    *s->out = (struct ft_wire_seq_result){.seq_id = s->in->seq_id};
    enum ft_code code = check(worker, s->in, &s->need, &err);
    if (code == FT_OK)
        code = seek(worker, s->in, &s->seq, &held, &err);
    s->out->cached = held;
    if (code != FT_OK)
        set_status(worker->step, s->out, status_of(code), err.text);
}

static enum ft_code plan(struct ft_worker *worker, const struct ft_wire_step *in,
                         struct ft_wire_seq_result *results, struct ft_err *err) {
    struct ft_step_seq *all = ft_arena_calloc(worker->step->arena, in->n_seqs, sizeof *all);
    if (all == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %zu sequences", in->n_seqs);
    for (size_t i = 0; i < in->n_release; i++)
        ft_kvseq_release(worker->seqs, in->release[i]);
    for (size_t i = 0; i < in->n_seqs; i++) {
        all[i] = (struct ft_step_seq){.in = &in->seqs[i], .out = &results[i]};
        locate(worker, &all[i]);
    }
    for (size_t i = 0; i < in->n_seqs; i++) {
        struct ft_err seq_err = {0};
        if (results[i].status != FT_WIRE_SEQ_OK || in->seqs[i].n_tokens == 0)
            continue;
        enum ft_code code = join(worker, &all[i], &seq_err);
        if (code != FT_OK)
            set_status(worker->step, &results[i], status_of(code), seq_err.text);
    }
    return FT_OK;
}

/* ---- run ---- */

struct ft_batch_seq ft_step_batch_seq(const struct ft_step_seq *s) {
    return (struct ft_batch_seq){
        .blocks = ft_kvseq_pages(s->seq),
        .start = s->start + s->n_hit,
        .tokens = s->in->tokens + s->n_hit,
        .n_tokens = (int32_t)s->in->n_tokens - s->n_hit,
        .n_logits = s->need.n_logits,
    };
}

enum ft_code ft_step_forward(struct ft_worker *worker, int32_t n, float *rows, int64_t row_stride,
                             struct ft_err *err) {
    if (n == 0)
        return FT_OK;
    for (int32_t i = 0; i < n; i++)
        worker->stats.step_tokens += (uint64_t)worker->step->batch[i].n_tokens;
    return ft_model_forward(worker->model, worker->step->batch, n, rows, row_stride, err);
}

int32_t ft_step_find_non_finite(const float *row, int32_t n) {
    uint32_t any = 0;
    for (int32_t i = 0; i < n; i++)
        any |= (uint32_t) !(row[i] <= FLT_MAX);
    for (int32_t i = 0; any != 0 && i < n; i++)
        if (!(row[i] <= FLT_MAX))
            return i;
    return -1;
}

void ft_step_fail_seq(struct ft_worker *worker, struct ft_step_seq *s,
                      enum ft_wire_seq_status status, const char *text) {
    set_status(worker->step, s->out, status, text);
    s->out->cached = (uint32_t)ft_kvseq_truncate(worker->seqs, s->seq, s->start);
}

enum ft_code ft_step_execute(struct ft_worker *worker, const struct ft_wire_step *in,
                             struct ft_wire_step_reply *out, struct ft_err *err) {
    struct ft_step *step = worker->step;
    int64_t begin_ns = ft_clock_now_ns();
    ft_arena_reset(step->arena);
    step->generation = in->generation;
    step->n_seqs = step->n_rows = 0;
    step->used.n_seqs = step->used.n_rows = step->used.n_positions = 0;
    step->serial++;
    struct ft_wire_seq_result *results = ft_arena_calloc(step->arena, in->n_seqs, sizeof *results);
    if (results == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %zu results", in->n_seqs);
    enum ft_code code = plan(worker, in, results, err);
    if (code != FT_OK)
        return code;
    code = worker->role->run(worker, step, err);
    if (code != FT_OK) {
        /* What was appended has not been computed: it may not be kept, nor found by others. */
        for (int32_t i = 0; i < step->n_seqs; i++)
            ft_kvseq_truncate(worker->seqs, step->seqs[i].seq, step->seqs[i].start);
        return code;
    }
    uint64_t nanos = (uint64_t)(ft_clock_now_ns() - begin_ns);
    worker->stats.steps += in->n_seqs > 0; /* not one that only releases */
    worker->stats.step_nanos += nanos;
    *out = (struct ft_wire_step_reply){.step_id = in->step_id,
                                       .epoch = in->epoch,
                                       .compute_nanos = nanos,
                                       .begin_nanos = (uint64_t)begin_ns,
                                       .results = results,
                                       .n_results = in->n_seqs};
    return FT_OK;
}
