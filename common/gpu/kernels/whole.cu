/* A step of a whole model in one kernel, for up to eight rows: bound by reading the weights.
 *
 * One block on each processor goes through all layers; five barriers of the grid a layer stand
 * where kernels would end. Weights do not depend on activations, so every lane keeps a ring of its
 * own in shared memory, a few chunks of the weights that it will multiply with next, and fetches
 * the next chunk into the place of the one it has used: across tiles, matrices, layers and
 * barriers. While blocks wait for each other or attend, the memory goes on filling the rings.
 *
 * The order of each sum is that of linear.cu, attention.cu and rows.cu. */
#include <cuda_fp16.h>

#include "common/gpu/kernels/whole.cuh"
#include "common/gpu/kernels/whole_attention.cuh"

#define NORM_THREADS 256 /* of a row, as in rows.cu */

static __device__ __forceinline__ float widen(const void *src, int32_t elem, int64_t at) {
    if (elem == FT_ELEM_F32)
        return ((const float *)src)[at];
    uint16_t bits = ((const uint16_t *)src)[at];
    if (elem == FT_ELEM_F16)
        return __half2float(__ushort_as_half(bits));
    return __uint_as_float((uint32_t)bits << 16);
}

/* The embedding of the rows and their rotary angles, a row of either a block. */
static __device__ __forceinline__ void begin_rows(const struct ft_op_whole &op) {
    for (int32_t i = blockIdx.x; i < 2 * op.n_rows; i += gridDim.x) {
        int32_t row = i / 2;
        if (i % 2 == 0) {
            int64_t from = (int64_t)op.tokens[row] * op.hidden;
            for (int32_t j = threadIdx.x; j < op.hidden; j += THREADS)
                op.x[(int64_t)row * op.hidden + j] = widen(op.embed, op.embed_elem, from + j);
            continue;
        }
        int32_t n_pairs = op.head_dim / 2;
        float position = (float)op.positions[row];
        for (int32_t j = threadIdx.x; j < n_pairs; j += THREADS) {
            float sine, cosine;
            sincosf(__fmul_rn(position, op.inv_freq[j]), &sine, &cosine);
            op.angles[row * op.head_dim + j] = cosine;
            op.angles[row * op.head_dim + n_pairs + j] = sine;
        }
    }
}

/* ---- x of a stage, in shared memory */

/* Rows of x times a norm's weight, and what the norm will scale each row with. All rows are on
 * their way at a time. */
static __device__ __forceinline__ void stage_normed(const struct ft_op_whole &op,
                                                    const struct shared &s, const float *norm) {
    int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, stride = op.hidden + X_PAD;
    float sums[GROUP] = {};
    for (int32_t at = threadIdx.x * 4; at < op.hidden; at += THREADS * 4) {
        float4 w = __ldg((const float4 *)(norm + at)), rows[GROUP];
#pragma unroll
        for (int m = 0; m < GROUP; m++)
            if (m < op.n_rows)
                rows[m] = __ldcg((const float4 *)(op.x + (int64_t)m * op.hidden + at));
#pragma unroll
        for (int m = 0; m < GROUP; m++) {
            if (m >= op.n_rows)
                break;
            float4 v = rows[m];
            sums[m] = __fmaf_rn(v.x, v.x, sums[m]);
            sums[m] = __fmaf_rn(v.y, v.y, sums[m]);
            sums[m] = __fmaf_rn(v.z, v.z, sums[m]);
            sums[m] = __fmaf_rn(v.w, v.w, sums[m]);
            *(float4 *)(s.x + m * stride + at) = make_float4(
                __fmul_rn(v.x, w.x), __fmul_rn(v.y, w.y), __fmul_rn(v.z, w.z), __fmul_rn(v.w, w.w));
        }
    }
#pragma unroll
    for (int m = 0; m < GROUP; m++)
        if (m < op.n_rows) {
            sums[m] = k_warp_sum(sums[m]);
            if (lane == 0)
                s.small->warp_sums[m][warp] = sums[m];
        }
    __syncthreads();
    if ((int32_t)threadIdx.x < op.n_rows) {
        float sum = s.small->warp_sums[threadIdx.x][0];
        for (int w = 1; w < WARPS; w++)
            sum = __fadd_rn(sum, s.small->warp_sums[threadIdx.x][w]);
        s.small->scales[threadIdx.x] = k_norm_scale(sum, op.hidden, op.eps);
    }
}

static __device__ __forceinline__ void
stage_plain(const struct ft_op_whole &op, const struct shared &s, const float *x, int32_t n_in) {
    for (int32_t at = threadIdx.x * 4; at < n_in; at += THREADS * 4) {
        float4 rows[GROUP];
#pragma unroll
        for (int m = 0; m < GROUP; m++)
            if (m < op.n_rows)
                rows[m] = __ldcg((const float4 *)(x + (int64_t)m * n_in + at));
#pragma unroll
        for (int m = 0; m < GROUP; m++)
            if (m < op.n_rows)
                *(float4 *)(s.x + m * (n_in + X_PAD) + at) = rows[m];
    }
    __syncthreads();
}

/* The picked rows, normalised in the order of rows.cu: two rows at a time. */
static __device__ __forceinline__ void stage_picked(const struct ft_op_whole &op,
                                                    const struct shared &s) {
    int32_t thread = threadIdx.x % NORM_THREADS, stride = op.hidden + X_PAD;
    for (int32_t first = 0; first < op.n_picks; first += THREADS / NORM_THREADS) {
        int32_t m = first + (int32_t)threadIdx.x / NORM_THREADS;
        bool is_there = m < op.n_picks;
        const float *x = op.x + (is_there ? (int64_t)op.picks[m] * op.hidden : 0);
        float sum = 0.0f;
        for (int32_t i = thread; is_there && i < op.hidden; i += NORM_THREADS) {
            float a = __ldcg(x + i);
            sum = __fmaf_rn(a, a, sum);
        }
        sum = k_warp_sum(sum);
        if (thread % 32 == 0 && is_there)
            s.small->warp_sums[m][thread / 32] = sum;
        __syncthreads();
        if (!is_there)
            continue;
        sum = s.small->warp_sums[m][0];
        for (int w = 1; w < NORM_THREADS / 32; w++)
            sum = __fadd_rn(sum, s.small->warp_sums[m][w]);
        float scale = k_norm_scale(sum, op.hidden, op.eps);
        for (int32_t i = thread; i < op.hidden; i += NORM_THREADS)
            s.x[m * stride + i] = k_norm_apply(__ldcg(x + i), scale, __ldg(op.norm + i));
    }
    __syncthreads();
}

/* ---- matrices */

/* What mma leaves in a lane, by size of the products. */
struct sums {
    float at[ORDERS][4];
};

static __device__ __forceinline__ void multiply_chunk(const char *slot, const float *x,
                                                      bool is_there, struct sums &sums) {
    uint4 low = *(const uint4 *)slot, high = *(const uint4 *)(slot + SLOT_BYTES / 2);
    uint32_t parts[ORDERS][4];
    load_x(x, is_there, parts);
    uint32_t w[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int p = 0; p < ORDERS; p++)
            k_mma(sums.at[p], w[h], &parts[p][2 * h]);
}

/* A warp's range of the columns of x: this lane's row, from its columns of the first chunk on. */
struct x_range {
    const float *lane;
    int32_t n_chunks;
    bool is_there;
};

/* A tile's range: each chunk is waited for, used, and its place filled again. */
template <int D>
static __device__ __forceinline__ void multiply_staged(const struct whole_args &a,
                                                       struct whole_way &way,
                                                       const struct x_range &x, struct sums &sums) {
    for (int32_t i = 0; i < x.n_chunks; i++) {
        char *slot = way.slots + way.at * SLOT_BYTES;
        k_fetch_wait<D - 1>();
        multiply_chunk(slot, x.lane + i * CHUNK, x.is_there, sums);
        whole_fetch(a, way.next, slot);
        way.at = way.at + 1 == D ? 0 : way.at + 1;
    }
}

/* The same with x where it lies, two chunks ahead in registers. */
struct eight {
    float4 a, b;
};
static __device__ __forceinline__ struct eight load_eight(const struct x_range &x, int32_t i) {
    struct eight v = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    if (i < x.n_chunks && x.is_there) {
        v.a = __ldcg((const float4 *)(x.lane + i * CHUNK));
        v.b = __ldcg((const float4 *)(x.lane + i * CHUNK + 4));
    }
    return v;
}
template <int D>
static __device__ __forceinline__ void multiply_direct(const struct whole_args &a,
                                                       struct whole_way &way,
                                                       const struct x_range &x, struct sums &sums) {
    struct eight now = load_eight(x, 0), next = load_eight(x, 1);
    for (int32_t i = 0; i < x.n_chunks; i++) {
        struct eight after = load_eight(x, i + 2);
        char *slot = way.slots + way.at * SLOT_BYTES;
        k_fetch_wait<D - 1>();
        multiply_chunk(slot, &now.a.x, true, sums);
        whole_fetch(a, way.next, slot);
        way.at = way.at + 1 == D ? 0 : way.at + 1;
        now = next;
        next = after;
    }
}

static __device__ __forceinline__ void hand_in(struct sums &sums, float *to) {
    int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int32_t row = lane % 4 * 2 + i % 2, out = lane / 4 + i / 2 * HALF;
        to[(warp * GROUP + row) * SUM_STRIDE + out] =
            __fadd_rn(__fadd_rn(sums.at[2][i], sums.at[1][i]), sums.at[0][i]);
        sums.at[0][i] = sums.at[1][i] = sums.at[2][i] = 0.0f;
    }
}

/* The sum of an output over the ranges, with norm and bias. */
static __device__ __forceinline__ float output(const float *from, const float *scale,
                                               const float *bias) {
    float sum = from[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++)
        sum = __fadd_rn(sum, from[w * GROUP * SUM_STRIDE]);
    if (scale != NULL)
        sum = __fmul_rn(sum, *scale);
    return bias == NULL ? sum : __fadd_rn(sum, *bias);
}

/* An output of a row, and the other of its pair. */
struct ending {
    int32_t row;
    bool is_high;
    float own, other;
};

/* q and k are rotated; k and v go into their KV slot. */
static __device__ __forceinline__ void end_qkv(const struct ft_op_whole &op,
                                               const struct ft_whole_layer &layer,
                                               struct whole_qkv at, struct ending y) {
    int32_t dim = op.head_dim, n_pairs = dim / 2, pair = at.pair + (int32_t)threadIdx.x % HALF;
    int32_t d = y.is_high ? pair + n_pairs : pair;
    if (at.part < 2) {
        float c = __ldcg(op.angles + y.row * dim + pair);
        float s = __ldcg(op.angles + y.row * dim + n_pairs + pair);
        y.own = y.is_high ? __fadd_rn(__fmul_rn(y.own, c), __fmul_rn(y.other, s))
                          : __fsub_rn(__fmul_rn(y.own, c), __fmul_rn(y.other, s));
    }
    if (at.part == 0) {
        op.q[((int64_t)y.row * op.n_heads + at.head) * dim + d] = y.own;
        return;
    }
    int32_t slot = op.slots[y.row], in_block = slot % FT_OPS_KV_BLOCK;
    float *keys = layer.kv + slot / FT_OPS_KV_BLOCK * ft_kv_block_floats(op.n_kv_heads, dim) +
                  at.head * ft_kv_head_floats(dim);
    if (at.part == 1)
        keys[d * FT_OPS_KV_BLOCK + in_block] = y.own;
    else
        keys[(FT_OPS_KV_BLOCK + in_block) * dim + d] = y.own; /* a head has no padding here */
}

/* Biases of an output, or NULL. */
static __device__ __forceinline__ const float *bias_of(const struct whole_args &a, int32_t stage,
                                                       int32_t item, struct whole_qkv at) {
    const struct ft_whole_layer &layer = a.op.layers[stage / WHOLE_HEAD];
    enum whole_kind kind = whole_kind_of(a, stage);
    int32_t out = threadIdx.x % TILE, first = item * TILE + out;
    bool is_high = out >= HALF;
    const float *bias = NULL;
    if (kind == WHOLE_QKV) {
        bias = at.part == 0 ? layer.q_bias : at.part == 1 ? layer.k_bias : layer.v_bias;
        first = at.head * a.op.head_dim + at.pair + out % HALF + (is_high ? a.op.head_dim / 2 : 0);
    } else if (kind == WHOLE_GATE_UP) {
        bias = is_high ? layer.up_bias : layer.gate_bias;
        first = item * HALF + out % HALF;
    } else if (kind != WHOLE_HEAD) {
        bias = kind == WHOLE_O ? layer.o_bias : layer.down_bias;
    }
    return bias == NULL ? NULL : bias + first;
}

/* A tile's outputs of two rows, by one warp while the others go on: a lane has one output of a
 * row, and lane ^ 8 the other of its pair. */
static __device__ __forceinline__ void finish(const struct whole_args &a, const struct shared &s,
                                              const float *sums, int32_t stage, int32_t item,
                                              int32_t first_row) {
    const struct ft_op_whole &op = a.op;
    enum whole_kind kind = whole_kind_of(a, stage);
    int32_t out = threadIdx.x % TILE, n = kind == WHOLE_HEAD ? op.n_picks : op.n_rows;
    int32_t row = first_row + (int32_t)threadIdx.x % 32 / TILE;
    bool is_high = out >= HALF, is_there = row < n;
    bool has_norm = kind == WHOLE_QKV || kind == WHOLE_GATE_UP;
    bool is_added = kind == WHOLE_O || kind == WHOLE_DOWN;
    float *x = op.x + (int64_t)row * op.hidden + item * TILE + out;
    float before = is_added && is_there ? __ldcg(x) : 0.0f;
    struct whole_qkv at = {0, 0, 0};
    if (kind == WHOLE_QKV)
        at = whole_qkv_at(op, item);
    float y = is_there
                  ? output(sums + row * SUM_STRIDE + out, has_norm ? &s.small->scales[row] : NULL,
                           bias_of(a, stage, item, at))
                  : 0.0f;
    float other = __shfl_xor_sync(0xFFFFFFFFu, y, HALF);
    if (!is_there)
        return;
    if (kind == WHOLE_QKV) {
        end_qkv(op, op.layers[stage / WHOLE_HEAD], at, {row, is_high, y, other});
    } else if (kind == WHOLE_GATE_UP) {
        if (!is_high)
            op.gate[(int64_t)row * op.intermediate + item * HALF + out] = __fmul_rn(silu(y), other);
    } else if (kind == WHOLE_HEAD) {
        if (item * TILE + out < op.vocab)
            op.rows[row * op.row_stride + item * TILE + out] = y;
    } else {
        *x = __fadd_rn(before, y);
    }
}

/* x of a stage into shared memory, unless it is read where it lies: then from there. */
static __device__ __forceinline__ const float *stage_x(const struct whole_args &a,
                                                       const struct shared &s, int32_t stage) {
    const struct ft_op_whole &op = a.op;
    const struct ft_whole_layer &layer = op.layers[stage / WHOLE_HEAD];
    enum whole_kind kind = whole_kind_of(a, stage);
    if (kind == WHOLE_QKV || kind == WHOLE_GATE_UP) {
        stage_normed(op, s, kind == WHOLE_QKV ? layer.attn_norm : layer.mlp_norm);
    } else if (kind == WHOLE_HEAD) {
        stage_picked(op, s);
    } else {
        const float *from = kind == WHOLE_O ? op.attended : op.gate;
        if (a.is_direct[kind])
            return from;
        stage_plain(op, s, from, a.n_in[kind]);
    }
    return s.x;
}

/* This block's tiles of a matrix. */
template <int D>
static __device__ __forceinline__ void run_matrix(const struct whole_args &a,
                                                  const struct shared &s, struct whole_way &way,
                                                  int32_t stage) {
    enum whole_kind kind = whole_kind_of(a, stage);
    int32_t item = whole_first_item(a, stage), n_in = a.n_in[kind];
    if (item >= a.n_items[kind])
        return;
    int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, begin = whole_begin(n_in, warp);
    int32_t n_rows = kind == WHOLE_HEAD ? a.op.n_picks : a.op.n_rows;
    bool is_direct = a.is_direct[kind];
    struct x_range x = {stage_x(a, s, stage), whole_begin(n_in, warp + 1) - begin,
                        lane / 4 < n_rows};
    x.lane +=
        (int64_t)(lane / 4) * (is_direct ? n_in : n_in + X_PAD) + lane % 4 * 8 + begin * CHUNK;
    struct sums sums = {};
    for (int32_t n_done = 0; item < a.n_items[kind]; item += gridDim.x, n_done++) {
        float *handed = s.sums + n_done % 2 * (SUMS_FLOATS / 2);
        if (is_direct)
            multiply_direct<D>(a, way, x, sums);
        else
            multiply_staged<D>(a, way, x, sums);
        hand_in(sums, handed);
        __syncthreads();
        int32_t first_row = (warp - n_done % WARPS + WARPS) % WARPS * 2; /* warps take turns */
        if (first_row < n_rows)
            finish(a, s, handed, stage, item, first_row);
    }
}

/* ---- the step */

template <int D, int Q>
static __device__ __forceinline__ void run_layers(const struct whole_args &a,
                                                  const struct shared &s, struct whole_way &way) {
    const struct ft_op_whole &op = a.op;
    struct whole_progress progress = {0, blockIdx.x == 0 ? op.marks_ns : NULL};
    int32_t n_units = op.n_pieces * a.n_tiles * op.n_kv_heads * a.n_segments;
    int32_t first_unit = (int32_t)(threadIdx.x / TEAM * gridDim.x + blockIdx.x);
    begin_rows(op);
    whole_sync(op, &progress);
    int32_t n_stages = op.n_layers * WHOLE_HEAD + 1;
    for (int32_t stage = 0; stage < n_stages; stage++) {
        bool is_qkv = whole_kind_of(a, stage) == WHOLE_QKV;
        const struct ft_whole_layer *layer = op.layers + stage / WHOLE_HEAD;
        if (is_qkv)
            prefetch_kv<Q>(a, attention_of(op, *layer), first_unit, n_units);
        run_matrix<D>(a, s, way, stage);
        if (stage == n_stages - 1)
            break;
        whole_sync(op, &progress);
        if (is_qkv) {
            attend<Q>(a, s, attention_of(op, *layer), first_unit, n_units);
            whole_sync(op, &progress);
        }
    }
}

/* A block has every gridDim.x-th tile of each matrix, a warp one range of the columns; the block's
 * four teams have a unit of attention each. Moves each weight once, and the KV of each row. */
template <int D, int Q>
static __global__ void __launch_bounds__(THREADS, 1)
    whole_kernel(const __grid_constant__ struct whole_args a) {
    K_SHARED_MEMORY(char, memory);
    struct shared s = lay_out<D>(memory);
    int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct whole_way way = {{0, whole_first_item(a, 0), 0, 0, {NULL, NULL}},
                            s.ring + warp * D * SLOT_BYTES + lane * 16,
                            0};
    whole_settle(a, way.next);
    for (int i = 0; i < D; i++)
        whole_fetch(a, way.next, way.slots + i * SLOT_BYTES);
    k_wait();
    if (threadIdx.x == 0)
        s.small->is_whole = whole_assemble(a.op);
    __syncthreads();
    if (s.small->is_whole)
        run_layers<D, Q>(a, s, way);
    k_fetch_wait<0>();
    whole_leave(a.op);
}

/* ---- launching */

/* Slots of a ring, for what x needs beside it. */
#define DEPTHS 4
static const int32_t depths[DEPTHS] = {10, 8, 6, 4};

static int32_t room_for_x(int32_t depth) {
    return SHARED_WHOLE - SMALL_BYTES - SUMS_FLOATS * (int32_t)sizeof(float) -
           depth * WARPS * SLOT_BYTES;
}
static int32_t x_bytes(int32_t n_rows, int32_t n_in) {
    return n_rows * (n_in + X_PAD) * (int32_t)sizeof(float);
}
static bool is_one_row_each(const struct ft_op_whole *op) {
    return op->n_pieces == op->n_rows && op->n_heads / op->n_kv_heads <= 4;
}
static int32_t tiles_bytes(const struct ft_op_whole *op) {
    return TEAMS *
           (int32_t)(is_one_row_each(op) ? sizeof(tile<4, DIM_WHOLE>) : sizeof(tile<8, DIM_WHOLE>));
}

/* The deepest ring that leaves room for the rows that have to be in shared memory; 0: none. */
static int32_t depth_for(const struct ft_op_whole *op) {
    int32_t tiles = tiles_bytes(op) - SUMS_FLOATS * (int32_t)sizeof(float);
    for (int i = 0; i < DEPTHS; i++)
        if (room_for_x(depths[i]) >= x_bytes(op->n_rows, op->hidden) &&
            room_for_x(depths[i]) >= tiles)
            return depths[i];
    return 0;
}

static struct whole_args args_for(const struct k_target *on, const struct ft_op_whole *op) {
    struct whole_args a = {};
    int32_t q_dim = op->n_heads * op->head_dim, kv_dim = op->n_kv_heads * op->head_dim;
    a.op = *op;
    a.n_in[WHOLE_QKV] = a.n_in[WHOLE_GATE_UP] = a.n_in[WHOLE_HEAD] = op->hidden;
    a.n_in[WHOLE_O] = q_dim;
    a.n_in[WHOLE_DOWN] = op->intermediate;
    a.n_items[WHOLE_QKV] = (q_dim + 2 * kv_dim) / TILE;
    a.n_items[WHOLE_O] = a.n_items[WHOLE_DOWN] = op->hidden / TILE;
    a.n_items[WHOLE_GATE_UP] = op->intermediate / HALF;
    a.n_items[WHOLE_HEAD] = op->n_picks > 0 ? (int32_t)k_ceil_div(op->vocab, TILE) : 0;
    for (int kind = 0; kind < WHOLE_HEAD; kind++) {
        a.before[kind] = a.layer_items;
        a.layer_items += a.n_items[kind];
    }
    int32_t depth = depth_for(op);
    for (int kind = 0; kind < WHOLE_HEAD; kind++)
        a.is_direct[kind] = (kind == WHOLE_O || kind == WHOLE_DOWN) &&
                            x_bytes(op->n_rows, a.n_in[kind]) > room_for_x(depth);
    int32_t rows = op->n_pieces == op->n_rows ? 1 : FT_OPS_PIECE_ROWS;
    a.n_tiles =
        (int32_t)k_ceil_div(rows * (op->n_heads / op->n_kv_heads), is_one_row_each(op) ? 4 : 8);
    a.n_segments = (int32_t)k_ceil_div(op->len_max, SEGMENT);
    a.partial = on->scratch;
    return a;
}

extern "C" const char *k_whole_refuses(const struct k_target *on, const struct ft_op_whole *op) {
    int32_t q_dim = op->n_heads * op->head_dim;
    if (op->n_rows < 1 || op->n_rows > FT_WHOLE_ROWS_MAX)
        return "more rows than eight";
    if (op->hidden % CHUNK != 0 || op->intermediate % CHUNK != 0 || q_dim % CHUNK != 0)
        return "sizes that are not multiples of 32";
    if (op->hidden < WARPS * CHUNK || op->intermediate < WARPS * CHUNK || q_dim < WARPS * CHUNK)
        return "sizes below 512";
    if (op->head_dim % TILE != 0 || op->head_dim > DIM_WHOLE)
        return "heads that are no multiples of 16, or above 128";
    if (op->vocab < TILE)
        return "a vocabulary below 16";
    if (depth_for(op) == 0)
        return "rows too long for shared memory";
    struct whole_args a = args_for(on, op);
    if (op->n_pieces * a.n_tiles * op->n_kv_heads > FT_WHOLE_MERGES_MAX)
        return "too many heads";
    if ((int64_t)a.n_segments * op->n_rows * op->n_heads * (op->head_dim + 2) >
        (int64_t)(on->scratch_bytes / sizeof(float)))
        return "a context too long for the partial results of attention";
    return NULL;
}

template <int D, int Q>
static cudaError_t launch(const struct k_target *on, struct whole_args *args) {
    size_t bytes = (size_t)(SHARED_WHOLE - room_for_x(D) + args->x_floats * (int32_t)sizeof(float));
    return k_launch(on, (const void *)whole_kernel<D, Q>,
                    {dim3((unsigned)on->n_processors), dim3(THREADS), bytes, 1}, args);
}
template <int Q>
static cudaError_t launch_depth(const struct k_target *on, struct whole_args *args, int32_t depth) {
    return depth == 10  ? launch<10, Q>(on, args)
           : depth == 8 ? launch<8, Q>(on, args)
           : depth == 6 ? launch<6, Q>(on, args)
                        : launch<4, Q>(on, args);
}

extern "C" cudaError_t k_whole(const struct k_target *on, const struct ft_op_whole *op) {
    struct whole_args args = args_for(on, op);
    int32_t depth = depth_for(op);
    args.x_floats = room_for_x(depth) / (int32_t)sizeof(float);
    return is_one_row_each(op) ? launch_depth<4>(on, &args, depth)
                               : launch_depth<8>(on, &args, depth);
}

template <int D> static cudaError_t allow(void) {
    cudaError_t error =
        cudaFuncSetAttribute((const void *)whole_kernel<D, 4>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_WHOLE);
    if (error != cudaSuccess)
        return error;
    return cudaFuncSetAttribute((const void *)whole_kernel<D, 8>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_WHOLE);
}

extern "C" cudaError_t k_whole_setup(void) {
    cudaError_t error = allow<10>();
    if (error == cudaSuccess)
        error = allow<8>();
    if (error == cudaSuccess)
        error = allow<6>();
    return error == cudaSuccess ? allow<4>() : error;
}
