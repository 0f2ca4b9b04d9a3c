#include <math.h>

#include "common/wire/pb.h"
#include "common/wire/worker.h"
#include "foretoken/worker/v1/worker.pb-c.h"

#define MODULE "wire"

/* ---- step ----------------------------------------------------------------------------------- */

/* Borrows the two arrays, [FT_SAMPLING_LIST_MAX]. */
static Foretoken__Worker__V1__DraftSampling
sampling_message(const struct ft_wire_seq_step *in, int32_t *bias_ids, float *bias_values) {
    Foretoken__Worker__V1__DraftSampling m = FORETOKEN__WORKER__V1__DRAFT_SAMPLING__INIT;
    const struct ft_sampling *s = &in->sampling;
    m.temperature = s->temperature;
    m.top_p = s->top_p;
    m.top_k = s->top_k;
    m.min_p = s->min_p;
    m.frequency_penalty = s->frequency_penalty;
    m.presence_penalty = s->presence_penalty;
    m.repetition_penalty = s->repetition_penalty;
    m.seed = s->seed;
    m.coupled = s->coupled;
    m.n_prompt = in->n_prompt;
    m.n_allowed_ids = s->n_allowed;
    m.allowed_ids = (int32_t *)(uintptr_t)s->allowed;
    m.n_banned_ids = s->n_banned;
    m.banned_ids = (int32_t *)(uintptr_t)s->banned;
    for (size_t i = 0; i < s->n_bias; i++) {
        bias_ids[i] = s->bias[i].id;
        bias_values[i] = s->bias[i].value;
    }
    m.n_bias_ids = m.n_bias_values = s->n_bias;
    m.bias_ids = bias_ids;
    m.bias_values = bias_values;
    return m;
}

static void encode_seq_step(const struct ft_wire_seq_step *in, struct ft_buf *out) {
    Foretoken__Worker__V1__SequenceStep m = FORETOKEN__WORKER__V1__SEQUENCE_STEP__INIT;
    Foretoken__Worker__V1__DraftSampling sampling;
    int32_t bias_ids[FT_SAMPLING_LIST_MAX];
    float bias_values[FT_SAMPLING_LIST_MAX];
    m.seq_id = in->seq_id;
    m.keep = in->keep;
    m.n_tokens = in->n_tokens;
    m.tokens = (int32_t *)(uintptr_t)in->tokens;
    m.n_logits = in->n_logits;
    m.draft_len = in->draft_len;
    if (in->has_sampling) {
        FT_ASSERT(in->sampling.n_bias <= FT_SAMPLING_LIST_MAX);
        sampling = sampling_message(in, bias_ids, bias_values);
        m.sampling = &sampling;
    }
    ft_pb_pack_message(&foretoken__worker__v1__step_request__descriptor, "sequences", &m.base, out);
}

void ft_wire_encode_step(const struct ft_wire_step *in, struct ft_buf *out) {
    Foretoken__Worker__V1__StepRequest m = FORETOKEN__WORKER__V1__STEP_REQUEST__INIT;
    m.step_id = in->step_id;
    m.epoch = in->epoch;
    m.generation = in->generation;
    m.coordinator_epoch = in->coordinator_epoch;
    m.n_release = in->n_release;
    m.release = (uint64_t *)(uintptr_t)in->release;
    ft_pb_pack(&m.base, out);
    for (size_t i = 0; i < in->n_seqs; i++)
        encode_seq_step(&in->seqs[i], out);
}

static enum ft_code check_number(const char *field, float value, float min, float max,
                                 struct ft_err *err) {
    if (value >= min && value <= max) /* false for a NaN */
        return FT_OK;
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "DraftSampling.%s is %g: must be %g to %g",
                      field, (double)value, (double)min, (double)max);
}

/* A worker computes with these as they are, so nothing that makes a NaN may pass. */
static enum ft_code check_sampling(const struct ft_sampling *s, struct ft_err *err) {
    const struct {
        const char *field;
        float value, min, max;
    } rows[] = {
        {"temperature", s->temperature, 0.0f, 100.0f},
        {"top_p", s->top_p, 0.0f, 1.0f},
        {"min_p", s->min_p, 0.0f, 1.0f},
        {"frequency_penalty", s->frequency_penalty, -2.0f, 2.0f},
        {"presence_penalty", s->presence_penalty, -2.0f, 2.0f},
        {"repetition_penalty", s->repetition_penalty, 0.01f, 100.0f},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enum ft_code code =
            check_number(rows[i].field, rows[i].value, rows[i].min, rows[i].max, err);
        if (code != FT_OK)
            return code;
    }
    if (s->top_k < 0)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "DraftSampling.top_k is %d: must be at least 0", s->top_k);
    return FT_OK;
}

static enum ft_code check_ascending(const char *field, const int32_t *ids, size_t n,
                                    struct ft_err *err) {
    enum ft_code code = ft_pb_check_count(field, n, FT_SAMPLING_LIST_MAX, err);
    for (size_t i = 1; code == FT_OK && i < n; i++)
        if (ids[i] <= ids[i - 1])
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%s[%zu] is %d after %d: must ascend",
                              field, i, ids[i], ids[i - 1]);
    return code;
}

static enum ft_code decode_bias(const Foretoken__Worker__V1__DraftSampling *m,
                                struct ft_arena *arena, struct ft_sampling *out,
                                struct ft_err *err) {
    enum ft_code code = check_ascending("DraftSampling.bias_ids", m->bias_ids, m->n_bias_ids, err);
    if (code != FT_OK)
        return code;
    if (m->n_bias_values != m->n_bias_ids)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "DraftSampling has %zu bias_ids but %zu bias_values", m->n_bias_ids,
                          m->n_bias_values);
    if (m->n_bias_ids == 0)
        return FT_OK;
    struct ft_bias *bias = ft_arena_calloc(arena, m->n_bias_ids, sizeof *bias);
    if (bias == NULL)
        return ft_pb_arena_full("DraftSampling", err);
    for (size_t i = 0; i < m->n_bias_ids; i++) {
        if (!isfinite(m->bias_values[i]))
            return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                              "DraftSampling.bias_values[%zu] is not finite", i);
        bias[i] = (struct ft_bias){m->bias_ids[i], m->bias_values[i]};
    }
    out->bias = bias;
    out->n_bias = m->n_bias_ids;
    return FT_OK;
}

static enum ft_code decode_sampling(const Foretoken__Worker__V1__DraftSampling *m,
                                    struct ft_arena *arena, struct ft_wire_seq_step *out,
                                    struct ft_err *err) {
    out->has_sampling = true;
    out->n_prompt = m->n_prompt;
    out->sampling = (struct ft_sampling){
        .temperature = m->temperature,
        .top_p = m->top_p,
        .top_k = m->top_k,
        .min_p = m->min_p,
        .frequency_penalty = m->frequency_penalty,
        .presence_penalty = m->presence_penalty,
        .repetition_penalty = m->repetition_penalty,
        .seed = m->seed,
        .coupled = m->coupled,
        .allowed = m->allowed_ids,
        .n_allowed = m->n_allowed_ids,
        .banned = m->banned_ids,
        .n_banned = m->n_banned_ids,
    };
    enum ft_code code = check_sampling(&out->sampling, err);
    if (code == FT_OK)
        code = check_ascending("DraftSampling.allowed_ids", m->allowed_ids, m->n_allowed_ids, err);
    if (code == FT_OK)
        code = check_ascending("DraftSampling.banned_ids", m->banned_ids, m->n_banned_ids, err);
    return code != FT_OK ? code : decode_bias(m, arena, &out->sampling, err);
}

static enum ft_code decode_seq_step(const Foretoken__Worker__V1__SequenceStep *m,
                                    struct ft_arena *arena, struct ft_wire_seq_step *out,
                                    struct ft_err *err) {
    enum ft_code code =
        ft_pb_check_count("SequenceStep.tokens", m->n_tokens, FT_WIRE_TOKENS_MAX, err);
    if (code != FT_OK)
        return code;
    *out = (struct ft_wire_seq_step){
        .seq_id = m->seq_id,
        .keep = m->keep,
        .tokens = m->tokens,
        .n_tokens = m->n_tokens,
        .n_logits = m->n_logits,
        .draft_len = m->draft_len,
    };
    return m->sampling == NULL ? FT_OK : decode_sampling(m->sampling, arena, out, err);
}

enum ft_code ft_wire_decode_step(struct ft_str in, struct ft_arena *arena, struct ft_wire_step *out,
                                 struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__step_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__StepRequest *m = raw;
    code = ft_pb_check_count("StepRequest.sequences", m->n_sequences, FT_WIRE_STEP_SEQS_MAX, err);
    if (code != FT_OK)
        return code;
    code = ft_pb_check_count("StepRequest.release", m->n_release, FT_WIRE_LIST_MAX, err);
    if (code != FT_OK)
        return code;
    if (m->generation > 1)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "StepRequest.generation is %u: must be 0 or 1", m->generation);
    struct ft_wire_seq_step *seqs = ft_arena_calloc(arena, m->n_sequences, sizeof *seqs);
    if (seqs == NULL)
        return ft_pb_arena_full("StepRequest", err);
    for (size_t i = 0; i < m->n_sequences; i++) {
        code = decode_seq_step(m->sequences[i], arena, &seqs[i], err);
        if (code != FT_OK)
            return code;
    }
    *out = (struct ft_wire_step){
        .step_id = m->step_id,
        .epoch = m->epoch,
        .generation = m->generation,
        .seqs = seqs,
        .n_seqs = m->n_sequences,
        .coordinator_epoch = m->coordinator_epoch,
        .release = m->release,
        .n_release = m->n_release,
    };
    return FT_OK;
}

/* ---- reply ---------------------------------------------------------------------------------- */

void ft_wire_encode_step_reply(const struct ft_wire_step_reply *in, struct ft_buf *out) {
    Foretoken__Worker__V1__StepResponse m = FORETOKEN__WORKER__V1__STEP_RESPONSE__INIT;
    m.step_id = in->step_id;
    m.epoch = in->epoch;
    m.compute_nanos = in->compute_nanos;
    m.begin_nanos = in->begin_nanos;
    ft_pb_pack(&m.base, out);
    for (size_t i = 0; i < in->n_results; i++) {
        const struct ft_wire_seq_result *r = &in->results[i];
        Foretoken__Worker__V1__SequenceResult s = FORETOKEN__WORKER__V1__SEQUENCE_RESULT__INIT;
        s.seq_id = r->seq_id;
        s.status = (Foretoken__Worker__V1__SequenceStatus)r->status;
        s.cached = r->cached;
        s.first_row = r->first_row;
        s.n_rows = r->n_rows;
        s.n_draft_ids = r->n_draft_ids;
        s.draft_ids = (int32_t *)(uintptr_t)r->draft_ids;
        s.detail = FT_PB_BYTES(r->detail);
        s.prefix_hit = r->prefix_hit;
        ft_pb_pack_message(&foretoken__worker__v1__step_response__descriptor, "results", &s.base,
                           out);
    }
}

static enum ft_code decode_result(const Foretoken__Worker__V1__SequenceResult *m,
                                  struct ft_wire_seq_result *out, struct ft_err *err) {
    int status = (int)m->status;
    if (status < FT_WIRE_SEQ_OK || status > FT_WIRE_SEQ_NUMERIC)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "SequenceResult.status is %d: must be 0 to %d", status,
                          FT_WIRE_SEQ_NUMERIC);
    enum ft_code code =
        ft_pb_check_count("SequenceResult.draft_ids", m->n_draft_ids, FT_DRAFT_LEN_MAX, err);
    if (code != FT_OK)
        return code;
    *out = (struct ft_wire_seq_result){
        .seq_id = m->seq_id,
        .status = (enum ft_wire_seq_status)status,
        .cached = m->cached,
        .first_row = m->first_row,
        .n_rows = m->n_rows,
        .draft_ids = m->draft_ids,
        .n_draft_ids = m->n_draft_ids,
        .detail = FT_PB_STR(m->detail),
        .prefix_hit = m->prefix_hit,
    };
    return FT_OK;
}

enum ft_code ft_wire_decode_step_reply(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_step_reply *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__step_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__StepResponse *m = raw;
    code = ft_pb_check_count("StepResponse.results", m->n_results, FT_WIRE_STEP_SEQS_MAX, err);
    if (code != FT_OK)
        return code;
    struct ft_wire_seq_result *results = ft_arena_calloc(arena, m->n_results, sizeof *results);
    if (results == NULL)
        return ft_pb_arena_full("StepResponse", err);
    for (size_t i = 0; i < m->n_results; i++) {
        code = decode_result(m->results[i], &results[i], err);
        if (code != FT_OK)
            return code;
    }
    *out = (struct ft_wire_step_reply){.step_id = m->step_id,
                                       .epoch = m->epoch,
                                       .compute_nanos = m->compute_nanos,
                                       .begin_nanos = m->begin_nanos,
                                       .results = results,
                                       .n_results = m->n_results};
    return FT_OK;
}
