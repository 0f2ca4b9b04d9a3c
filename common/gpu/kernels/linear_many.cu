/* y = x weight^T on the tensor cores for more rows than linear.cu is good at: with the bits
 * that it gives each row alone. Weights are read once for 64 rows.
 *
 * A first kernel leaves the three parts of each number of x in scratch, as mma wants them. Then a
 * cluster of four blocks has a tile of 128 outputs by up to 64 rows, each block four of the sixteen
 * slices of the columns. Its eight warps have 64 outputs by 16 rows of one slice each, so that few
 * rows leave warps for several slices at a time; they take turns to have weights and x copied into
 * a ring of stages in shared memory, as far ahead as there is room. What a block has summed up goes
 * to the block of the cluster that ends the output, where the four blocks' sums are added in order,
 * while the next tile has begun.
 *
 * Of an mma x has the sixteen rows and weights the eight columns, the other way round than in
 * linear.cu: a lane's vector of weights is two operands as it is, and x lies in operands. */
#include "common/gpu/kernels/linear.cuh"

#define CLUSTER (WARPS / SLICES) /* blocks */
#define TEAM 256                 /* threads of a block */
#define OUTS 128                 /* of a tile */
#define HALF_OUTS (OUTS / 2)     /* those of a warp; of a pair gate's, then up's */
#define OWN_OUTS (OUTS / CLUSTER)
#define MMA_ROWS 16
#define MMA_OUTS 8
#define SLICE_TILES (HALF_OUTS / MMA_OUTS)
#define PIECE (2 * CHUNK) /* columns of a slice that lie together */
#define BOX_BYTES (HALF_OUTS * CHUNK * 2)
/* Of x, a part of a piece of sixteen rows: for each chunk two operands of all lanes. */
#define OPERAND_BYTES (32 * 16)
#define X_BYTES (PIECE / CHUNK * 2 * OPERAND_BYTES)
#define RING_BYTES (176 * 1024) /* at most: what lies behind it needs the rest */

struct many_args {
    struct ft_whole_map maps[FT_OPS_PARTS_MAX];
    struct ft_op_linear op;
    char *x;       /* [n_groups][n_in / PIECE][ORDERS][row_warps] of X_BYTES */
    float *scales; /* [n_rows]; what a norm multiplies a row with */
    int32_t row_warps;
    uint32_t none;             /* 0, which the compiler does not know */
    int32_t n_groups, n_items; /* groups of rows; those times tiles, a tile's groups side by side */
    int32_t first_tile[FT_OPS_PARTS_MAX + 1]; /* of each part */
};

/* How warps and shared memory are dealt out for up to ROWS rows. */
template <int ROWS> struct plan {
    enum {
        ROW_WARPS = ROWS / MMA_ROWS,
        TILE_WARPS = 2 * ROW_WARPS,
        TOGETHER = TEAM / 32 / TILE_WARPS, /* slices */
        ROUNDS = SLICES / TOGETHER,
        KEPT = TOGETHER == 4 ? 1 : 2, /* a warp's sums until they are added up */
        N_X = ORDERS * ROW_WARPS,          /* of X_BYTES each */
        CHUNKS = TOGETHER * PIECE / CHUNK,
        HALF_BYTES = CHUNKS * BOX_BYTES,
        WEIGHT_BYTES = 2 * HALF_BYTES,
        STAGE_X_BYTES = TOGETHER * N_X * X_BYTES,
        STAGE_BYTES = WEIGHT_BYTES + STAGE_X_BYTES,
        STAGES = RING_BYTES / STAGE_BYTES,
        SENT = CLUSTER * ROWS * OWN_OUTS, /* floats of one item that a block gets */
        LENT = TOGETHER == 1 ? 0 : TILE_WARPS * 32 * 32,
        WORDS = 2 * STAGES + 2,
        BYTES = STAGES * STAGE_BYTES + (2 * SENT + LENT) * 4 + WORDS * 8
    };
};

/* Shared memory of a block. */
struct many_shared {
    char *ring;         /* [STAGES]: weights [2][CHUNKS][HALF_OUTS][CHUNK], x as in scratch */
    float *sent, *lent; /* [2][CLUSTER][ROWS][OWN_OUTS] of two items in turn; what add_up needs */
    uint64_t *is_full, *is_free, *is_sent; /* of stages; of items */
};
template <int ROWS> static __device__ __forceinline__ struct many_shared lay_out(char *memory) {
    typedef plan<ROWS> P;
    struct many_shared s;
    s.ring = memory;
    s.sent = (float *)(memory + P::STAGES * P::STAGE_BYTES);
    s.lent = s.sent + 2 * P::SENT;
    s.is_full = (uint64_t *)(s.lent + P::LENT);
    s.is_free = s.is_full + P::STAGES;
    s.is_sent = s.is_free + P::STAGES;
    return s;
}

/* What mma leaves in a lane, by eight outputs and size of the products: of rows lane / 4 and that
 * + 8, the outputs lane % 4 * 2 and the next. */
struct warp_sums {
    float at[SLICE_TILES][ORDERS][4];
};
/* The same, added up. */
struct slice_sums {
    float at[SLICE_TILES][4];
};

/* The part of an item's half, and the first output of it. */
struct whereabouts {
    int32_t part, out;
};
static __device__ __forceinline__ struct whereabouts find_half(const struct many_args &a,
                                                               int32_t item, int32_t half) {
    int32_t tile = item / a.n_groups;
    if (a.op.end == FT_LINEAR_SWIGLU)
        return {half, tile * HALF_OUTS};
    int32_t p = tile >= a.first_tile[2] ? 2 : tile >= a.first_tile[1] ? 1 : 0;
    return {p, (tile - a.first_tile[p]) * OUTS + half * HALF_OUTS};
}

/* Columns of a slice in pieces. */
static __device__ __forceinline__ int32_t pieces_of(const struct many_args &a, int32_t slice) {
    return max(a.op.n_in / PIECE - slice + WARPS - 1, 0) / WARPS;
}

/* ---- fetching */

/* A stage: a piece of each of TOGETHER slices, the piece-th of a round of an item; and where it
 * lies in the ring, for the parity-th time. */
struct stage {
    int32_t item, round, piece;
    int32_t slot;
    uint32_t parity;
};

/* From one that may have no columns to the next that has. */
template <int ROWS>
static __device__ __forceinline__ void settle(const struct many_args &a, struct stage &f) {
    typedef plan<ROWS> P;
    int32_t slice = (int32_t)k_cluster_rank() * SLICES;
    while (f.item < a.n_items && f.piece >= pieces_of(a, slice + f.round * P::TOGETHER)) {
        f.piece = 0;
        if (++f.round < P::ROUNDS)
            continue;
        f.round = 0;
        f.item += (int32_t)gridDim.x / CLUSTER;
    }
}

template <int ROWS> static __device__ __forceinline__ void next_slot(struct stage &f) {
    if (++f.slot < plan<ROWS>::STAGES)
        return;
    f.slot = 0;
    f.parity ^= 1;
}

template <int ROWS>
static __device__ __forceinline__ void next_stage(const struct many_args &a, struct stage &f) {
    next_slot<ROWS>(f);
    f.piece++;
    settle<ROWS>(a, f);
}

/* First of a stage's columns, in pieces. */
template <int ROWS> static __device__ __forceinline__ int32_t column_of(const struct stage &f) {
    return f.piece * WARPS + (int32_t)k_cluster_rank() * SLICES + f.round * plan<ROWS>::TOGETHER;
}

/* Columns and outputs that a matrix does not have come as zero. */
template <int ROWS>
static __device__ __forceinline__ void fetch_weights(const struct many_args &a,
                                                     const struct many_shared &s,
                                                     const struct stage &f, uint64_t policy) {
    typedef plan<ROWS> P;
    char *to = s.ring + f.slot * P::STAGE_BYTES;
    k_turn_expect(&s.is_full[f.slot], P::STAGE_BYTES);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct whereabouts at = find_half(a, f.item, half);
        k_chunks_start<P::CHUNKS>(to + half * P::HALF_BYTES, &a.maps[at.part], at.out,
                                  column_of<ROWS>(f) * PIECE, &s.is_full[f.slot], policy);
    }
}

/* Past the last row and column lies what nobody looks at the sums of. */
template <int ROWS>
static __device__ __forceinline__ void fetch_x(const struct many_args &a,
                                               const struct many_shared &s, const struct stage &f) {
    typedef plan<ROWS> P;
    int64_t at = (int64_t)(f.item % a.n_groups) * (a.op.n_in / PIECE) + column_of<ROWS>(f);
    k_bulk_start(s.ring + f.slot * P::STAGE_BYTES + P::WEIGHT_BYTES, a.x + at * P::N_X * X_BYTES,
                 P::STAGE_X_BYTES, &s.is_full[f.slot]);
}

/* A thread of each warp feeds the ring, in turns: all of them go through all stages, and start
 * those that are their own. First as many as the ring has, before anything of an earlier kernel may
 * be read, by one: weights are nobody's to write. Then what x is, once it is there. */
template <int ROWS>
static __device__ __forceinline__ void begin_feeding(const struct many_args &a,
                                                     const struct many_shared &s, struct stage &f,
                                                     uint64_t policy, bool is_own) {
    typedef plan<ROWS> P;
    settle<ROWS>(a, f);
    struct stage first = f;
    for (int i = 0; i < P::STAGES && f.item < a.n_items; i++) {
        if (is_own)
            fetch_weights<ROWS>(a, s, f, policy);
        next_stage<ROWS>(a, f);
    }
    if (!is_own)
        return;
    k_wait();
    f = first;
    for (int i = 0; i < P::STAGES && f.item < a.n_items; i++) {
        fetch_x<ROWS>(a, s, f);
        next_stage<ROWS>(a, f);
    }
}
/* The next stage, when the one before in its slot has been read. */
template <int ROWS>
static __device__ __forceinline__ void feed(const struct many_args &a, const struct many_shared &s,
                                            struct stage &f, uint64_t policy, bool is_own) {
    if (f.item >= a.n_items)
        return;
    if (is_own) {
        k_turn_wait(&s.is_free[f.slot], f.parity);
        fetch_weights<ROWS>(a, s, f, policy);
        fetch_x<ROWS>(a, s, f);
    }
    next_stage<ROWS>(a, f);
}

/* ---- products */

/* A chunk of a slice: this warp's outputs times its rows. Returns something of all that was read.
 * The vectors of a row of weights lie in the order number xor (row / 2 % 4). */
template <int ROWS>
static __device__ __forceinline__ uint32_t multiply(const char *outs, const char *rows,
                                                    struct warp_sums &sums) {
    int32_t lane = threadIdx.x % 32;
    uint32_t read = 0;
    uint4 x[ORDERS][2];
#pragma unroll
    for (int p = 0; p < ORDERS; p++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            x[p][h] = *(const uint4 *)(rows + p * plan<ROWS>::ROW_WARPS * X_BYTES +
                                       h * OPERAND_BYTES + lane * 16);
            read ^= x[p][h].x;
        }
    outs += lane / 4 * (CHUNK * 2) + (lane % 4 ^ lane / 8) * 16;
#pragma unroll
    for (int t = 0; t < SLICE_TILES; t++) {
        uint4 w = *(const uint4 *)(outs + t * MMA_OUTS * CHUNK * 2);
        uint32_t both[2][2] = {{w.x, w.y}, {w.z, w.w}};
        read ^= w.x;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int p = 0; p < ORDERS; p++) {
                uint32_t operand[4] = {x[p][h].x, x[p][h].y, x[p][h].z, x[p][h].w};
                k_mma(sums.at[t][p], operand, both[h]);
            }
    }
    return read;
}

static __device__ __forceinline__ struct slice_sums take(const struct warp_sums &sums) {
    struct slice_sums out;
#pragma unroll
    for (int t = 0; t < SLICE_TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float(*at)[4] = sums.at[t];
            out.at[t][i] = by_size(at[0][i], at[1][i], at[2][i]);
        }
    return out;
}

static __device__ __forceinline__ void add(struct slice_sums &to, const struct slice_sums &more) {
#pragma unroll
    for (int t = 0; t < SLICE_TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.at[t][i] = __fadd_rn(to.at[t][i], more.at[t][i]);
}

/* Warps of one slice add to their sums those of another slice, which lends them. */
template <int ROWS>
static __device__ __forceinline__ void lend(struct slice_sums &sums, int from, int to,
                                            float *lent) {
    typedef plan<ROWS> P;
    int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t own = warp / P::TILE_WARPS, place = (warp % P::TILE_WARPS * 32) * 32 + lane;
    if (own == from)
#pragma unroll
        for (int i = 0; i < 32; i++)
            lent[place + i * 32] = (&sums.at[0][0])[i];
    __syncthreads();
    if (own == to) {
        struct slice_sums got;
#pragma unroll
        for (int i = 0; i < 32; i++)
            (&got.at[0][0])[i] = lent[place + i * 32];
        add(sums, got);
    }
    __syncthreads(); /* it is lent again */
}

/* The sums of a block's four slices, of each pair first, in the warps of the first slice. A warp
 * comes with a slice of each pair, or with one slice, or with the pairs themselves. */
template <int ROWS>
static __device__ __forceinline__ struct slice_sums add_up(struct slice_sums kept[plan<ROWS>::KEPT],
                                                           float *lent) {
    typedef plan<ROWS> P;
#pragma unroll
    for (int k = 0; k < P::KEPT; k++)
#pragma unroll
        for (int from = 1; from < P::TOGETHER; from += 2)
            lend<ROWS>(kept[k], from, from - 1, lent);
    if (P::KEPT == 1)
        lend<ROWS>(kept[0], 2, 0, lent);
    else
        add(kept[0], kept[P::KEPT - 1]);
    return kept[0];
}

/* ---- ends */

/* This block's sums to the blocks that end the outputs: a pair's other half is ended by the same
 * block. Rows are written eight at a time, whose outputs are exchanged so that they lie in
 * different banks. */
static __device__ __forceinline__ int32_t place_sent(int32_t row, int32_t out) {
    return row * OWN_OUTS + (out ^ row % 4 * 8);
}
template <int ROWS>
static __device__ __forceinline__ void
send(const struct many_args &a, const struct slice_sums &sums, float *sent, uint64_t *is_sent) {
    typedef plan<ROWS> P;
    int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = warp % 2;
    if (warp / P::TILE_WARPS != 0)
        return;
    bool is_pair = a.op.end == FT_LINEAR_SWIGLU;
    int32_t first_row = (int32_t)k_cluster_rank() * ROWS + warp / 2 * MMA_ROWS + lane / 4;
#pragma unroll
    for (int t = 0; t < SLICE_TILES; t++) {
        int32_t out = t * MMA_OUTS + lane % 4 * 2;
        int32_t to = is_pair ? out / (OWN_OUTS / 2) : half * (CLUSTER / 2) + out / OWN_OUTS;
        out = is_pair ? half * (OWN_OUTS / 2) + out % (OWN_OUTS / 2) : out % OWN_OUTS;
#pragma unroll
        for (int high = 0; high < 2; high++)
            k_store_there(sent + place_sent(first_row + high * 8, out), (uint32_t)to,
                          sums.at[t][high * 2], sums.at[t][high * 2 + 1], is_sent);
    }
}

template <int ROWS>
static __device__ __forceinline__ float sum_of(const struct many_args &a, const float *sent,
                                               float scale, const float *bias) {
    float sum = sent[0];
#pragma unroll
    for (int r = 1; r < CLUSTER; r++)
        sum = __fadd_rn(sum, sent[r * ROWS * OWN_OUTS]);
    if (a.op.norm != NULL)
        sum = __fmul_rn(sum, scale);
    return bias == NULL ? sum : __fadd_rn(sum, *bias);
}

/* This block's outputs of an item: a warp has a row at a time, a lane an output of it. */
template <int ROWS>
static __device__ __forceinline__ void finish(const struct many_args &a, const float *sent,
                                              int32_t item) {
    int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = (int32_t)k_cluster_rank();
    int32_t first_row = item % a.n_groups * ROWS, n = min(ROWS, a.op.n_rows - first_row);
    bool is_pair = a.op.end == FT_LINEAR_SWIGLU;
    struct whereabouts at = find_half(a, item, 0);
    const struct ft_matrix &part = a.op.parts[at.part];
    at.out += lane + rank * (is_pair ? OWN_OUTS / 2 : OWN_OUTS);
    if (at.out >= part.n_out || (is_pair && lane >= OWN_OUTS / 2))
        return;
    const float *bias = part.bias == NULL ? NULL : part.bias + at.out;
#pragma unroll 4
    for (int32_t row = warp; row < n; row += TEAM / 32) {
        float scale = a.op.norm == NULL ? 1.0f : __ldcg(a.scales + first_row + row);
        float *to = part.out + (int64_t)(first_row + row) * part.out_stride + at.out;
        float before = a.op.end == FT_LINEAR_ADD ? __ldcg(to) : 0.0f;
        float y = sum_of<ROWS>(a, sent + place_sent(row, lane), scale, bias);
        if (is_pair) {
            const float *other = a.op.parts[1].bias;
            y = __fmul_rn(silu(y), sum_of<ROWS>(a, sent + place_sent(row, lane + OWN_OUTS / 2),
                                                scale, other == NULL ? NULL : other + at.out));
        }
        *to = a.op.end == FT_LINEAR_ADD ? __fadd_rn(before, y) : y;
    }
}

/* An item whose sums have been sent, and how many were before it. */
struct unfinished {
    int32_t item; /* -1: none */
    uint32_t number;
};
template <int ROWS>
static __device__ __forceinline__ void
finish_last(const struct many_args &a, const struct many_shared &s, struct unfinished &last) {
    if (last.item < 0)
        return;
    uint32_t which = last.number % 2;
    k_turn_wait(&s.is_sent[which], last.number / 2 % 2);
    finish<ROWS>(a, s.sent + which * plan<ROWS>::SENT, last.item);
    last.item = -1;
}

/* What a warp has come to: the stage that it multiplies next and the one that it feeds next, the
 * item to be finished, and stages so far. */
struct way {
    struct stage next, ahead;
    struct unfinished last;
    uint32_t n_read;
    uint64_t policy;
};

/* A warp's slice of a round of an item. */
template <int ROWS>
static __device__ __forceinline__ struct slice_sums
sum_round(const struct many_args &a, const struct many_shared &s, struct way &w, int32_t round) {
    typedef plan<ROWS> P;
    int32_t warp = threadIdx.x / 32, own = warp / P::TILE_WARPS;
    int32_t slice = (int32_t)k_cluster_rank() * SLICES + round * P::TOGETHER;
    int32_t outs = warp % 2 * P::HALF_BYTES + own * (PIECE / CHUNK) * BOX_BYTES;
    int32_t rows = P::WEIGHT_BYTES + (own * P::N_X + warp % P::TILE_WARPS / 2) * X_BYTES;
    int32_t n = pieces_of(a, slice), n_own = pieces_of(a, slice + own);
    struct warp_sums sums = {};
#pragma unroll 1
    for (int32_t piece = 0; piece < n; piece++) {
        const char *stage = s.ring + w.next.slot * P::STAGE_BYTES;
        uint32_t read = 0;
        k_turn_wait(&s.is_full[w.next.slot], w.next.parity);
        if (piece < n_own)
            read = multiply<ROWS>(stage + outs, stage + rows, sums);
        if (threadIdx.x % 32 == 0 && w.n_read > 0) /* by now all have read the one before */
            feed<ROWS>(a, s, w.ahead, w.policy, w.n_read % (TEAM / 32) == (uint32_t)warp);
        k_sync_warp();
        w.n_read++;
        if (piece < n_own)
            read ^= multiply<ROWS>(stage + outs + BOX_BYTES, stage + rows + 2 * OPERAND_BYTES,
                                   sums);
        k_turn_arrive_read(&s.is_free[w.next.slot], read, a.none);
        next_slot<ROWS>(w.next);
        finish_last<ROWS>(a, s, w.last); /* while others may still send */
    }
    return take(sums);
}

/* All items of this cluster. Items are sent into two places in turn: who sends one has been sent
 * the one before by all blocks, and all of their threads had finished the one before that. */
template <int ROWS>
static __device__ __forceinline__ void compute(const struct many_args &a,
                                               const struct many_shared &s) {
    typedef plan<ROWS> P;
    struct way w = {{(int32_t)blockIdx.x / CLUSTER, 0, 0, 0, 0}, {}, {-1, 0}, 0, 0};
    uint32_t n_sent = 0;
    /* A tile's groups of rows read its weights at about the same time: those are for the cache. */
    w.policy = a.n_groups == 1 ? k_policy_once() : k_policy_usual();
    w.ahead = w.next;
    w.ahead.parity = 1;
    if (threadIdx.x % 32 == 0)
        begin_feeding<ROWS>(a, s, w.ahead, w.policy, threadIdx.x == 0);
    k_sync_warp();
    k_wait();
    for (; w.next.item < a.n_items; w.next.item += gridDim.x / CLUSTER) {
        struct slice_sums kept[P::KEPT];
#pragma unroll
        for (int k = 0; k < P::KEPT; k++) {
            kept[k] = sum_round<ROWS>(a, s, w, k * (P::ROUNDS / P::KEPT));
            if (P::ROUNDS / P::KEPT == 2)
                add(kept[k], sum_round<ROWS>(a, s, w, 2 * k + 1));
        }
        finish_last<ROWS>(a, s, w.last);
        __syncthreads(); /* who gets anything of this item may send the next */
        uint32_t which = n_sent % 2;
        if (threadIdx.x == 0)
            k_turn_expect(&s.is_sent[which], P::SENT * 4);
        send<ROWS>(a, add_up<ROWS>(kept, s.lent), s.sent + which * P::SENT, &s.is_sent[which]);
        w.last = {w.next.item, n_sent++};
    }
    finish_last<ROWS>(a, s, w.last);
}

/* ---- kernels */

/* A block has a row of x: its parts into scratch, and what the norm multiplies it with. */
static __global__ void __launch_bounds__(THREADS)
    split_kernel(const __grid_constant__ struct many_args a) {
    __shared__ float warp_sums[WARPS];
    int32_t row = blockIdx.x, rows = a.row_warps * MMA_ROWS;
    const float *x = a.op.x + (int64_t)row * a.op.n_in;
    int64_t group = (int64_t)(row / rows) * (a.op.n_in / PIECE);
    /* of the sixteen rows; a lane's row in an mma, and the one eight rows on */
    int32_t own = row % rows / MMA_ROWS * X_BYTES + row % 8 * 4 * 16 + row / 8 % 2 * 4;
    k_let_next_start();
    k_wait();
    float sum = 0.0f;
#pragma unroll 4
    for (int32_t from = threadIdx.x / 32 * 128; from < a.op.n_in; from += THREADS * 4) {
        int32_t at = from + threadIdx.x % 32 * 4;
        float squares = 0.0f;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at < a.op.n_in)
            v = weigh_four(x, a.op.norm, at, squares);
        sum = __fadd_rn(sum, squares_of_sixteen(squares));
        if (at >= a.op.n_in)
            continue;
        uint32_t low[ORDERS], high[ORDERS];
        split_x(v.x, v.y, low);
        split_x(v.z, v.w, high);
        int32_t operand = at % PIECE / CHUNK * 2 + at % 8 / 4;
        char *to = a.x + (group + at / PIECE) * ORDERS * a.row_warps * X_BYTES + own +
                   operand * OPERAND_BYTES + at % CHUNK / 8 * 16;
#pragma unroll
        for (int p = 0; p < ORDERS; p++, to += a.row_warps * X_BYTES) {
            *(uint32_t *)to = low[p];
            *(uint32_t *)(to + 8) = high[p];
        }
    }
    if (a.op.norm == NULL)
        return;
    sum = squares_of_warp(sum);
    if (threadIdx.x % 32 == 0)
        warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        a.scales[row] = scale_of_warps(warp_sums, a.op.n_in, a.op.eps);
}

/* See above. Reads 2 * n_in bytes of weights an output, and 6 of x a row and column for every
 * 128 outputs. */
template <int ROWS>
static __global__ void __launch_bounds__(TEAM, 1)
    many_kernel(const __grid_constant__ struct many_args a) {
    typedef plan<ROWS> P;
    K_SHARED_MEMORY(char, memory);
    struct many_shared s = lay_out<ROWS>(memory);
    k_let_next_start();
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::STAGES; i++) {
            k_turn_setup(&s.is_full[i], 1);
            k_turn_setup(&s.is_free[i], TEAM); /* racecheck follows turns of all */
        }
        for (int i = 0; i < 2; i++)
            k_turn_setup(&s.is_sent[i], 1);
    }
    k_cluster_arrive();
    k_cluster_wait(); /* nobody writes to a block that has not begun */
    compute<ROWS>(a, s);
    k_cluster_arrive();
    k_cluster_wait(); /* nor to one that has ended */
}

/* ---- launching */

/* Rows that a block has at a time. */
static int32_t rows_for(int32_t n_rows) {
    return n_rows <= 16 ? 16 : n_rows <= 32 ? 32 : 64;
}

/* Scratch: scales, then x, and a stage more that may be read past its end. */
static size_t scales_bytes(const struct ft_op_linear *op) {
    return (size_t)k_ceil_div(op->n_rows, 64) * 64 * sizeof(float);
}
static size_t scratch_bytes(const struct ft_op_linear *op) {
    size_t rows = (size_t)rows_for(op->n_rows), n_groups = k_ceil_div(op->n_rows, (int64_t)rows);
    return scales_bytes(op) + ORDERS * n_groups * rows * (size_t)op->n_in * 2 +
           plan<64>::STAGE_X_BYTES;
}

bool k_linear_many_does(const struct k_target *on, const struct ft_op_linear *op) {
    return op->parts[0].elem == FT_ELEM_BF16 && op->n_in % PIECE == 0 &&
           scratch_bytes(op) <= on->scratch_bytes;
}

template <int ROWS> static cudaError_t launch(const struct k_target *on, struct many_args *args) {
    static_assert((int)plan<ROWS>::STAGE_X_BYTES == (int)plan<64>::STAGE_X_BYTES,
                  "scratch has room for it");
    for (int32_t p = 0; p < args->op.n_parts; p++) {
        cudaError_t error =
            k_map_make_chunks(&args->maps[p], args->op.parts[p].weight, args->op.parts[p].n_out,
                              args->op.n_in, HALF_OUTS, plan<ROWS>::CHUNKS);
        if (error != cudaSuccess)
            return error;
    }
    int32_t n_clusters = on->n_clusters < args->n_items ? on->n_clusters : args->n_items;
    return k_launch(on, (const void *)many_kernel<ROWS>,
                    {dim3((unsigned)n_clusters * CLUSTER), dim3(TEAM), plan<ROWS>::BYTES, CLUSTER},
                    args);
}

cudaError_t k_linear_many(const struct k_target *on, const struct ft_op_linear *op) {
    struct many_args args = {};
    int32_t rows = rows_for(op->n_rows);
    args.op = *op;
    args.scales = on->scratch;
    args.x = (char *)on->scratch + scales_bytes(op);
    args.row_warps = rows / MMA_ROWS;
    args.n_groups = (int32_t)k_ceil_div(op->n_rows, rows);
    for (int32_t p = 0; p < op->n_parts; p++)
        args.first_tile[p + 1] = args.first_tile[p] + (int32_t)k_ceil_div(op->parts[p].n_out, OUTS);
    args.n_items = op->end == FT_LINEAR_SWIGLU ? (int32_t)k_ceil_div(op->parts[0].n_out, HALF_OUTS)
                                               : args.first_tile[op->n_parts];
    args.n_items *= args.n_groups;
    for (int32_t p = op->n_parts; p < FT_OPS_PARTS_MAX; p++)
        args.first_tile[p] = INT32_MAX;
    cudaError_t error = k_launch(on, (const void *)split_kernel,
                                 {dim3((unsigned)op->n_rows), dim3(THREADS), 0, 1}, &args);
    if (error != cudaSuccess)
        return error;
    return rows == 16   ? launch<16>(on, &args)
           : rows == 32 ? launch<32>(on, &args)
                        : launch<64>(on, &args);
}

template <int ROWS> static cudaError_t allow(void) {
    return cudaFuncSetAttribute((const void *)many_kernel<ROWS>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, plan<ROWS>::BYTES);
}

cudaError_t k_linear_many_setup(struct k_target *on) {
    cudaError_t error = allow<16>();
    if (error == cudaSuccess)
        error = allow<32>();
    if (error == cudaSuccess)
        error = allow<64>();
    if (error != cudaSuccess)
        return error;
    error = k_clusters_count((const void *)many_kernel<64>,
                             {dim3((unsigned)on->n_processors / CLUSTER * CLUSTER), dim3(TEAM),
                              plan<64>::BYTES, CLUSTER},
                             &on->n_clusters);
    on->n_clusters = on->n_clusters < 1 ? 1 : on->n_clusters;
    return error;
}
