/* A step of a whole model in one kernel, for up to eight rows: bound by reading the weights.
 *
 * One block on each processor goes through all layers; six barriers of the grid a layer stand
 * where kernels would end. Weights do not depend on activations, so one thread has them brought
 * into a ring in shared memory, across tiles, matrices, layers and barriers, as far ahead as there
 * is room: while blocks wait for each other or attend, the ring fills. Another brings what o and
 * down are multiplied with, in pieces, once blocks have written it. Eight warps multiply; two more
 * end the tiles.
 *
 * The order of each sum is that of linear.cu, attention.cu and rows.cu. */
#include "common/gpu/kernels/whole.cuh"
#include "common/gpu/kernels/whole_attention.cuh"
#include "common/gpu/kernels/whole_multiply.cuh"

#define NORM_THREADS 256 /* of a row, as in rows.cu */
#define NORM_LINE 32     /* floats that are prefetched together */

/* The embedding of the rows, one a block, and what the first norm makes of it; and what every block
 * needs of the rows: rotary angles, KV slots, spans. */
static __device__ __forceinline__ void begin_rows(const struct whole_args &a,
                                                  const struct shared &s) {
    const struct ft_op_whole &op = a.op;
    int32_t n_pairs = op.head_dim / 2;
    for (int32_t row = blockIdx.x; row < op.n_rows; row += gridDim.x) {
        int64_t from = (int64_t)op.tokens[row] * op.hidden;
        const float *norm = op.layers[0].attn_norm;
        for (int32_t j = threadIdx.x; j < op.hidden; j += COMPUTE) { /* whole warps do */
            float x = k_widen(op.embed, op.embed_elem, from + j);
            float squares = k_lanes_sum<1, HALF>(__fmul_rn(x, x));
            op.x[(int64_t)row * op.hidden + j] = x;
            put_parts(parts_at((char *)op.normed, op.n_rows, row, j),
                      __fmul_rn(x, __ldg(norm + j)));
            if (j % TILE == 0)
                op.squares[(row * op.hidden + j) / TILE] = squares;
        }
    }
    for (int32_t i = threadIdx.x; i < op.n_rows * n_pairs; i += COMPUTE) {
        float sine, cosine, *to = s.angles + i / n_pairs * op.head_dim + i % n_pairs;
        sincosf(__fmul_rn((float)op.positions[i / n_pairs], op.inv_freq[i % n_pairs]), &sine,
                &cosine);
        to[0] = cosine;
        to[n_pairs] = sine;
    }
    if ((int32_t)threadIdx.x < op.n_rows) {
        s.small->slots[threadIdx.x] = op.slots[threadIdx.x];
        s.small->positions[threadIdx.x] = op.positions[threadIdx.x];
    }
    for (int32_t i = threadIdx.x; i < (int32_t)(sizeof a / sizeof(uint32_t)); i += COMPUTE)
        ((uint32_t *)&s.small->args)[i] = ((const uint32_t *)&a)[i];
    if (threadIdx.x == 0)
        find_spans(op, s.small);
    if (threadIdx.x % 32 == 0)
        s.small->turns[threadIdx.x / 32] = 0;
}

/* A layer's description into its place of the two, by some threads. */
static __device__ __forceinline__ void bring_layer(const struct ft_op_whole &op,
                                                   const struct shared &s, int32_t layer) {
    int32_t thread = k_thread(), n = (int32_t)(sizeof(struct ft_whole_layer) / sizeof(uint32_t));
    if (layer < op.n_layers && thread < n)
        ((uint32_t *)&s.small->layers[layer % 2])[thread] =
            __ldg((const uint32_t *)(op.layers + layer) + thread);
    if (layer < op.n_layers && thread == COMPUTE - 1)
        begin_attention(op, layer, s.small->attention);
    int32_t own = thread - COMPUTE / 2; /* norms, a line by a thread of all blocks */
    int32_t line = ((int32_t)blockIdx.x + own * (int32_t)gridDim.x) * NORM_LINE;
    if (layer < op.n_layers && own >= 0 && line < op.hidden) {
        k_prefetch(op.layers[layer].attn_norm + line);
        k_prefetch(op.layers[layer].mlp_norm + line);
    }
}
static __device__ __forceinline__ const struct ft_whole_layer &layer_of(const struct shared &s,
                                                                        int32_t stage) {
    return s.small->layers[stage / WHOLE_HEAD % 2];
}

/* ---- x of the head, in shared memory */

#define PICKED_AHEAD(passes) ((passes) == 2 ? 3 : 2) /* rows on their way at a time */

/* The picked rows, normalised in the order of rows.cu; as many at a time as are on their way. */
template <int PASSES>
static __device__ __forceinline__ void stage_picked(const struct ft_op_whole &op,
                                                    const struct shared &s) {
    static_assert(COMPUTE == NORM_THREADS, "a row at a time");
    constexpr int ROWS = PICKED_AHEAD(PASSES), SUMS = 4;
    static_assert(ROWS <= SUMS, "a sum of each row");
    int32_t thread = k_thread(), lane = thread % 32;
#pragma unroll 1
    for (int32_t first = 0; first < op.n_picks; first += ROWS) {
        int32_t n = op.n_picks - first, from[ROWS];
        float sums[SUMS] = {}, a[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; m++)
            from[m] = m < n ? op.picks[first + m] * op.hidden : 0;
#pragma unroll 4
        for (int32_t i = thread; i < op.hidden; i += NORM_THREADS) {
#pragma unroll
            for (int m = 0; m < ROWS; m++)
                a[m] = m < n ? __ldcg(op.x + from[m] + i) : 0.0f;
#pragma unroll
            for (int m = 0; m < ROWS; m++)
                sums[m] = __fmaf_rn(a[m], a[m], sums[m]);
        }
        float sum = k_warp_sums(sums);
        int32_t m = lane / (32 / SUMS);
        if (lane % (32 / SUMS) == 0 && m < ROWS && m < n)
            s.squares[first + m][thread / 32] = sum;
    }
    k_turn_arrive(&s.small->is_squared);
    k_turn_wait(&s.small->is_squared, 0);
#pragma unroll 1
    for (int32_t first = 0; first < op.n_picks; first += ROWS) {
        int32_t n = op.n_picks - first, from[ROWS];
        float scales[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            from[m] = m < n ? op.picks[first + m] * op.hidden : 0;
            scales[m] = k_norm_scale_of<NORM_THREADS / 32>(s.squares[m < n ? first + m : first],
                                                           op.hidden, op.eps);
        }
#pragma unroll 1
        for (int32_t i = thread * 4; i < op.hidden; i += NORM_THREADS * 4) {
            float4 v[ROWS], w = __ldg((const float4 *)(op.norm + i));
#pragma unroll
            for (int m = 0; m < ROWS; m++)
                if (m < n)
                    v[m] = __ldcg((const float4 *)(op.x + from[m] + i));
#pragma unroll
            for (int m = 0; m < ROWS; m++)
                if (m < n)
                    put_four(parts_at(s.x, op.n_picks, first + m, i),
                             make_float4(k_norm_apply(v[m].x, scales[m], w.x),
                                         k_norm_apply(v[m].y, scales[m], w.y),
                                         k_norm_apply(v[m].z, scales[m], w.z),
                                         k_norm_apply(v[m].w, scales[m], w.w)));
        }
    }
    k_turn_arrive(&s.small->is_staged);
    k_turn_wait(&s.small->is_staged, 0);
}

/* ---- ends of tiles */

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
                                                       enum whole_kind kind, int32_t item,
                                                       struct whole_qkv at) {
    int32_t out = k_thread() % TILE, first = item * TILE + out;
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

/* o and down change x: the residual, and what the next norm makes of it. */
static __device__ __forceinline__ void prepare_added(const struct ft_op_whole &op,
                                                     const struct shared &s, int32_t stage,
                                                     int32_t item, struct tile_end &end) {
    int32_t column = item * TILE + k_thread() % TILE, layer = stage / WHOLE_HEAD;
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
    end.squares = op.squares + end.row * (op.hidden / TILE) + item;
}

static __device__ __forceinline__ struct tile_end prepare(const struct whole_args &a,
                                                          const struct shared &s, int32_t stage,
                                                          int32_t item, int32_t row) {
    const struct ft_op_whole &op = a.op;
    enum whole_kind kind = whole_kind_of(a, stage);
    const struct ft_whole_layer &layer = layer_of(s, stage);
    int32_t out = k_thread() % TILE, n_rows = kind == WHOLE_HEAD ? op.n_picks : op.n_rows;
    struct tile_end end = {};
    struct whole_qkv at = {};
    end.is_there = row < n_rows;
    end.row = min(row, n_rows - 1);
    if (kind == WHOLE_QKV) {
        at = whole_qkv_at(op, item);
        prepare_qkv(op, s, layer.kv, at, end);
    } else if (kind == WHOLE_GATE_UP) {
        end.is_there = end.is_there && out < HALF;
        end.to = parts_at((char *)op.gate, op.n_rows, end.row, item * HALF + out % HALF);
    } else if (kind == WHOLE_HEAD) {
        end.is_there = end.is_there && item * TILE + out < op.vocab;
        end.to = (char *)(op.rows + end.row * op.row_stride + item * TILE + out);
    } else {
        prepare_added(op, s, stage, item, end);
    }
    const float *bias = op.has_biases ? bias_of(a, layer, kind, item, at) : NULL;
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
static __device__ __forceinline__ void find_scales(const struct ft_op_whole &op, int32_t warp,
                                                   float scales[FINISH_TURNS]) {
    int32_t lane = k_thread() % 32, n = op.hidden / TILE;
    float4 sums[FINISH_TURNS][2] = {};
#pragma unroll 1
    for (int32_t at = lane * 4; at < n; at += 32 * 4)
#pragma unroll
        for (int i = 0; i < FINISH_TURNS * 2; i++) {
            int32_t row = warp * 2 + i / 2 * FINISH_WARPS * 2 + i % 2;
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

/* A block's tiles of a matrix: rows by twos, in turn, by each of the warps that finish. */
static __device__ __forceinline__ void finish_matrix(const struct whole_args &a,
                                                     const struct shared &s, int32_t stage,
                                                     int32_t rank, struct whole_turn &turn) {
    enum whole_kind kind = whole_kind_of(a, stage);
    int32_t n_rows = kind == WHOLE_HEAD ? a.op.n_picks : a.op.n_rows, out = k_thread() % TILE;
    int32_t warp = k_thread() / 32 - FINISH_WARP, first = warp * 2 + k_thread() % 32 / TILE;
    float scales[FINISH_TURNS] = {};
    bool has_norm = kind == WHOLE_QKV || kind == WHOLE_GATE_UP;
    if (has_norm && rank < a.n_items[kind])
        find_scales(a.op, warp, scales);
#pragma unroll 1
    for (int32_t item = rank; item < a.n_items[kind]; item += (int32_t)gridDim.x) {
        const float *sums = s.sums + turn.slot * WHOLE_WARPS * n_rows * TILE;
        struct tile_end ends[FINISH_TURNS];
        float y[FINISH_TURNS];
        uint32_t read = 0;
#pragma unroll
        for (int i = 0; i < FINISH_TURNS; i++)
            ends[i] = prepare(a, s, stage, item, first + i * FINISH_WARPS * 2);
        k_turn_wait(&s.small->is_handed[turn.slot], turn.parity);
#pragma unroll
        for (int i = 0; i < FINISH_TURNS; i++) {
            y[i] = add_pairs(sums + sum_at(ends[i].row, out), n_rows * TILE);
            read ^= __float_as_uint(y[i]);
            if (has_norm)
                y[i] = __fmul_rn(y[i], scales[i]);
        }
        k_turn_arrive_read(&s.small->is_finished[turn.slot], read, a.none);
        whole_next(turn, a.at.n_handed);
#pragma unroll
        for (int i = 0; i < FINISH_TURNS; i++)
            if (warp * 2 + i * FINISH_WARPS * 2 < n_rows)
                finish(kind, ends[i], y[i]);
    }
}

/* Warps that add up what others have summed up of tiles, and write their outputs, while those go
 * on. */
static __device__ __forceinline__ void finish_all(const struct whole_args &a,
                                                  const struct shared &s) {
    struct whole_turn turn = {};
    int32_t n_stages = a.op.n_layers * WHOLE_HEAD + 1, rank = (int32_t)blockIdx.x;
#pragma unroll 1
    for (int32_t stage = 0; stage < n_stages; stage++) {
        all_sync(); /* the grid is past the barrier before this stage */
        finish_matrix(a, s, stage, rank, turn);
        rank = whole_rank_after(a, whole_kind_of(a, stage), rank);
        if (stage < n_stages - 1)
            all_sync(); /* this block is at the barrier behind it */
    }
}

/* A tile's sums to the warps that finish it. */
template <int PASSES>
static __device__ __forceinline__ void end_tile(const struct whole_args &a, const struct shared &s,
                                                struct whole_turn &turn,
                                                struct sums<PASSES> sums[SETS], int32_t n_rows) {
    k_turn_wait(&s.small->is_finished[turn.slot], turn.parity ^ 1);
    hand_in<PASSES>(sums, s.sums + turn.slot * WHOLE_WARPS * n_rows * TILE, n_rows);
    k_fence_block();
    k_sync_warp();
    k_turn_arrive(&s.small->is_handed[turn.slot]);
    whole_next(turn, a.at.n_handed);
}

/* This block's tiles of a matrix. What a norm stands before is fetched here; of o and down a block
 * has few tiles, and a thread of its own brings x, in pieces. */
template <int PASSES>
static __device__ __forceinline__ void run_matrix(const struct whole_args &a,
                                                  const struct shared &s, int32_t stage,
                                                  int32_t rank) {
    const struct ft_op_whole &op = a.op;
    enum whole_kind kind = whole_kind_of(a, stage);
    bool is_direct = whole_is_direct(kind);
    int32_t n_rows = kind == WHOLE_HEAD ? op.n_picks : op.n_rows, n_items = a.n_items[kind];
    int32_t n_chunks = a.n_in[kind] / CHUNK;
    int32_t item = rank;
    struct whole_turn all = {kind == WHOLE_HEAD ? -1 : 0, 0};
    if (!is_direct)
        k_turn_wait(&s.small->is_open, (uint32_t)stage % 2);
    if (kind == WHOLE_HEAD && item < n_items)
        stage_picked<PASSES>(op, s);
    else if (!is_direct && item < n_items)
        fetch_normed(op, s);
    uint32_t turns = s.small->turns[k_thread() / 32];
    struct whole_turn ring = whole_unpacked(turns, WHOLE_RING);
    struct whole_turn handed = whole_unpacked(turns, WHOLE_HANDED);
    struct sums<PASSES> sums[SETS] = {};
#pragma unroll 1
    for (; item < n_items; item += gridDim.x) {
        if (is_direct) {
            uint32_t pieces = s.small->turns[k_thread() / 32];
            struct whole_turn piece = whole_unpacked(pieces, WHOLE_PIECES);
            multiply_tile<PASSES, true>(a, s, ring, piece, n_rows, n_chunks, sums);
            k_sync_warp();
            if (k_thread() % 32 == 0)
                s.small->turns[k_thread() / 32] = whole_packed(piece, WHOLE_PIECES);
            k_sync_warp();
        } else {
            multiply_tile<PASSES, false>(a, s, ring, all, n_rows, n_chunks, sums);
            all.slot = -1;
        }
        end_tile<PASSES>(a, s, handed, sums, n_rows);
    }
    uint32_t pieces = s.small->turns[k_thread() / 32] & WHOLE_TURN_BITS << WHOLE_PIECES;
    k_sync_warp();
    if (k_thread() % 32 == 0)
        s.small->turns[k_thread() / 32] =
            pieces | whole_packed(ring, WHOLE_RING) | whole_packed(handed, WHOLE_HANDED);
    k_sync_warp();
}

/* ---- the step */

template <int N, int PASSES>
static __device__ __forceinline__ void run_layers(const struct whole_args &a,
                                                  const struct shared &s) {
    const struct ft_op_whole &op = a.op;
    bring_layer(op, s, 0);
    begin_rows(a, s);
    uint32_t n_passed = whole_arrive(op, 0, WHOLE_COMPUTE);
    whole_await_stage(a, s, n_passed, 0);
    int32_t n_stages = op.n_layers * WHOLE_HEAD + 1, rank = (int32_t)blockIdx.x;
    for (int32_t stage = 0; stage < n_stages; stage++) {
        enum whole_kind kind = whole_kind_of(a, stage);
        if (kind == WHOLE_O)
            bring_layer(op, s, stage / WHOLE_HEAD + 1);
        run_matrix<PASSES>(a, s, stage, rank);
        if (stage == n_stages - 1)
            break;
        rank = whole_rank_after(a, kind, rank);
        n_passed = whole_arrive(op, n_passed, WHOLE_ALL);
        if (kind == WHOLE_QKV) {
            attend<N>(a.at.small, n_passed);
            n_passed = whole_arrive(op, n_passed, WHOLE_COMPUTE);
            whole_await(op, n_passed);
            merge_all(a.at.small);
            n_passed = whole_arrive(op, n_passed, WHOLE_COMPUTE);
        }
        whole_await_stage(a, s, n_passed, stage + 1);
    }
}

/* A block has every gridDim.x-th tile of each matrix, a warp its share of the columns; a segment of
 * KV is a block's. Moves each weight once, and the KV of each row. */
template <int N, int PASSES>
static __global__ void __launch_bounds__(WHOLE_THREADS, 1)
    whole_kernel(const __grid_constant__ struct whole_args a) {
    K_SHARED_MEMORY(char, memory);
    struct shared s = lay_out(memory, a.at);
    if (threadIdx.x == COMPUTE) {
        for (int32_t i = 0; i < a.at.n_slots; i++) {
            k_turn_setup(&s.small->is_full[i], 1);
            k_turn_setup(&s.small->is_free[i], WHOLE_WARPS);
        }
        for (int32_t i = 0; i < a.at.n_pieces; i++) {
            k_turn_setup(&s.small->has_piece[i], 1);
            k_turn_setup(&s.small->is_piece_free[i], WHOLE_WARPS);
        }
        k_turn_setup(&s.small->is_open, COMPUTE);
        k_turn_setup(&s.small->is_entered, 1);
        for (int32_t i = 0; i < a.at.n_handed; i++) {
            k_turn_setup(&s.small->is_handed[i], COMPUTE);
            k_turn_setup(&s.small->is_finished[i], FINISH_WARPS * 32);
        }
        k_turn_setup(&s.small->is_known, 1);
        k_turn_setup(&s.small->is_staged, COMPUTE);
        k_turn_setup(&s.small->is_squared, COMPUTE);
    }
    __syncthreads();
    if (threadIdx.x >= COMPUTE) {
        k_give_registers<OTHER_REGISTERS>();
        if (threadIdx.x == COMPUTE)
            whole_fetch_all(a, s);
        if (threadIdx.x == COMPUTE + 32)
            whole_fetch_x(a, s);
        if (threadIdx.x >= FINISH_WARP * 32) {
            k_turn_wait(&s.small->is_known, 0);
            if (s.small->is_whole)
                finish_all(a, s);
        }
    } else {
        k_take_registers<COMPUTE_REGISTERS>();
        k_wait();
        if (threadIdx.x == 0) {
            s.small->is_whole = whole_assemble(a.op);
            k_turn_arrive(&s.small->is_known);
        }
        block_sync();
        if (s.small->is_whole)
            run_layers<N, PASSES>(a, s);
        whole_leave(a.op);
    }
}

/* ---- launching */

#define SLOTS_MIN 2
#define SHARED_ALIGN 128

/* Most queries of a span and KV head. */
static int32_t queries_of(const struct ft_op_whole *op) {
    return (op->n_rows - op->n_spans + 1) * (op->n_heads / op->n_kv_heads);
}
static int passes_of(const struct ft_op_whole *op) {
    return op->n_rows <= 2 ? 1 : op->n_rows <= 5 ? 2 : 3;
}

/* By queries of a tile, eight a height, and passes. */
struct whole_version {
    const void *kernel;
    int64_t tile_bytes;
};
#define VERSION(n, p) {(const void *)whole_kernel<n, p>, (int64_t)sizeof(tile<n, DIM_WHOLE>)}
#define PASSES_MAX 3
#define HEIGHTS 3
static const struct whole_version versions[HEIGHTS][PASSES_MAX] = {
    {VERSION(8, 1), VERSION(8, 2), VERSION(8, 3)},
    {VERSION(16, 1), VERSION(16, 2), VERSION(16, 3)},
    {VERSION(24, 1), VERSION(24, 2), VERSION(24, 3)},
};
/* One tile for all queries where it may be as high; else of the highest as many as it takes. */
static const struct whole_version *version_of(const struct ft_op_whole *op) {
    int32_t height = (int32_t)k_ceil_div(queries_of(op), GROUP);
    return &versions[(height < HEIGHTS ? height : HEIGHTS) - 1][passes_of(op) - 1];
}
static int32_t rounded(int64_t bytes) {
    return (int32_t)((bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN);
}

/* What lies behind the ring: x and sums, and at other times KV and a tile of queries. */
static int32_t lay_out_rows(const struct ft_op_whole *op, int32_t n_processors,
                            struct whole_layout *at) {
    int64_t n_units = (int64_t)k_ceil_div(op->len_max, SEGMENT) * op->n_spans * op->n_kv_heads;
    int64_t row_floats = (int64_t)op->n_rows * (int64_t)sizeof(float);
    int64_t tile_bytes = version_of(op)->tile_bytes;
    int32_t head_bytes = (int32_t)(ft_kv_head_floats(op->head_dim) * (int64_t)sizeof(float));
    at->small = 0;
    at->squares = (int32_t)sizeof(struct small);
    at->angles = at->squares + (int32_t)(WARPS * row_floats);
    at->sums = at->angles + (int32_t)(op->head_dim * row_floats);
    at->x = rounded(at->sums + at->n_handed * WHOLE_WARPS * TILE * row_floats);
    at->kv = rounded(at->sums);
    at->kv_block_bytes = NEAR_BYTES(head_bytes);
    at->n_kv = n_units > n_processors ? 2 : 1;
    at->tile = at->kv + rounded((int64_t)at->n_kv * BLOCKS * at->kv_block_bytes);
    int64_t piece_bytes = (int64_t)op->n_rows * PIECE_ROW_BYTES;
    int64_t x_bytes = (int64_t)op->n_rows * op->hidden / CHUNK * ORDERS * COLUMN_BYTES;
    x_bytes = x_bytes < PIECES_MIN * piece_bytes ? PIECES_MIN * piece_bytes : x_bytes;
    at->n_pieces = (int32_t)(x_bytes / piece_bytes);
    if (at->n_pieces > PIECES_MAX)
        at->n_pieces = PIECES_MAX;
    int32_t x_end = at->x + rounded(x_bytes);
    int32_t tile_end = at->tile + rounded(tile_bytes);
    return x_end > tile_end ? x_end : tile_end;
}

/* As many slots as there is room for, then as many sums. false: no room. */
static bool lay_out_all(const struct ft_op_whole *op, int32_t n_processors,
                        struct whole_layout *at) {
    int32_t n_slots = 0, n_handed = 0;
    for (at->n_handed = HANDED_MAX; at->n_handed > 0; at->n_handed /= 2) {
        int32_t n = (SHARED_WHOLE - lay_out_rows(op, n_processors, at)) / SLOT_BYTES;
        if (n > n_slots) {
            n_slots = n;
            n_handed = at->n_handed;
        }
    }
    if (n_slots < SLOTS_MIN)
        return false;
    at->n_handed = n_handed;
    lay_out_rows(op, n_processors, at);
    at->n_slots = n_slots < SLOTS_MAX ? n_slots : SLOTS_MAX;
    int32_t ring = at->n_slots * SLOT_BYTES;
    at->small += ring;
    at->squares += ring;
    at->angles += ring;
    at->sums += ring;
    at->x += ring;
    at->kv += ring;
    at->tile += ring;
    return true;
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
    for (int kind = 0; kind < WHOLE_KINDS; kind++)
        a.n_more[kind] = a.n_items[kind] % on->n_processors;
    a.partial = on->scratch;
    return a;
}

extern "C" const char *k_whole_refuses(const struct k_target *on, const struct ft_op_whole *op) {
    int32_t q_dim = op->n_heads * op->head_dim;
    struct whole_layout at;
    if (op->n_rows < 1 || op->n_rows > FT_WHOLE_ROWS_MAX)
        return "more rows than eight";
    if (op->hidden % (2 * CHUNK) != 0 || op->intermediate % (2 * CHUNK) != 0 ||
        q_dim % (2 * CHUNK) != 0)
        return "sizes that are not multiples of 64";
    if (op->head_dim % TILE != 0 || op->head_dim > DIM_WHOLE)
        return "heads that are no multiples of 16, or above 128";
    if (op->vocab < TILE)
        return "a vocabulary below 16";
    if (!lay_out_all(op, on->n_processors, &at))
        return "rows too long for shared memory";
    if ((int64_t)k_ceil_div(op->len_max, SEGMENT) * op->n_rows * op->n_heads *
            (op->head_dim + PARTIAL_PAD) >
        (int64_t)(on->scratch_bytes / sizeof(float)))
        return "a context too long for the partial results of attention";
    return NULL;
}

extern "C" cudaError_t k_whole(const struct k_target *on, const struct ft_op_whole *op) {
    struct whole_args args = args_for(on, op);
    if (!lay_out_all(op, on->n_processors, &args.at))
        return cudaErrorInvalidValue;
    return k_launch(on, version_of(op)->kernel,
                    {dim3((unsigned)on->n_processors), dim3(WHOLE_THREADS), SHARED_WHOLE, 1},
                    &args);
}

extern "C" cudaError_t k_whole_setup(void) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < HEIGHTS * PASSES_MAX && error == cudaSuccess; i++)
        error = cudaFuncSetAttribute(versions[i / PASSES_MAX][i % PASSES_MAX].kernel,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_WHOLE);
    return error;
}
