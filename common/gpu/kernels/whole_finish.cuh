/* whole_finish: ends of tiles within the whole step's kernel, by warps of their own: they add up what
 * others have summed up, and write outputs.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   adds up in another order than linear.cu. */
#ifndef FT_GPU_KERNELS_WHOLE_FINISH_CUH
#define FT_GPU_KERNELS_WHOLE_FINISH_CUH

#include "common/gpu/kernels/whole.cuh"

static __device__ __forceinline__ const struct ft_whole_layer &layer_of(const struct shared &s,
                                                                        int32_t stage) {
    return s.small->layers[stage / WHOLE_HEAD % 2];
}

/* Where a lane's output of a tile goes, and what is done to it on the way: known before its sums
 * are. lane ^ 8 has the other output of its pair. */
struct tile_end {
    int32_t row; /* one that there is */
    bool is_there, has_bias, is_rotated;
    float bias, before, cosine, sine;
    char *to;
    /* Of o and down: the norm that stands before the next stage, and where what it makes of the
     * output goes; NULL: the head's, which is not for all rows. */
    float weight;
    char *normed;
    float *squares; /* of the tile's sixteen outputs */
};

/* q and k are rotated; k and v go into their KV slot. */
static __device__ __forceinline__ void prepare_qkv(const struct ft_op_whole &op,
                                                   const struct shared &s, float *kv,
                                                   struct whole_qkv at, struct tile_end &end) {
    int32_t dim = op.head_dim, n_pairs = dim / 2, out = k_thread() % TILE;
    int32_t pair = at.pair + out % HALF, d = out >= HALF ? pair + n_pairs : pair;
    end.is_rotated = at.part < 2;
    end.cosine = s.angles[end.row * dim + pair];
    end.sine = s.angles[end.row * dim + n_pairs + pair];
    if (at.part == 0) {
        end.to = (char *)(op.q + ((int64_t)end.row * op.n_heads + at.head) * dim + d);
        return;
    }
    int32_t slot = s.small->slots[end.row], in_block = slot % FT_OPS_KV_BLOCK;
    float *keys = kv + slot / FT_OPS_KV_BLOCK * ft_kv_block_floats(op.n_kv_heads, dim) +
                  at.head * ft_kv_head_floats(dim);
    if (at.part == 1)
        end.to = (char *)(keys + d * FT_OPS_KV_BLOCK + in_block);
    else /* a head has no padding here */
        end.to = (char *)(keys + (FT_OPS_KV_BLOCK + in_block) * dim + d);
}

/* The bias of a lane's output, or NULL. */
static __device__ __forceinline__ const float *bias_of(const struct whole_args &a,
                                                       const struct ft_whole_layer &layer,
                                                       enum whole_kind kind, int32_t tile,
                                                       struct whole_qkv at) {
    int32_t out = k_thread() % TILE, first = tile * TILE + out;
    bool is_high = out >= HALF;
    const float *bias = NULL;
    if (kind == WHOLE_QKV) {
        bias = at.part == 0 ? layer.q_bias : at.part == 1 ? layer.k_bias : layer.v_bias;
        first = at.head * a.op.head_dim + at.pair + out % HALF + (is_high ? a.op.head_dim / 2 : 0);
    } else if (kind == WHOLE_GATE_UP) {
        bias = is_high ? layer.up_bias : layer.gate_bias;
        first = tile * HALF + out % HALF;
    } else if (kind != WHOLE_HEAD) {
        bias = kind == WHOLE_O ? layer.o_bias : layer.down_bias;
    }
    return bias == NULL ? NULL : bias + first;
}

/* o and down change x: the residual, and what the next norm makes of it. */
static __device__ __forceinline__ void prepare_added(const struct ft_op_whole &op,
                                                     const struct shared &s, int32_t stage,
                                                     int32_t tile, struct tile_end &end) {
    int32_t column = tile * TILE + k_thread() % TILE, layer = stage / WHOLE_HEAD;
    float *x = op.x + (int64_t)end.row * op.hidden + column;
    const float *norm = stage % WHOLE_HEAD == WHOLE_O ? layer_of(s, stage).mlp_norm
                        : layer + 1 < op.n_layers     ? s.small->layers[(layer + 1) % 2].attn_norm
                                                      : NULL;
    end.before = __ldcg(x);
    end.to = (char *)x;
    if (norm == NULL)
        return;
    end.weight = __ldg(norm + column);
    end.normed = parts_at((char *)op.normed, op.n_rows, end.row, column);
    end.squares = op.squares + end.row * (op.hidden / TILE) + tile;
}

static __device__ __forceinline__ struct tile_end prepare(const struct whole_args &a,
                                                          const struct shared &s, int32_t stage,
                                                          int32_t tile, int32_t row) {
    const struct ft_op_whole &op = a.op;
    enum whole_kind kind = whole_kind_of(a, stage);
    const struct ft_whole_layer &layer = layer_of(s, stage);
    int32_t out = k_thread() % TILE, n_rows = kind == WHOLE_HEAD ? op.n_picks : op.n_rows;
    struct tile_end end = {};
    struct whole_qkv at = {};
    end.is_there = row < n_rows;
    end.row = min(row, n_rows - 1);
    if (kind == WHOLE_QKV) {
        at = whole_qkv_at(op, tile);
        prepare_qkv(op, s, layer.kv, at, end);
    } else if (kind == WHOLE_GATE_UP) {
        end.is_there = end.is_there && out < HALF;
        end.to = parts_at((char *)op.gate, op.n_rows, end.row, tile * HALF + out % HALF);
    } else if (kind == WHOLE_HEAD) {
        end.is_there = end.is_there && tile * TILE + out < op.vocab;
        end.to = (char *)(op.rows + end.row * op.row_stride + tile * TILE + out);
    } else {
        prepare_added(op, s, stage, tile, end);
    }
    const float *bias = op.has_biases ? bias_of(a, layer, kind, tile, at) : NULL;
    end.has_bias = bias != NULL;
    end.bias = bias != NULL ? __ldg(bias) : 0.0f;
    return end;
}

/* y: the sum of the output over the slices, times what the norm scales its row with. */
static __device__ __forceinline__ void finish(enum whole_kind kind, const struct tile_end &end,
                                              float y) {
    if (end.has_bias)
        y = __fadd_rn(y, end.bias);
    float other = __shfl_xor_sync(0xFFFFFFFFu, y, HALF);
    bool is_high = k_thread() % TILE >= HALF;
    if (end.is_rotated)
        y = is_high ? __fadd_rn(__fmul_rn(y, end.cosine), __fmul_rn(other, end.sine))
                    : __fsub_rn(__fmul_rn(y, end.cosine), __fmul_rn(other, end.sine));
    if (whole_is_direct(kind))
        y = __fadd_rn(end.before, y);
    float squares = end.normed == NULL ? 0.0f : k_lanes_sum<1, HALF>(__fmul_rn(y, y));
    if (!end.is_there)
        return;
    if (kind == WHOLE_GATE_UP)
        put_parts(end.to, __fmul_rn(silu(y), other));
    else
        *(float *)end.to = y;
    if (end.normed == NULL)
        return;
    put_parts(end.normed, __fmul_rn(y, end.weight));
    if (k_thread() % TILE == 0)
        *end.squares = squares;
}

/* What the norm scales the lane's rows with: sums of the squares of sixteen columns are there. */
template <int SHARE>
static __device__ __forceinline__ void find_scales(const struct ft_op_whole &op, int32_t warp,
                                                   float scales[FINISH_TURNS]) {
    int32_t lane = k_thread() % 32, n = op.hidden / TILE;
    float4 sums[FINISH_TURNS][2] = {};
#pragma unroll 1
    for (int32_t at = lane * 4; at < n; at += 32 * 4)
#pragma unroll
        for (int i = 0; i < FINISH_TURNS * 2; i++) {
            int32_t row = warp * 2 + i / 2 * crew<SHARE>::FINISHERS * 2 + i % 2;
            float4 &sum = sums[i / 2][i % 2];
            if (row >= op.n_rows)
                continue;
            float4 v = __ldcg((const float4 *)(op.squares + row * n + at));
            sum = make_float4(__fadd_rn(sum.x, v.x), __fadd_rn(sum.y, v.y), __fadd_rn(sum.z, v.z),
                              __fadd_rn(sum.w, v.w));
        }
#pragma unroll
    for (int i = 0; i < FINISH_TURNS; i++) {
        float rows[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float4 v = sums[i][j];
            rows[j] = k_lanes_sum<1, 16>(__fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)));
        }
        scales[i] = k_norm_scale(lane < TILE ? rows[0] : rows[1], op.hidden, op.eps);
    }
}

/* The sum of a lane's output of a tile that is handed in. */
template <int SHARE>
static __device__ __forceinline__ float sum_handed(const struct shared &s, int32_t slot,
                                                   int32_t row, int32_t n_rows) {
    int32_t out = k_thread() % TILE;
    if (SHARE == 1)
        return add_pairs(s.sums + slot * WHOLE_WARPS * n_rows * TILE + sum_at(row, out),
                         n_rows * TILE);
    return add_pairs(s.sums + slot * WHOLE_WARPS * share<2>::SUMS + shared_sum_at(row, out),
                     share<2>::SUMS);
}

/* A block's tiles of a matrix: rows by twos, in turn, by each of the warps that finish. */
template <int SHARE>
static __device__ __forceinline__ void finish_matrix(const struct whole_args &a,
                                                     const struct shared &s, int32_t stage,
                                                     int32_t rank, struct whole_turn &turn) {
    typedef crew<SHARE> C;
    enum whole_kind kind = whole_kind_of(a, stage);
    int32_t n_rows = kind == WHOLE_HEAD ? a.op.n_picks : a.op.n_rows;
    int32_t warp = k_thread() / 32 - C::FIRST, first = warp * 2 + k_thread() % 32 / TILE;
    float scales[FINISH_TURNS] = {};
    bool has_norm = kind == WHOLE_QKV || kind == WHOLE_GATE_UP;
    if (has_norm && rank < a.n_items[kind])
        find_scales<SHARE>(a.op, warp, scales);
#pragma unroll 1
    for (int32_t item = rank; item < a.n_items[kind]; item += n_teams<SHARE>()) {
        int32_t tile = item * SHARE + place_in_team<SHARE>();
        struct tile_end ends[C::AHEAD];
        float y[FINISH_TURNS];
        uint32_t read = 0;
        if (SHARE > 1 && k_thread() == C::FIRST * 32)
            k_turn_expect(&s.small->is_handed[turn.slot], shared_sum_bytes(n_rows));
#pragma unroll
        for (int i = 0; i < C::AHEAD; i++)
            ends[i] = prepare(a, s, stage, tile, first + i * C::FINISHERS * 2);
        k_turn_wait(&s.small->is_handed[turn.slot], turn.parity);
#pragma unroll
        for (int i = 0; i < FINISH_TURNS; i++) {
            y[i] = sum_handed<SHARE>(s, turn.slot, min(first + i * C::FINISHERS * 2, n_rows - 1),
                                     n_rows);
            read ^= __float_as_uint(y[i]);
            if (has_norm)
                y[i] = __fmul_rn(y[i], scales[i]);
        }
        k_turn_arrive_read(&s.small->is_finished[turn.slot], read, a.none);
        if (SHARE > 1)
            k_turn_arrive_there(&s.small->is_finished[turn.slot],
                                (uint32_t)place_in_team<SHARE>() ^ 1, read, a.none);
        whole_next(turn, a.at.n_handed);
#pragma unroll C::AHEAD
        for (int i = 0; i < FINISH_TURNS; i++) {
            if (i >= C::AHEAD)
                ends[0] = prepare(a, s, stage, tile, first + i * C::FINISHERS * 2);
            if (warp * 2 + i * C::FINISHERS * 2 < n_rows)
                finish(kind, ends[i % C::AHEAD], i == 0 ? y[0] : y[FINISH_TURNS - 1]);
        }
    }
}

/* Warps that add up what others have summed up of tiles, and write their outputs, while those go
 * on. */
template <int SHARE>
static __device__ __forceinline__ void finish_all(const struct whole_args &a,
                                                  const struct shared &s) {
    struct whole_turn turn = {};
    int32_t n_stages = a.op.n_layers * WHOLE_HEAD + 1, rank = team<SHARE>();
#pragma unroll 1
    for (int32_t stage = 0; stage < n_stages; stage++) {
        all_sync<SHARE>(); /* the grid is past the barrier before this stage */
        finish_matrix<SHARE>(a, s, stage, rank, turn);
        rank = whole_rank_after<SHARE>(a, whole_kind_of(a, stage), rank);
        if (stage < n_stages - 1)
            all_sync<SHARE>(); /* this block is at the barrier behind it */
    }
}

#endif
