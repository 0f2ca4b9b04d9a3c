#include "common/wire/worker.h"

#include "common/wire/pb.h"
#include "foretoken/worker/v1/worker.pb-c.h"

#define MODULE "wire"

void ft_wire_encode_describe(const struct ft_wire_describe *in, struct ft_buf *out) {
    Foretoken__Worker__V1__DescribeResponse m = FORETOKEN__WORKER__V1__DESCRIBE_RESPONSE__INIT;
    m.epoch = in->epoch;
    m.role = FT_PB_BYTES(in->role);
    m.model_dir = FT_PB_BYTES(in->model_dir);
    m.architecture = FT_PB_BYTES(in->architecture);
    m.vocab_size = in->vocab_size;
    m.tokenizer_fingerprint = FT_PB_BYTES(in->tokenizer_fingerprint);
    m.max_model_len = in->max_model_len;
    m.kv_block_tokens = in->kv_block_tokens;
    m.kv_blocks_total = in->kv_blocks_total;
    m.dtype = FT_PB_BYTES(in->dtype);
    m.backend = FT_PB_BYTES(in->backend);
    m.device_uuid = FT_PB_BYTES(in->device_uuid);
    m.num_parameters = in->n_parameters;
    m.weight_bytes = in->weight_bytes;
    m.max_step_tokens = in->max_step_tokens;
    m.max_step_sequences = in->max_step_sequences;
    m.max_step_rows = in->max_step_rows;
    m.max_draft_len = in->max_draft_len;
    m.version = FT_PB_BYTES(in->version);
    m.weights_fingerprint = in->weights_fingerprint;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_describe(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_describe *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__describe_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__DescribeResponse *m = raw;
    if (m->tokenizer_fingerprint.len != FT_WIRE_FINGERPRINT_BYTES)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "DescribeResponse.tokenizer_fingerprint has %zu bytes, must have %d",
                          m->tokenizer_fingerprint.len, FT_WIRE_FINGERPRINT_BYTES);
    *out = (struct ft_wire_describe){
        .epoch = m->epoch,
        .role = FT_PB_STR(m->role),
        .model_dir = FT_PB_STR(m->model_dir),
        .architecture = FT_PB_STR(m->architecture),
        .vocab_size = m->vocab_size,
        .tokenizer_fingerprint = FT_PB_STR(m->tokenizer_fingerprint),
        .max_model_len = m->max_model_len,
        .kv_block_tokens = m->kv_block_tokens,
        .kv_blocks_total = m->kv_blocks_total,
        .dtype = FT_PB_STR(m->dtype),
        .backend = FT_PB_STR(m->backend),
        .device_uuid = FT_PB_STR(m->device_uuid),
        .n_parameters = m->num_parameters,
        .weight_bytes = m->weight_bytes,
        .max_step_tokens = m->max_step_tokens,
        .max_step_sequences = m->max_step_sequences,
        .max_step_rows = m->max_step_rows,
        .max_draft_len = m->max_draft_len,
        .version = FT_PB_STR(m->version),
        .weights_fingerprint = m->weights_fingerprint,
    };
    return FT_OK;
}

void ft_wire_encode_attach(const struct ft_wire_attach *in, struct ft_buf *out) {
    Foretoken__Worker__V1__AttachRequest m = FORETOKEN__WORKER__V1__ATTACH_REQUEST__INIT;
    m.epoch = in->epoch;
    m.coordinator_epoch = in->coordinator_epoch;
    m.mapped = in->mapped;
    m.device_rows = in->device_rows;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_attach(struct ft_str in, struct ft_arena *arena,
                                   struct ft_wire_attach *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__attach_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__AttachRequest *m = raw;
    *out = (struct ft_wire_attach){m->epoch, m->coordinator_epoch, m->mapped != 0,
                                   m->device_rows != 0};
    return FT_OK;
}

void ft_wire_encode_attached(const struct ft_wire_attached *in, struct ft_buf *out) {
    Foretoken__Worker__V1__AttachResponse m = FORETOKEN__WORKER__V1__ATTACH_RESPONSE__INIT;
    m.shm_name = FT_PB_BYTES(in->shm_name);
    m.region_bytes = in->region_bytes;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_attached(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_attached *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__attach_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__AttachResponse *m = raw;
    *out = (struct ft_wire_attached){FT_PB_STR(m->shm_name), m->region_bytes};
    return FT_OK;
}

void ft_wire_encode_release(const struct ft_wire_release *in, struct ft_buf *out) {
    Foretoken__Worker__V1__ReleaseRequest m = FORETOKEN__WORKER__V1__RELEASE_REQUEST__INIT;
    m.epoch = in->epoch;
    m.n_seq_ids = in->n_seq_ids;
    m.seq_ids = (uint64_t *)(uintptr_t)in->seq_ids;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_release(struct ft_str in, struct ft_arena *arena,
                                    struct ft_wire_release *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__release_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__ReleaseRequest *m = raw;
    code = ft_pb_check_count("ReleaseRequest.seq_ids", m->n_seq_ids, FT_WIRE_LIST_MAX, err);
    if (code != FT_OK)
        return code;
    *out = (struct ft_wire_release){m->epoch, m->seq_ids, m->n_seq_ids};
    return FT_OK;
}

void ft_wire_encode_reload(struct ft_str model_dir, struct ft_buf *out) {
    Foretoken__Worker__V1__ReloadRequest m = FORETOKEN__WORKER__V1__RELOAD_REQUEST__INIT;
    m.model_dir = FT_PB_BYTES(model_dir);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_reload(struct ft_str in, struct ft_arena *arena,
                                   struct ft_str *model_dir, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__reload_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__ReloadRequest *m = raw;
    *model_dir = FT_PB_STR(m->model_dir);
    return FT_OK;
}

void ft_wire_encode_reloaded(const struct ft_wire_reloaded *in, struct ft_buf *out) {
    Foretoken__Worker__V1__ReloadResponse m = FORETOKEN__WORKER__V1__RELOAD_RESPONSE__INIT;
    m.epoch = in->epoch;
    m.load_nanos = in->load_nanos;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_reloaded(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_reloaded *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__reload_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__ReloadResponse *m = raw;
    *out = (struct ft_wire_reloaded){m->epoch, m->load_nanos};
    return FT_OK;
}

void ft_wire_encode_worker_stats(const struct ft_wire_worker_stats *in, struct ft_buf *out) {
    Foretoken__Worker__V1__GetStatsResponse m = FORETOKEN__WORKER__V1__GET_STATS_RESPONSE__INIT;
    m.epoch = in->epoch;
    m.steps = in->steps;
    m.step_tokens = in->step_tokens;
    m.step_nanos = in->step_nanos;
    m.kv_blocks_total = in->kv_blocks_total;
    m.kv_blocks_free = in->kv_blocks_free;
    m.kv_blocks_cached = in->kv_blocks_cached;
    m.sequences = in->sequences;
    m.resident_bytes = in->resident_bytes;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_worker_stats(struct ft_str in, struct ft_arena *arena,
                                         struct ft_wire_worker_stats *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__worker__v1__get_stats_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__Worker__V1__GetStatsResponse *m = raw;
    *out = (struct ft_wire_worker_stats){
        .epoch = m->epoch,
        .steps = m->steps,
        .step_tokens = m->step_tokens,
        .step_nanos = m->step_nanos,
        .kv_blocks_total = m->kv_blocks_total,
        .kv_blocks_free = m->kv_blocks_free,
        .kv_blocks_cached = m->kv_blocks_cached,
        .sequences = m->sequences,
        .resident_bytes = m->resident_bytes,
    };
    return FT_OK;
}
