/* whole: the parts of the whole step's kernel: its way through the weights, and its barriers.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   lets what is fetched of weights depend on anything that the step computes. */
#ifndef FT_GPU_KERNELS_WHOLE_CUH
#define FT_GPU_KERNELS_WHOLE_CUH

#include "common/gpu/kernels/attention.cuh"
#include "common/gpu/kernels/linear.cuh"
#include "common/gpu/kernels/whole.h"

/* Matrices of a layer, in order; then the head. */
enum whole_kind { WHOLE_QKV, WHOLE_O, WHOLE_GATE_UP, WHOLE_DOWN, WHOLE_HEAD, WHOLE_KINDS };

#define HALF (TILE / 2)
#define COLUMN_BYTES (CHUNK * 2)            /* a chunk of a row of weights, or of x in one size */
#define SLOT_CHUNKS (K_BOX_COLUMNS / CHUNK) /* two of each set */
/* Blocks that share tiles. One has all columns of a tile; x of more than eight rows does not fit
 * then. Two, a cluster, have half of the columns of two tiles each, its warps half of the rows
 * each; each of them ends one tile. */
template <int SHARE> struct share {
    enum {
        CHUNKS = SLOT_CHUNKS / SHARE, /* of a slot that are a block's */
        BOX_BYTES = K_BOX_BYTES / SHARE,
        SLOT_BYTES = 2 * BOX_BYTES, /* of both halves of a tile */
        SUMS = 256                  /* floats of a pair of slices, of sixteen rows */
    };
};
/* Warps that compute, each with the columns that two warps of linear.cu have, two slices beside
 * each other: fewer warps may keep more in registers. Two more fetch weights, and x of o and down;
 * others finish tiles, each of them two rows in FINISH_TURNS turns. */
#define SETS 2
#define WHOLE_WARPS (WARPS / SETS)
#define COMPUTE (32 * WHOLE_WARPS)
#define FINISH_TURNS 2
/* Registers of a thread: all have as many at first, and 65,536 are there. Four warps at a time give
 * or take them: of a block that shares tiles two have nothing to do. */
template <int SHARE> struct crew {
    enum {
        FINISHERS = SHARE * FT_WHOLE_ROWS_ALONE / 2 / FINISH_TURNS,
        FIRST = WHOLE_WARPS + (SHARE == 1 ? 2 : 4), /* the warp that is the first finisher */
        ALL_THREADS = 32 * (FIRST + FINISHERS),
        MET = COMPUTE + 32 * FINISHERS,        /* threads that compute, and that finish tiles */
        AHEAD = SHARE == 1 ? FINISH_TURNS : 1, /* turns prepared before sums are there */
        OTHER_REGISTERS = SHARE == 1 ? 104 : 80,
        COMPUTE_REGISTERS = SHARE == 1 ? 200 : 176
    };
};
/* A piece of x: the columns of a slot, of all rows. */
#define PIECE_ROW_BYTES (SLOT_CHUNKS * ORDERS * COLUMN_BYTES)
#define PIECES_MIN 2
#define PIECES_MAX 3
#define HANDED_MAX 4 /* tiles whose sums wait to be finished */

/* Shared memory, in bytes from its begin on: slots of a ring first. */
struct whole_layout {
    int32_t n_slots, n_pieces, n_handed;
    int32_t small, squares, angles, sums, x;
    /* For attention, where sums and x are at other times: [n_kv][BLOCKS] of kv_block_bytes, two
     * segments where a block may have more than one unit; and a struct tile. */
    int32_t kv, kv_block_bytes, n_kv, tile;
};

struct whole_args {
    struct ft_op_whole op;
    struct whole_layout at;
    int32_t n_in[WHOLE_KINDS];
    int32_t n_items[WHOLE_KINDS]; /* of all blocks: tiles of 16 outputs, or as many as are shared */
    int32_t n_more[WHOLE_KINDS];  /* blocks, or clusters, that have one more than others */
    float *partial;               /* see struct partials */
    uint32_t none;                /* 0, see k_turn_arrive_read */
};

/* ---- shared memory */

#define DIM_WHOLE 128 /* largest head */
#define SHARED_WHOLE (227 * 1024)
#define SLOTS_MAX 8

/* Which of the slots, or of the sums, and the parity of its turn. */
struct whole_turn {
    int32_t slot;
    uint32_t parity;
};
/* Turns wait in shared memory between tiles or stages: what is kept in registers elsewhere is
 * spilled, and comes back from the second-level cache. */
#define WHOLE_TURN_BITS 15u
#define WHOLE_RING 0 /* where each lies in the word */
#define WHOLE_PIECES 4
#define WHOLE_HANDED 8
static __device__ __forceinline__ uint32_t whole_packed(const struct whole_turn &turn, int at) {
    return ((uint32_t)turn.slot * 2 | turn.parity) << at;
}
static __device__ __forceinline__ struct whole_turn whole_unpacked(uint32_t turns, int at) {
    turns = turns >> at & WHOLE_TURN_BITS;
    return {(int32_t)(turns / 2), turns % 2};
}
/* A tile is eight outputs and eight others, so that both halves of a rotated pair, or gate and up,
 * meet in a warp: which matrix each half is of, and its first row there. */
struct whole_halves {
    int32_t map[2], row[2];
};
/* What is fetched next, by one thread. */
template <int SHARE> struct whole_cursor {
    int32_t stage, rank, item, column, n_in, nth; /* tile of the item */
    struct whole_halves at[SHARE];
    struct whole_turn turn;
};

struct small {
    uint64_t is_full[SLOTS_MAX], is_free[SLOTS_MAX];           /* turns of slots */
    uint64_t has_piece[PIECES_MAX], is_piece_free[PIECES_MAX]; /* turns of pieces of x */
    uint64_t is_handed[HANDED_MAX], is_finished[HANDED_MAX];   /* turns of sums */
    /* Turns of stages: what each is multiplied with is known; and the thread that fetches x of o
     * and down has seen so, that it may miss none. All that compute open a stage, and those that
     * write x in shared memory wait for that: racecheck follows it, as it does not block_sync. */
    uint64_t is_open, is_entered;
    struct ft_span spans[FT_WHOLE_ROWS_MAX];
    struct ft_whole_layer layers[2];  /* that of an even number, and the other */
    struct ft_op_attention attention; /* of the layer in hand */
    int32_t slots[FT_WHOLE_ROWS_MAX], positions[FT_WHOLE_ROWS_MAX];
    uint64_t is_known;
    uint64_t is_squared, is_staged; /* of the head's rows: what they are scaled with; all of x */
    uint32_t is_whole;
    uint32_t turns[WHOLE_WARPS]; /* of each warp: slots, pieces and sums, packed */
    struct whole_args args;      /* for functions that are not inlined: near, unlike a parameter */
};

struct shared {
    char *ring;              /* [n_slots], see struct share */
    float (*squares)[WARPS]; /* [n_rows], of the warps that stage the head's x */
    float *angles;           /* [n_rows][head_dim]: cosines, then sines */
    float *sums; /* [n_handed][WHOLE_WARPS][n_rows][TILE], of tiles in turn, see sum_at; of shared
                  * tiles [n_handed][WHOLE_WARPS][SUMS], see shared_sum_at */
    char *x;     /* in parts, see parts_at; of o and down [n_pieces] pieces in turn */
    struct small *small;
};

static __device__ __forceinline__ struct shared lay_out(char *memory,
                                                        const struct whole_layout &at) {
    return {memory,
            (float(*)[WARPS])(memory + at.squares),
            (float *)(memory + at.angles),
            (float *)(memory + at.sums),
            memory + at.x,
            (struct small *)(memory + at.small)};
}

/* Where a row's output lies in sums: every other pair of rows begins with the other half, so that
 * what a warp hands in lies in different banks. */
static __device__ __forceinline__ int32_t sum_at(int32_t row, int32_t out) {
    return row * TILE + (out ^ (row & 2) * (HALF / 2));
}

/* The same in a pair's sums of a shared tile: two rows, from an even one on, are side by side. */
static __device__ __forceinline__ int32_t shared_sum_at(int32_t row, int32_t out) {
    return out * (2 * HALF) + (row / 2 ^ out % HALF) * 2 + row % 2;
}
/* Bytes that a block is sent of a tile: rows by twos. */
static __device__ __forceinline__ uint32_t shared_sum_bytes(int32_t n_rows) {
    return (uint32_t)((n_rows + 1) / 2 * 2 * TILE * WHOLE_WARPS) * (uint32_t)sizeof(float);
}

/* A barrier of the threads that compute. */
static __device__ __forceinline__ void block_sync(void) {
    k_sync_some(1, COMPUTE);
}

/* A barrier of these and of those that finish tiles. */
template <int SHARE> static __device__ __forceinline__ void all_sync(void) {
    k_sync_some(2, crew<SHARE>::MET);
}

/* Rows of x in parts are [chunk][n rows][ORDERS] of COLUMN_BYTES: what lanes give to the tensor
 * cores together lies in different banks. Where a row's columns begin, from one on that is even. */
static __device__ __forceinline__ char *parts_at(char *x, int32_t n, int32_t row, int32_t column) {
    return x + (column / CHUNK * n + row) * (ORDERS * COLUMN_BYTES) + column % CHUNK * 2;
}

/* A number of x, in parts. */
static __device__ __forceinline__ void put_parts(char *to, float value) {
    uint32_t parts[ORDERS];
    split_x(value, 0.0f, parts);
#pragma unroll
    for (int p = 0; p < ORDERS; p++)
        *(uint16_t *)(to + p * COLUMN_BYTES) = (uint16_t)parts[p];
}

/* Four, from a column on that is a multiple of four. */
static __device__ __forceinline__ void put_four(char *to, float4 v) {
    uint32_t low[ORDERS], high[ORDERS];
    split_x(v.x, v.y, low);
    split_x(v.z, v.w, high);
#pragma unroll
    for (int p = 0; p < ORDERS; p++)
        *(uint2 *)(to + p * COLUMN_BYTES) = make_uint2(low[p], high[p]);
}

/* ---- the way through the weights */

static __device__ __forceinline__ enum whole_kind whole_kind_of(const struct whole_args &a,
                                                                int32_t stage) {
    return stage < a.op.n_layers * WHOLE_HEAD ? (enum whole_kind)(stage % WHOLE_HEAD) : WHOLE_HEAD;
}

/* Those that share tiles: how many there are, this block's, and its place there. */
template <int SHARE> static __device__ __forceinline__ int32_t n_teams(void) {
    return (int32_t)gridDim.x / SHARE;
}
template <int SHARE> static __device__ __forceinline__ int32_t team(void) {
    return (int32_t)blockIdx.x / SHARE;
}
template <int SHARE> static __device__ __forceinline__ int32_t place_in_team(void) {
    return SHARE == 1 ? 0 : (int32_t)k_cluster_rank();
}

/* Where a tile of q, k and v begins: the part, its head, and the first of eight pairs. */
struct whole_qkv {
    int32_t part, head, pair;
};
static __device__ __forceinline__ struct whole_qkv whole_qkv_at(const struct ft_op_whole &op,
                                                                int32_t tile) {
    int32_t per_head = op.head_dim / TILE, head = tile / per_head;
    struct whole_qkv at = {0, head, tile % per_head * HALF};
    if (head >= op.n_heads) {
        at.part = 1 + (head - op.n_heads) / op.n_kv_heads;
        at.head = (head - op.n_heads) % op.n_kv_heads;
    }
    return at;
}

/* What a tile is made of. */
static __device__ __forceinline__ struct whole_halves whole_tile(const struct whole_args &a,
                                                                 int32_t stage, int32_t tile) {
    const struct ft_op_whole &op = a.op;
    enum whole_kind kind = whole_kind_of(a, stage);
    int32_t map = stage / WHOLE_HEAD * FT_WHOLE_MATRICES, row = tile * TILE;
    if (kind == WHOLE_QKV) {
        struct whole_qkv at = whole_qkv_at(op, tile);
        map += FT_WHOLE_Q + at.part;
        row = at.head * op.head_dim + at.pair;
        return {{map, map}, {row, row + op.head_dim / 2}};
    }
    if (kind == WHOLE_GATE_UP)
        return {{map + FT_WHOLE_GATE, map + FT_WHOLE_UP}, {tile * HALF, tile * HALF}};
    map += kind == WHOLE_O ? FT_WHOLE_O : kind == WHOLE_DOWN ? FT_WHOLE_DOWN : 0;
    return {{map, map}, {row, row + HALF}};
}

/* A team's place among all, from which on every n_teams-th item is its: in order in the first
 * stage; those that have more than others come behind them in the next. */
template <int SHARE>
static __device__ __forceinline__ int32_t whole_rank_after(const struct whole_args &a,
                                                           enum whole_kind kind, int32_t rank) {
    rank -= a.n_more[kind];
    return rank < 0 ? rank + n_teams<SHARE>() : rank;
}

/* The maps of a stage, so that what is fetched first need not wait for them too. */
static __device__ __forceinline__ void whole_prefetch_maps(const struct whole_args &a,
                                                           int32_t stage) {
    enum whole_kind kind = whole_kind_of(a, stage);
    const struct ft_whole_map *maps = a.op.maps + stage / WHOLE_HEAD * FT_WHOLE_MATRICES;
    if (kind == WHOLE_HEAD) {
        k_prefetch_map(maps);
    } else if (kind == WHOLE_QKV) {
        k_prefetch_map(maps + FT_WHOLE_Q);
        k_prefetch_map(maps + FT_WHOLE_K);
        k_prefetch_map(maps + FT_WHOLE_V);
    } else if (kind == WHOLE_GATE_UP) {
        k_prefetch_map(maps + FT_WHOLE_GATE);
        k_prefetch_map(maps + FT_WHOLE_UP);
    } else {
        k_prefetch_map(maps + (kind == WHOLE_O ? FT_WHOLE_O : FT_WHOLE_DOWN));
    }
}

static __device__ __forceinline__ void whole_next(struct whole_turn &turn, int32_t n) {
    if (++turn.slot == n) {
        turn.slot = 0;
        turn.parity ^= 1;
    }
}

/* To the first item at or after this one that there is. false: past the head there is none. */
template <int SHARE>
static __device__ __forceinline__ bool whole_settle(const struct whole_args &a,
                                                    struct whole_cursor<SHARE> &c) {
    int32_t last = a.op.n_layers * WHOLE_HEAD;
    while (c.stage <= last && c.item >= a.n_items[whole_kind_of(a, c.stage)]) {
        c.rank = whole_rank_after<SHARE>(a, whole_kind_of(a, c.stage++), c.rank);
        c.item = c.rank;
        if (c.stage < last)
            whole_prefetch_maps(a, c.stage + 1);
    }
    if (c.stage > last)
        return false;
    c.column = 0;
    c.n_in = a.n_in[whole_kind_of(a, c.stage)];
#pragma unroll
    for (int t = 0; t < SHARE; t++)
        c.at[t] = whole_tile(a, c.stage, c.item * SHARE + t);
    return true;
}

/* Into the slot whose turn it is, which must be free: this block's columns of a tile, and of the
 * next one that it shares. false: that was the last. */
template <int SHARE>
static __device__ __forceinline__ bool whole_fetch(const struct whole_args &a,
                                                   const struct shared &s, uint64_t policy,
                                                   struct whole_cursor<SHARE> &c) {
    typedef share<SHARE> S;
    char *to = s.ring + c.turn.slot * S::SLOT_BYTES;
    uint64_t *word = &s.small->is_full[c.turn.slot];
    struct whole_halves at = c.nth == 0 ? c.at[0] : c.at[SHARE - 1];
    k_turn_expect(word, S::SLOT_BYTES);
#pragma unroll
    for (int half = 0; half < 2; half++)
        k_box_start(to + half * S::BOX_BYTES, a.op.maps + at.map[half], at.row[half],
                    c.column + place_in_team<SHARE>() * S::CHUNKS * CHUNK, word, policy);
    whole_next(c.turn, a.at.n_slots);
    if (++c.nth < SHARE)
        return true;
    c.nth = 0;
    c.column += K_BOX_COLUMNS;
    if (c.column < c.n_in)
        return true;
    c.item += n_teams<SHARE>();
    return whole_settle(a, c);
}

/* The thread that fetches: into all slots, then into each when it is free. */
template <int SHARE>
static __device__ __forceinline__ void whole_fetch_all(const struct whole_args &a,
                                                       const struct shared &s) {
    struct whole_cursor<SHARE> c = {};
    uint64_t policy = k_policy_once();
    c.item = c.rank = team<SHARE>();
    whole_prefetch_maps(a, 1);
    bool is_more = whole_settle(a, c);
    while (is_more && c.turn.parity == 0)
        is_more = whole_fetch(a, s, policy, c);
    k_turn_wait(&s.small->is_known, 0);
    if (!s.small->is_whole) { /* nothing may arrive when the block is gone */
        for (int32_t i = 0; i < (c.turn.parity == 0 ? c.turn.slot : a.at.n_slots); i++)
            k_turn_wait(&s.small->is_full[i], 0);
        return;
    }
    while (is_more) {
        k_turn_wait(&s.small->is_free[c.turn.slot], c.turn.parity ^ 1);
        is_more = whole_fetch(a, s, policy, c);
    }
}

/* ---- the way of x of o and down */

static __device__ __forceinline__ bool whole_is_direct(enum whole_kind kind) {
    return kind == WHOLE_O || kind == WHOLE_DOWN;
}

/* All pieces of x for an item, this block's columns, into places in turn. Rows in parts lie in
 * global memory as they do in shared memory: a piece is one copy. */
template <int SHARE>
static __device__ __forceinline__ void
whole_fetch_pieces(const struct whole_args &a, const struct shared &s, const char *x,
                   int32_t n_chunks, struct whole_turn &turn) {
    constexpr int CHUNKS = share<SHARE>::CHUNKS;
    int32_t chunk_bytes = a.op.n_rows * ORDERS * COLUMN_BYTES;
    for (int32_t begin = 0; begin < n_chunks; begin += SLOT_CHUNKS) {
        uint64_t *word = &s.small->has_piece[turn.slot];
        int32_t at = begin + place_in_team<SHARE>() * CHUNKS, n = min(n_chunks - at, CHUNKS);
        k_turn_wait(&s.small->is_piece_free[turn.slot], turn.parity ^ 1);
        if (SHARE == 1 || n > 0) {
            k_turn_expect(word, (uint32_t)(n * chunk_bytes));
            k_bulk_start(s.x + turn.slot * CHUNKS * chunk_bytes, x + (int64_t)at * chunk_bytes,
                         (uint32_t)(n * chunk_bytes), word);
        } else {
            k_turn_arrive(word);
        }
        whole_next(turn, a.at.n_pieces);
    }
}

/* By a thread of its own, when blocks have written what o or down is multiplied with. */
template <int SHARE>
static __device__ __forceinline__ void whole_fetch_x(const struct whole_args &a,
                                                     const struct shared &s) {
    struct whole_turn turn = {};
    int32_t rank = team<SHARE>();
    k_turn_wait(&s.small->is_known, 0);
    if (!s.small->is_whole)
        return;
    for (int32_t stage = 0; stage < a.op.n_layers * WHOLE_HEAD; stage++) {
        enum whole_kind kind = whole_kind_of(a, stage);
        int32_t end = whole_is_direct(kind) ? a.n_items[kind] : 0;
        const char *x = (const char *)(kind == WHOLE_O ? a.op.attended : a.op.gate);
        k_turn_wait(&s.small->is_open, (uint32_t)stage % 2);
        k_turn_arrive(&s.small->is_entered);
        k_fence_bulk();
        for (int32_t item = rank; item < end; item += n_teams<SHARE>())
            whole_fetch_pieces<SHARE>(a, s, x, a.n_in[kind] / CHUNK, turn);
        rank = whole_rank_after<SHARE>(a, kind, rank);
    }
}

/* ---- barriers */

#define ABANDONED 0x80000000u

/* By one thread of each block, before anything is written. Either all blocks have a processor, and
 * all go on; then barriers among them end, whatever else the card runs. Or none goes on: a block
 * that has waited for too long sets a bit of the word that they are counted in, unless they are
 * all there, and who comes later sees it. So grids that hold half of the processors each cannot
 * wait for each other for ever. */
static __device__ __forceinline__ bool whole_assemble(const struct ft_op_whole &op) {
    uint32_t *word = &op.state->assembled, n = gridDim.x;
    bool is_refused = k_ask(&op.state->is_abandoned) != 0;
    uint32_t seen = k_tell(word, 1) + 1;
    uint64_t since_ns = k_now_ns();
    if (is_refused)
        return false;
    for (;;) {
        if ((seen & ABANDONED) != 0)
            return false;
        if (seen == n)
            return true;
        if (k_now_ns() - since_ns > op.patience_ns) {
            uint32_t was = k_swap_if(word, seen, seen | ABANDONED);
            if (was == seen) {
                k_set(&op.state->is_abandoned, 1);
                if (op.gave_up != NULL)
                    *op.gave_up = 1;
                return false;
            }
            seen = was;
            continue;
        }
        k_relax();
        seen = k_ask(word);
    }
}

/* When a barrier, counted in blocks that have passed, is come to and passed. */
static __device__ __forceinline__ void whole_mark(const struct ft_op_whole &op, uint32_t n_passed,
                                                  int32_t is_over) {
    if (op.marks_ns != NULL && blockIdx.x == 0)
        op.marks_ns[n_passed / gridDim.x * 2 - 2 + is_over] = k_now_ns();
}

/* Whose writes a barrier is for: of those that compute, or also of those that finish tiles. */
enum whole_who { WHOLE_COMPUTE, WHOLE_ALL };

/* A barrier of all blocks of an assembled grid, in two halves. What a block does between them may
 * touch nothing that another writes before it arrives. Returns what to await. */
template <int SHARE>
static __device__ __forceinline__ uint32_t whole_arrive(const struct ft_op_whole &op,
                                                        uint32_t n_passed, enum whole_who who) {
    if (who == WHOLE_ALL)
        all_sync<SHARE>();
    else
        block_sync();
    n_passed += gridDim.x;
    if (threadIdx.x == 0) {
        whole_mark(op, n_passed, 0);
        k_add(&op.state->arrived, 1);
    }
    return n_passed;
}
static __device__ __forceinline__ void whole_pass(const struct ft_op_whole &op, uint32_t n_passed) {
    while (k_ask(&op.state->arrived) < n_passed)
        k_relax();
    whole_mark(op, n_passed, 1);
}
static __device__ __forceinline__ void whole_await(const struct ft_op_whole &op,
                                                   uint32_t n_passed) {
    if (threadIdx.x == 0)
        whole_pass(op, n_passed);
    block_sync();
}
/* Before a stage: all that compute open it. */
template <int SHARE>
static __device__ __forceinline__ void whole_await_stage(const struct whole_args &a,
                                                         const struct shared &s, uint32_t n_passed,
                                                         int32_t stage) {
    if (threadIdx.x == 0) {
        whole_pass(a.op, n_passed);
        k_turn_wait(&s.small->is_entered, ((uint32_t)stage % 2) ^ 1);
    }
    k_turn_arrive(&s.small->is_open);
    all_sync<SHARE>();
}

/* The last block to leave, of a grid that has assembled or of one that has not, makes the state
 * what the next launch expects. */
static __device__ __forceinline__ void whole_leave(const struct ft_op_whole &op) {
    if (threadIdx.x == 0 && k_tell(&op.state->left, 1) == gridDim.x - 1) {
        k_set(&op.state->assembled, 0);
        k_set(&op.state->arrived, 0);
        k_set(&op.state->left, 0);
    }
}

#endif
