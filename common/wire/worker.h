/* worker (wire): messages of foretoken.worker.v1 as plain structs.
 * Owns:    nothing; decoded messages live in the arena that was passed in.
 * Runs in: coordinator, workers.
 * Never:   lets a protobuf-c type out. Encoders append to a buffer; decoders check what proto types
 *          cannot say (sizes, limits) and fail with FT_E_REQ_INVALID naming the field. */
#ifndef FT_WIRE_WORKER_H
#define FT_WIRE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/sampling.h"
#include "common/wire/limits.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_TARGET_SERVICE "/foretoken.worker.v1.TargetWorker/"
#define FT_WIRE_DRAFT_SERVICE "/foretoken.worker.v1.DraftWorker/"

struct ft_wire_describe { /* DescribeResponse */
    uint64_t epoch;
    struct ft_str role, model_dir, architecture;
    uint32_t vocab_size;
    struct ft_str tokenizer_fingerprint; /* 32 bytes */
    uint32_t max_model_len;
    uint32_t kv_block_tokens;
    uint64_t kv_blocks_total;
    struct ft_str dtype, backend, device_uuid;
    uint64_t n_parameters;
    uint64_t weight_bytes;
    uint32_t max_step_tokens, max_step_sequences, max_step_rows, max_draft_len;
    struct ft_str version;
    uint64_t weights_fingerprint; /* 0: not told */
};

struct ft_wire_attach { /* AttachRequest */
    uint64_t epoch;
    uint64_t coordinator_epoch;
    bool mapped;
    bool device_rows;
};

struct ft_wire_attached { /* AttachResponse */
    struct ft_str shm_name;
    uint64_t region_bytes;
};

struct ft_wire_release { /* ReleaseRequest */
    uint64_t epoch;
    const uint64_t *seq_ids;
    size_t n_seq_ids;
};

struct ft_wire_reloaded { /* ReloadResponse */
    uint64_t epoch;
    uint64_t load_nanos;
};

struct ft_wire_worker_stats { /* GetStatsResponse */
    uint64_t epoch;
    uint64_t steps, step_tokens, step_nanos;
    uint64_t kv_blocks_total, kv_blocks_free, kv_blocks_cached;
    uint32_t sequences;
    uint64_t resident_bytes;
};

/* Decoded sampling is in the ranges of inference.proto, its lists ascend. Whether the rest fits is
 * the worker's to say, by sequence: keep, token ids, n_logits and draft_len pass as they came. */
struct ft_wire_seq_step { /* SequenceStep */
    uint64_t seq_id;
    uint32_t keep;
    const int32_t *tokens;
    size_t n_tokens;
    uint32_t n_logits;
    uint32_t draft_len;
    bool has_sampling;
    struct ft_sampling sampling; /* valid when has_sampling; lists at most FT_SAMPLING_LIST_MAX */
    uint32_t n_prompt;           /* travels with sampling: 0 without */
};

struct ft_wire_step { /* StepRequest */
    uint64_t step_id;
    uint64_t epoch;
    uint32_t generation;
    const struct ft_wire_seq_step *seqs;
    size_t n_seqs;
    uint64_t coordinator_epoch;
    const uint64_t *release; /* sequences to forget first */
    size_t n_release;
};

enum ft_wire_seq_status {
    FT_WIRE_SEQ_OK = 0,
    FT_WIRE_SEQ_LOST = 1,
    FT_WIRE_SEQ_NO_BLOCKS = 2,
    FT_WIRE_SEQ_INVALID = 3,
    FT_WIRE_SEQ_NUMERIC = 4
};

struct ft_wire_seq_result { /* SequenceResult */
    uint64_t seq_id;
    enum ft_wire_seq_status status;
    uint32_t cached;
    uint32_t first_row, n_rows;
    const int32_t *draft_ids;
    size_t n_draft_ids;
    struct ft_str detail;
    uint32_t prefix_hit;
};

struct ft_wire_step_reply { /* StepResponse */
    uint64_t step_id;
    uint64_t epoch;
    uint64_t compute_nanos;
    const struct ft_wire_seq_result *results;
    size_t n_results;
    uint64_t begin_nanos;
};

/* Encoders append; check out->failed once. */
void ft_wire_encode_describe(const struct ft_wire_describe *in, struct ft_buf *out);
void ft_wire_encode_attach(const struct ft_wire_attach *in, struct ft_buf *out);
void ft_wire_encode_attached(const struct ft_wire_attached *in, struct ft_buf *out);
void ft_wire_encode_release(const struct ft_wire_release *in, struct ft_buf *out);
void ft_wire_encode_reload(struct ft_str model_dir, struct ft_buf *out); /* ReloadRequest */
void ft_wire_encode_reloaded(const struct ft_wire_reloaded *in, struct ft_buf *out);
void ft_wire_encode_worker_stats(const struct ft_wire_worker_stats *in, struct ft_buf *out);
void ft_wire_encode_step(const struct ft_wire_step *in, struct ft_buf *out);
void ft_wire_encode_step_reply(const struct ft_wire_step_reply *in, struct ft_buf *out);

enum ft_code ft_wire_decode_describe(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_describe *out, struct ft_err *err);
enum ft_code ft_wire_decode_attach(struct ft_str in, struct ft_arena *arena,
                                   struct ft_wire_attach *out, struct ft_err *err);
enum ft_code ft_wire_decode_attached(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_attached *out, struct ft_err *err);
enum ft_code ft_wire_decode_release(struct ft_str in, struct ft_arena *arena,
                                    struct ft_wire_release *out, struct ft_err *err);
enum ft_code ft_wire_decode_reload(struct ft_str in, struct ft_arena *arena,
                                   struct ft_str *model_dir, struct ft_err *err);
enum ft_code ft_wire_decode_reloaded(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_reloaded *out, struct ft_err *err);
enum ft_code ft_wire_decode_worker_stats(struct ft_str in, struct ft_arena *arena,
                                         struct ft_wire_worker_stats *out, struct ft_err *err);
enum ft_code ft_wire_decode_step(struct ft_str in, struct ft_arena *arena, struct ft_wire_step *out,
                                 struct ft_err *err);
enum ft_code ft_wire_decode_step_reply(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_step_reply *out, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
