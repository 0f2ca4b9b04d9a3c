#include "draft_worker/draft.h"

#include <stdlib.h>

#include "draft_worker/ahead.h"
#include "draft_worker/drafting.h"

#define MODULE "draft"
#define ROW_FLOATS 16 /* what a row stride must be a multiple of */
#define PAGE_BYTES ((size_t)4096)

struct role_state {
    struct ft_transform *transform;
    float *logits; /* [max_num_seqs, row_stride] */
    int64_t row_stride;
    int32_t *tokens;           /* [len_max] of one sequence, to count them */
    struct ft_counts **counts; /* [max_num_seqs] */
    int32_t n_counts;
    struct dw_drafting *drafting; /* [max_num_seqs] */
    struct dw_ahead *ahead;       /* NULL: tokens are drawn on the host */
};

static void close_role(struct ft_worker *worker) {
    struct role_state *state = worker->role_state;
    if (state == NULL)
        return;
    for (int32_t i = 0; i < state->n_counts; i++)
        ft_counts_destroy(&state->counts[i]);
    dw_ahead_destroy(&state->ahead);
    ft_model_unpin(worker->model); /* before logits go */
    free(state->counts);
    free(state->drafting);
    free(state->tokens);
    free(state->logits);
    ft_transform_destroy(&state->transform);
    free(state);
    worker->role_state = NULL;
}

static bool fill_state(struct role_state *state, const struct ft_worker *worker) {
    size_t n_seqs = (size_t)worker->params->max_num_seqs;
    state->row_stride = (worker->vocab_size + (int64_t)ROW_FLOATS - 1) / ROW_FLOATS * ROW_FLOATS;
    state->transform = ft_transform_create(worker->vocab_size);
    size_t bytes = n_seqs * (size_t)state->row_stride * sizeof(float);
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; /* to be pinned */
    state->logits = aligned_alloc(PAGE_BYTES, bytes);
    state->tokens = calloc((size_t)worker->len_max, sizeof *state->tokens);
    state->drafting = calloc(n_seqs, sizeof *state->drafting);
    state->counts = calloc(n_seqs, sizeof(struct ft_counts *));
    if (state->transform == NULL || state->logits == NULL || state->tokens == NULL ||
        state->drafting == NULL || state->counts == NULL)
        return false;
    for (; state->n_counts < (int32_t)n_seqs; state->n_counts++)
        if ((state->counts[state->n_counts] = ft_counts_create()) == NULL)
            return false;
    ft_model_pin(worker->model, state->logits, bytes);
    return true;
}

static enum ft_code open_role(struct ft_worker *worker, struct ft_err *err) {
    struct role_state *state = calloc(1, sizeof *state);
    worker->role_state = state;
    if (state == NULL || !fill_state(state, worker)) {
        close_role(worker);
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %d rows of %d logits",
                          worker->params->max_num_seqs, worker->vocab_size);
    }
    enum ft_code code = dw_ahead_create(&state->ahead, worker, err);
    if (code != FT_OK)
        close_role(worker);
    return code;
}

/* ---- plan ---- */

static bool is_greedy(const struct ft_wire_seq_step *in) {
    return !in->has_sampling || ft_sampling_is_greedy(&in->sampling);
}

static bool leaves_q(const struct ft_wire_seq_step *in) {
    return in->has_sampling && ft_rule_reads_q(&in->sampling);
}

static enum ft_code plan(const struct ft_worker *worker, const struct ft_wire_seq_step *in,
                         struct ft_step_need *need, struct ft_err *err) {
    (void)worker;
    if (in->n_logits > 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "n_logits is %u: a draft gives no logits",
                          in->n_logits);
    if (in->draft_len > FT_DRAFT_LEN_MAX)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "draft_len is %u: must be 0 to %d",
                          in->draft_len, FT_DRAFT_LEN_MAX);
    if (in->draft_len > 0 && in->n_tokens == 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "draft_len is %u without tokens: drafting starts behind a token",
                          in->draft_len);
    int32_t n = (int32_t)in->draft_len;
    *need = (struct ft_step_need){
        .n_logits = n > 0 ? 1 : 0,
        .n_rows = leaves_q(in) ? n : 0,
        .n_reserve = n > 1 ? n - 1 : 0, /* the last drafted token is not fed */
        .n_drafted = n,
    };
    return FT_OK;
}

/* ---- run ---- */

static enum ft_code count_tokens(struct ft_worker *worker, struct dw_drafting *d,
                                 struct ft_err *err) {
    struct role_state *state = worker->role_state;
    size_t len = (size_t)ft_kvseq_len(d->s->seq);
    size_t n_prompt = d->s->in->n_prompt < len ? d->s->in->n_prompt : len;
    ft_kvseq_copy_tokens(worker->seqs, d->s->seq, state->tokens);
    ft_counts_reset(d->counts);
    if (!ft_counts_add_prompt(d->counts, state->tokens, n_prompt) ||
        !ft_counts_add_output(d->counts, state->tokens + n_prompt, len - n_prompt))
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory to count %zu tokens", len);
    return FT_OK;
}

static enum ft_code begin(struct ft_worker *worker, struct ft_step_seq *s, int32_t idx,
                          struct ft_err *err) {
    struct role_state *state = worker->role_state;
    struct dw_drafting *d = &state->drafting[idx];
    *d = (struct dw_drafting){
        .s = s,
        .sampling = s->in->has_sampling ? s->in->sampling : ft_sampling_default(),
        .greedy = is_greedy(s->in),
        .leaves_q = leaves_q(s->in),
        .position = ft_kvseq_len(s->seq),
    };
    if (d->greedy)
        d->sampling.temperature = 0.0f;
    if (!ft_sampling_has_penalties(&d->sampling))
        return FT_OK;
    d->counts = state->counts[idx];
    return count_tokens(worker, d, err);
}

/* The next token of one sequence from its logits; q goes to its region row if a rule reads it. */
static enum ft_code propose(struct ft_worker *worker, const struct ft_step *step,
                            struct dw_drafting *d, const float *logits, struct ft_err *err) {
    struct role_state *state = worker->role_state;
    struct ft_row_context context = {
        .sampling = &d->sampling,
        .counts = d->counts,
        .drafted = d->ids,
        .n_drafted = (size_t)d->n_ids,
    };
    int32_t id = -1;
    enum ft_code code;
    if (d->greedy) {
        code =
            ft_transform_argmax(state->transform, logits, worker->vocab_size, &context, &id, err);
    } else {
        float *q = ft_transform_scratch(state->transform, 0), *row = NULL;
        bool is_host = ft_region_is_host(worker->region);
        if (d->leaves_q)
            row = ft_region_row_mut(worker->region, step->generation,
                                    (int64_t)d->s->out->first_row + d->n_ids);
        if (row != NULL && is_host)
            q = row;
        code = ft_transform_row(state->transform, logits, worker->vocab_size, &context, q, err);
        if (code == FT_OK)
            id = ft_rule_propose(&d->sampling, q, worker->vocab_size, (uint64_t)d->position,
                                 d->n_ids);
        if (code == FT_OK && row != NULL && !is_host) {
            struct ft_device *device = ft_model_device(worker->model);
            device->kind->copy(device, row, q, (size_t)worker->vocab_size * sizeof *q);
        }
        if (code == FT_OK && id < 0)
            code = ft_err_set(err, FT_E_REQ_NUMERIC, MODULE, "nothing to draw from");
    }
    if (code != FT_OK)
        return ft_err_prefix(err, "position %d", d->position);
    d->ids[d->n_ids++] = id;
    d->position++;
    return FT_OK;
}

/* Feed the token drafted last; its position was reserved when the step was planned. */
static enum ft_code feed(struct ft_worker *worker, struct dw_drafting *d,
                         struct ft_batch_seq *batch, struct ft_err *err) {
    int32_t *id = &d->ids[d->n_ids - 1], n_hit;
    struct ft_kvseq_tokens tokens = {.ids = id, .n = 1, .n_compute = 1};
    int32_t start = ft_kvseq_len(d->s->seq);
    enum ft_code code = ft_kvseq_append(worker->seqs, d->s->seq, &tokens, &n_hit, err);
    if (code != FT_OK)
        return ft_err_set(err, FT_E_PROC_INTERNAL, MODULE, "a reserved position was not there");
    *batch = (struct ft_batch_seq){
        .blocks = ft_kvseq_pages(d->s->seq),
        .start = start,
        .tokens = id,
        .n_tokens = 1,
        .n_logits = 1,
    };
    return FT_OK;
}

enum ft_code dw_drafting_end(struct ft_step *step, struct dw_drafting *d, struct ft_err *err) {
    size_t n = (size_t)d->n_ids;
    int32_t *ids = ft_arena_calloc(step->arena, n, sizeof *ids);
    if (ids == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %zu drafted ids", n);
    for (size_t i = 0; i < n; i++)
        ids[i] = d->ids[i];
    d->s->out->draft_ids = ids;
    d->s->out->n_draft_ids = n;
    d->s->out->cached = (uint32_t)ft_kvseq_len(d->s->seq);
    return FT_OK;
}

/* One token for each of the n sequences that draft; leaves those that go on in front, with their
 * batch entries, and returns in *n how many they are. */
static enum ft_code advance(struct ft_worker *worker, struct ft_step *step, int32_t *n,
                            struct ft_err *err) {
    struct role_state *state = worker->role_state;
    int32_t n_on = 0;
    for (int32_t i = 0; i < *n; i++) {
        struct dw_drafting *d = &state->drafting[i];
        struct ft_err seq_err = {0};
        enum ft_code code =
            propose(worker, step, d, state->logits + i * state->row_stride, &seq_err);
        if (code != FT_OK) {
            ft_step_fail_seq(worker, d->s,
                             code == FT_E_REQ_NUMERIC ? FT_WIRE_SEQ_NUMERIC : FT_WIRE_SEQ_INVALID,
                             seq_err.text);
            continue;
        }
        if (d->n_ids == (int32_t)d->s->in->draft_len) {
            code = dw_drafting_end(step, d, err);
        } else {
            state->drafting[n_on] = *d;
            code = feed(worker, &state->drafting[n_on], &step->batch[n_on], err);
            n_on++;
        }
        if (code != FT_OK)
            return code;
    }
    *n = n_on;
    return FT_OK;
}

/* Those that draft most first, those that do not draft last. */
static int by_draft_len(const void *a, const void *b) {
    const struct ft_step_seq *x = a, *y = b;
    uint32_t x_len = x->in->draft_len, y_len = y->in->draft_len;
    if (x_len != y_len)
        return x_len < y_len ? 1 : -1;
    return x->out < y->out ? -1 : x->out > y->out;
}

/* Tokens one after another, each drawn on the host. */
static enum ft_code run_here(struct ft_worker *worker, struct ft_step *step, int32_t n,
                             struct ft_err *err) {
    struct role_state *state = worker->role_state;
    enum ft_code code =
        ft_step_forward(worker, step->n_seqs, state->logits, state->row_stride, err);
    while (code == FT_OK && n > 0) {
        code = advance(worker, step, &n, err);
        if (code == FT_OK)
            code = ft_step_forward(worker, n, state->logits, state->row_stride, err);
    }
    if (code == FT_OK && !ft_region_is_host(worker->region)) { /* q rows may be on their way */
        struct ft_device *device = ft_model_device(worker->model);
        code = device->kind->sync(device, err);
    }
    return code;
}

static enum ft_code run(struct ft_worker *worker, struct ft_step *step, struct ft_err *err) {
    struct role_state *state = worker->role_state;
    int32_t n = 0;
    bool done = false;
    enum ft_code code = FT_OK;
    qsort(step->seqs, (size_t)step->n_seqs, sizeof *step->seqs, by_draft_len);
    for (int32_t i = 0; code == FT_OK && i < step->n_seqs; i++) {
        step->batch[i] = ft_step_batch_seq(&step->seqs[i]);
        if (step->seqs[i].need.n_logits > 0)
            code = begin(worker, &step->seqs[i], n++, err);
    }
    if (code == FT_OK)
        code = dw_ahead_run(state->ahead, worker, step, state->drafting, n, &done, err);
    return code != FT_OK || done ? code : run_here(worker, step, n, err);
}

static void notify(enum ft_log_level level, const char *line) {
    ft_log(level, "%s", line);
}

const struct ft_worker_role dw_draft_role = {
    .name = "draft",
    .service = FT_WIRE_DRAFT_SERVICE,
    .step_method = "DraftStep",
    .reloads = true,
    .rows_per_seq = FT_DRAFT_LEN_MAX,
    .max_draft_len = FT_DRAFT_LEN_MAX,
    .device_rows = true,
    .open = open_role,
    .close = close_role,
    .plan = plan,
    .run = run,
    .notify = notify,
};
