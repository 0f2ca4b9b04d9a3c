/* A step of a whole model in one kernel, for up to sixteen rows: bound by reading the weights.
 *
 * One block on each processor goes through all layers; six barriers of the grid a layer stand
 * where kernels would end. Weights do not depend on activations, so one thread has them brought
 * into a ring in shared memory, across tiles, matrices, layers and barriers, as far ahead as there
 * is room: while blocks wait for each other or attend, the ring fills. Another brings what o and
 * down are multiplied with, in pieces, once blocks have written it. Eight warps multiply; two more
 * end the tiles. From nine rows on two blocks, a cluster, have half of the columns of two tiles
 * each, so that x has room; each of them ends one of the tiles, by four warps.
 *
 * The order of each sum is that of linear.cu, attention.cu and rows.cu. */
#include "common/gpu/kernels/whole.cuh"
#include "common/gpu/kernels/whole_attention.cuh"
#include "common/gpu/kernels/whole_finish.cuh"
#include "common/gpu/kernels/whole_multiply.cuh"

#define NORM_THREADS 256 /* of a row, as in rows.cu */
#define NORM_LINE 32     /* floats that are prefetched together */

static_assert(FT_WHOLE_COLUMNS == K_BOX_COLUMNS, "maps are of the boxes that are fetched");

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

/* ---- x of the head, in shared memory */

#define PICKED_AHEAD(passes) ((passes) == 2 ? 3 : 2) /* rows on their way at a time */

/* The picked rows, normalised in the order of rows.cu, this block's columns; as many at a time as
 * are on their way. */
template <int PASSES, int SHARE>
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
            constexpr int CHUNKS = share<SHARE>::CHUNKS;
            int32_t chunk = i / CHUNK;
            if (chunk % SLOT_CHUNKS / CHUNKS != place_in_team<SHARE>())
                continue;
            int32_t to = (chunk / SLOT_CHUNKS * CHUNKS + chunk % CHUNKS) * CHUNK + i % CHUNK;
            float4 v[ROWS], w = __ldg((const float4 *)(op.norm + i));
#pragma unroll
            for (int m = 0; m < ROWS; m++)
                if (m < n)
                    v[m] = __ldcg((const float4 *)(op.x + from[m] + i));
#pragma unroll
            for (int m = 0; m < ROWS; m++)
                if (m < n)
                    put_four(parts_at(s.x, op.n_picks, first + m, to),
                             make_float4(k_norm_apply(v[m].x, scales[m], w.x),
                                         k_norm_apply(v[m].y, scales[m], w.y),
                                         k_norm_apply(v[m].z, scales[m], w.z),
                                         k_norm_apply(v[m].w, scales[m], w.w)));
        }
    }
    k_turn_arrive(&s.small->is_staged);
    k_turn_wait(&s.small->is_staged, 0);
}

/* ---- a matrix */

/* An item's sums to the warps that finish its tiles. */
template <int PASSES, int SHARE>
static __device__ __forceinline__ void end_item(const struct whole_args &a, const struct shared &s,
                                                struct whole_turn &turn,
                                                struct sums<PASSES> sums[SHARE][SETS],
                                                int32_t n_rows) {
    /* who has no row is not waited for, so that turns could leave behind who waits for them */
    if (SHARE == 1 || own_part<SHARE>().row < n_rows)
        k_turn_wait(&s.small->is_finished[turn.slot], turn.parity ^ 1);
    if constexpr (SHARE == 1) {
        hand_in<PASSES>(sums[0], s.sums + turn.slot * WHOLE_WARPS * n_rows * TILE, n_rows);
        k_fence_block();
        k_sync_warp();
        k_turn_arrive(&s.small->is_handed[turn.slot]);
    } else {
#pragma unroll
        for (int t = 0; t < SHARE; t++)
            send_in(sums[t], s.sums + turn.slot * WHOLE_WARPS * share<SHARE>::SUMS, (uint32_t)t,
                    &s.small->is_handed[turn.slot], n_rows);
    }
    whole_next(turn, a.at.n_handed);
}

/* This block's share of a matrix. What a norm stands before is fetched here; of o and down a block
 * has few tiles, and a thread of its own brings x, in pieces. */
template <int PASSES, int SHARE>
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
        stage_picked<PASSES, SHARE>(op, s);
    else if (!is_direct && item < n_items)
        fetch_normed<SHARE>(op, s);
    uint32_t turns = s.small->turns[k_thread() / 32];
    struct whole_turn ring = whole_unpacked(turns, WHOLE_RING);
    struct whole_turn handed = whole_unpacked(turns, WHOLE_HANDED);
    struct sums<PASSES> sums[SHARE][SETS] = {};
#pragma unroll 1
    for (; item < n_items; item += n_teams<SHARE>()) {
        if (is_direct) {
            uint32_t pieces = s.small->turns[k_thread() / 32];
            struct whole_turn piece = whole_unpacked(pieces, WHOLE_PIECES);
            multiply_item<PASSES, SHARE, true>(a, s, ring, piece, n_rows, n_chunks, sums);
            k_sync_warp();
            if (k_thread() % 32 == 0)
                s.small->turns[k_thread() / 32] = whole_packed(piece, WHOLE_PIECES);
            k_sync_warp();
        } else {
            multiply_item<PASSES, SHARE, false>(a, s, ring, all, n_rows, n_chunks, sums);
            all.slot = -1;
        }
        end_item<PASSES, SHARE>(a, s, handed, sums, n_rows);
    }
    uint32_t pieces = s.small->turns[k_thread() / 32] & WHOLE_TURN_BITS << WHOLE_PIECES;
    k_sync_warp();
    if (k_thread() % 32 == 0)
        s.small->turns[k_thread() / 32] =
            pieces | whole_packed(ring, WHOLE_RING) | whole_packed(handed, WHOLE_HANDED);
    k_sync_warp();
}

/* ---- the step */

template <int N, int PASSES, int SHARE>
static __device__ __forceinline__ void run_layers(const struct whole_args &a,
                                                  const struct shared &s) {
    const struct ft_op_whole &op = a.op;
    bring_layer(op, s, 0);
    begin_rows(a, s);
    uint32_t n_passed = whole_arrive<SHARE>(op, 0, WHOLE_COMPUTE);
    whole_await_stage<SHARE>(a, s, n_passed, 0);
    int32_t n_stages = op.n_layers * WHOLE_HEAD + 1, rank = team<SHARE>();
    for (int32_t stage = 0; stage < n_stages; stage++) {
        enum whole_kind kind = whole_kind_of(a, stage);
        if (kind == WHOLE_O)
            bring_layer(op, s, stage / WHOLE_HEAD + 1);
        run_matrix<PASSES, SHARE>(a, s, stage, rank);
        if (stage == n_stages - 1)
            break;
        rank = whole_rank_after<SHARE>(a, kind, rank);
        n_passed = whole_arrive<SHARE>(op, n_passed, WHOLE_ALL);
        if (kind == WHOLE_QKV) {
            attend<N>(a.at.small, n_passed);
            n_passed = whole_arrive<SHARE>(op, n_passed, WHOLE_COMPUTE);
            whole_await(op, n_passed);
            merge_all(a.at.small);
            n_passed = whole_arrive<SHARE>(op, n_passed, WHOLE_COMPUTE);
        }
        whole_await_stage<SHARE>(a, s, n_passed, stage + 1);
    }
}

/* All blocks of a team have begun, or have ended what they send each other. */
template <int SHARE> static __device__ __forceinline__ void team_sync(void) {
    if (SHARE == 1)
        return;
    k_sync_warp();
    k_cluster_arrive();
    k_cluster_wait();
}

/* A team has every n_teams-th item of each matrix, a warp its share of the columns; a segment of KV
 * is a block's. Moves each weight once, and the KV of each row. */
template <int N, int PASSES, int SHARE>
static __global__ void __launch_bounds__(crew<SHARE>::ALL_THREADS, 1)
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
            k_turn_setup(&s.small->is_handed[i], SHARE == 1 ? COMPUTE : 1);
            k_turn_setup(&s.small->is_finished[i], SHARE * crew<SHARE>::FINISHERS * 32);
        }
        k_turn_setup(&s.small->is_known, 1);
        k_turn_setup(&s.small->is_staged, COMPUTE);
        k_turn_setup(&s.small->is_squared, COMPUTE);
    }
    __syncthreads();
    team_sync<SHARE>();
    if (threadIdx.x >= COMPUTE) {
        k_give_registers<crew<SHARE>::OTHER_REGISTERS>();
        if (threadIdx.x == COMPUTE)
            whole_fetch_all<SHARE>(a, s);
        if (threadIdx.x == COMPUTE + 32)
            whole_fetch_x<SHARE>(a, s);
        if (threadIdx.x >= crew<SHARE>::FIRST * 32) {
            k_turn_wait(&s.small->is_known, 0);
            if (s.small->is_whole)
                finish_all<SHARE>(a, s);
        }
    } else {
        k_take_registers<crew<SHARE>::COMPUTE_REGISTERS>();
        k_wait();
        if (threadIdx.x == 0) {
            s.small->is_whole = whole_assemble(a.op);
            k_turn_arrive(&s.small->is_known);
        }
        block_sync();
        if (s.small->is_whole)
            run_layers<N, PASSES, SHARE>(a, s);
        whole_leave(a.op);
    }
    team_sync<SHARE>();
}

/* ---- launching */

#define SLOTS_MIN 2
#define SHARED_ALIGN 128

/* Most queries of a span and KV head. */
static int32_t queries_of(const struct ft_op_whole *op) {
    return (op->n_rows - op->n_spans + 1) * (op->n_heads / op->n_kv_heads);
}
static int32_t share_of(const struct ft_op_whole *op) {
    return op->n_rows <= FT_WHOLE_ROWS_ALONE ? 1 : 2;
}

/* By queries of a tile, eight a height, and passes, or by two blocks. */
struct whole_version {
    const void *kernel;
    int64_t tile_bytes;
};
#define VERSION(n, p, s) {(const void *)whole_kernel<n, p, s>, (int64_t)sizeof(tile<n, DIM_WHOLE>)}
#define WAYS 4
#define HEIGHTS 3
static const struct whole_version versions[HEIGHTS][WAYS] = {
    {VERSION(8, 1, 1), VERSION(8, 2, 1), VERSION(8, 3, 1), VERSION(8, 3, 2)},
    {VERSION(16, 1, 1), VERSION(16, 2, 1), VERSION(16, 3, 1), VERSION(16, 3, 2)},
    {VERSION(24, 1, 1), VERSION(24, 2, 1), VERSION(24, 3, 1), VERSION(24, 3, 2)},
};
/* One tile for all queries where it may be as high; else of the highest as many as it takes. */
static const struct whole_version *version_of(const struct ft_op_whole *op) {
    int32_t height = (int32_t)k_ceil_div(queries_of(op), GROUP), n = op->n_rows;
    int way = n <= 2 ? 0 : n <= 5 ? 1 : n <= FT_WHOLE_ROWS_ALONE ? 2 : 3;
    return &versions[(height < HEIGHTS ? height : HEIGHTS) - 1][way];
}
static int32_t rounded(int64_t bytes) {
    return (int32_t)((bytes + SHARED_ALIGN - 1) / SHARED_ALIGN * SHARED_ALIGN);
}

/* Most chunks of a row that are one block's. */
static int64_t own_chunks(int32_t n_in, int32_t n_share) {
    int32_t n = n_in / CHUNK, own = SLOT_CHUNKS / n_share;
    return n / SLOT_CHUNKS * own + (n % SLOT_CHUNKS < own ? n % SLOT_CHUNKS : own);
}

/* What lies behind the ring: x and sums, and at other times KV and a tile of queries. */
static int32_t lay_out_rows(const struct ft_op_whole *op, int32_t n_processors,
                            struct whole_layout *at) {
    int64_t n_units = (int64_t)k_ceil_div(op->len_max, SEGMENT) * op->n_spans * op->n_kv_heads;
    int64_t row_floats = (int64_t)op->n_rows * (int64_t)sizeof(float);
    int64_t tile_bytes = version_of(op)->tile_bytes;
    int32_t head_bytes = (int32_t)(ft_kv_head_floats(op->head_dim) * (int64_t)sizeof(float));
    int32_t n_share = share_of(op);
    int64_t pair_bytes =
        n_share == 1 ? TILE * row_floats : share<2>::SUMS * (int64_t)sizeof(float);
    at->small = 0;
    at->squares = (int32_t)sizeof(struct small);
    at->angles = at->squares + (int32_t)(WARPS * row_floats);
    at->sums = at->angles + (int32_t)(op->head_dim * row_floats);
    at->x = rounded(at->sums + at->n_handed * WHOLE_WARPS * pair_bytes);
    at->kv = rounded(at->sums);
    at->kv_block_bytes = NEAR_BYTES(head_bytes);
    at->n_kv = n_units > n_processors ? 2 : 1;
    at->tile = at->kv + rounded((int64_t)at->n_kv * BLOCKS * at->kv_block_bytes);
    int64_t piece_bytes = (int64_t)op->n_rows * PIECE_ROW_BYTES / n_share;
    int64_t x_bytes = op->n_rows * own_chunks(op->hidden, n_share) * ORDERS * COLUMN_BYTES;
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
    int32_t slot_bytes = 2 * K_BOX_BYTES / share_of(op);
    for (at->n_handed = HANDED_MAX; at->n_handed > 0; at->n_handed /= 2) {
        int32_t n = (SHARED_WHOLE - lay_out_rows(op, n_processors, at)) / slot_bytes;
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
    int32_t ring = at->n_slots * slot_bytes;
    at->small += ring;
    at->squares += ring;
    at->angles += ring;
    at->sums += ring;
    at->x += ring;
    at->kv += ring;
    at->tile += ring;
    return true;
}

static int32_t n_blocks_for(const struct k_target *on, const struct ft_op_whole *op) {
    return share_of(op) == 1 ? on->n_processors : 2 * on->n_pairs;
}

static unsigned n_threads_for(const struct ft_op_whole *op) {
    return share_of(op) == 1 ? (unsigned)crew<1>::ALL_THREADS : (unsigned)crew<2>::ALL_THREADS;
}

static struct whole_args args_for(const struct k_target *on, const struct ft_op_whole *op) {
    struct whole_args a = {};
    int32_t q_dim = op->n_heads * op->head_dim, kv_dim = op->n_kv_heads * op->head_dim;
    int32_t n_share = share_of(op);
    a.op = *op;
    if (n_share > 1)
        a.op.maps = op->half_maps;
    a.n_in[WHOLE_QKV] = a.n_in[WHOLE_GATE_UP] = a.n_in[WHOLE_HEAD] = op->hidden;
    a.n_in[WHOLE_O] = q_dim;
    a.n_in[WHOLE_DOWN] = op->intermediate;
    a.n_items[WHOLE_QKV] = (q_dim + 2 * kv_dim) / TILE;
    a.n_items[WHOLE_O] = a.n_items[WHOLE_DOWN] = op->hidden / TILE;
    a.n_items[WHOLE_GATE_UP] = op->intermediate / HALF;
    a.n_items[WHOLE_HEAD] = op->n_picks > 0 ? (int32_t)k_ceil_div(op->vocab, TILE) : 0;
    for (int kind = 0; kind < WHOLE_KINDS; kind++) {
        a.n_items[kind] = (int32_t)k_ceil_div(a.n_items[kind], n_share); /* uneven: the head */
        a.n_more[kind] = a.n_items[kind] % (n_blocks_for(on, op) / n_share);
    }
    a.partial = on->scratch;
    return a;
}

extern "C" const char *k_whole_refuses(const struct k_target *on, const struct ft_op_whole *op) {
    int32_t q_dim = op->n_heads * op->head_dim;
    struct whole_layout at;
    if (op->n_rows < 1 || op->n_rows > FT_WHOLE_ROWS_MAX)
        return "more rows than sixteen";
    if (op->hidden % (2 * CHUNK) != 0 || op->intermediate % (2 * CHUNK) != 0 ||
        q_dim % (2 * CHUNK) != 0)
        return "sizes that are not multiples of 64";
    if (op->head_dim % TILE != 0 || op->head_dim > DIM_WHOLE)
        return "heads that are no multiples of 16, or above 128";
    if (op->vocab < TILE)
        return "a vocabulary below 16";
    if (share_of(op) > 1 && on->n_pairs < 1)
        return "more rows than eight, and no clusters of two";
    if (!lay_out_all(op, n_blocks_for(on, op), &at))
        return "rows too long for shared memory";
    if ((int64_t)k_ceil_div(op->len_max, SEGMENT) * op->n_rows * op->n_heads *
            (op->head_dim + PARTIAL_PAD) >
        (int64_t)(on->scratch_bytes / sizeof(float)))
        return "a context too long for the partial results of attention";
    return NULL;
}

extern "C" cudaError_t k_whole(const struct k_target *on, const struct ft_op_whole *op) {
    struct whole_args args = args_for(on, op);
    int32_t n_blocks = n_blocks_for(on, op);
    if (!lay_out_all(op, n_blocks, &args.at))
        return cudaErrorInvalidValue;
    return k_launch(on, version_of(op)->kernel,
                    {dim3((unsigned)n_blocks), dim3(n_threads_for(op)), SHARED_WHOLE,
                     (unsigned)share_of(op)},
                    &args);
}

extern "C" cudaError_t k_whole_setup(struct k_target *on) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < HEIGHTS * WAYS && error == cudaSuccess; i++)
        error = cudaFuncSetAttribute(versions[i / WAYS][i % WAYS].kernel,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_WHOLE);
    if (error != cudaSuccess)
        return error;
    return k_clusters_count(versions[0][WAYS - 1].kernel,
                            {dim3((unsigned)on->n_processors / 2 * 2), dim3(crew<2>::ALL_THREADS),
                             SHARED_WHOLE, 2},
                            &on->n_pairs);
}
