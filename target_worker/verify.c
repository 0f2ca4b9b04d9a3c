#include "target_worker/verify.h"

#include <stdio.h>

#include "common/worker/step.h"

#define MODULE "verify"

static enum ft_code open_role(struct ft_worker *worker, struct ft_err *err) {
    (void)worker; /* logits go straight into the region: there is nothing to keep */
    (void)err;
    return FT_OK;
}

static void close_role(struct ft_worker *worker) {
    (void)worker;
}

static enum ft_code plan(const struct ft_worker *worker, const struct ft_wire_seq_step *in,
                         struct ft_step_need *need, struct ft_err *err) {
    (void)worker;
    if (in->draft_len > 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "draft_len is %u: a target drafts nothing",
                          in->draft_len);
    if (in->n_logits > in->n_tokens)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "n_logits is %u: must be 0 to the %zu tokens of the step", in->n_logits,
                          in->n_tokens);
    int32_t n = (int32_t)in->n_logits;
    *need = (struct ft_step_need){.n_logits = n, .n_rows = n};
    return FT_OK;
}

/* A first row with a NaN or +inf fails its own sequence. Rows behind it may be those of drafts that
 * will be rejected: who decides looks at what is read of them, and at all rows that lie on a GPU.
 */
static void check_first_row(struct ft_worker *worker, const struct ft_step *step,
                            struct ft_step_seq *s) {
    if (!ft_region_is_host(worker->region) || s->need.n_rows == 0)
        return;
    const float *row = ft_region_row(worker->region, step->generation, (int64_t)s->out->first_row);
    int32_t id = ft_step_find_non_finite(row, worker->vocab_size);
    if (id < 0)
        return;
    char text[128];
    int32_t position = ft_kvseq_len(s->seq) - s->need.n_rows;
    snprintf(text, sizeof text, "non-finite logits: position %d, token id %d is %g", position, id,
             (double)row[id]);
    ft_step_fail_seq(worker, s, FT_WIRE_SEQ_NUMERIC, text);
}

static enum ft_code run(struct ft_worker *worker, struct ft_step *step, struct ft_err *err) {
    for (int32_t i = 0; i < step->n_seqs; i++)
        step->batch[i] = ft_step_batch_seq(&step->seqs[i]);
    /* Logits rows come in order of sequences and positions, and so do rows of the region. */
    enum ft_code code = ft_step_forward(worker, step->n_seqs,
                                        ft_region_row_mut(worker->region, step->generation, 0),
                                        ft_region_row_stride(worker->region), err);
    for (int32_t i = 0; code == FT_OK && i < step->n_seqs; i++)
        check_first_row(worker, step, &step->seqs[i]);
    return code;
}

static void notify(enum ft_log_level level, const char *line) {
    ft_log(level, "%s", line);
}

const struct ft_worker_role tw_verify_role = {
    .name = "target",
    .service = FT_WIRE_TARGET_SERVICE,
    .step_method = "Verify",
    .rows_per_seq = FT_DRAFT_LEN_MAX + 1,
    .max_draft_len = 0,
    .rows_from_model = true,
    .device_rows = true,
    .open = open_role,
    .close = close_role,
    .plan = plan,
    .run = run,
    .notify = notify,
};
