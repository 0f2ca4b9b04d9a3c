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
#define SLOT_BYTES 1024 /* a chunk of a tile of one warp */

struct whole_args {
    struct ft_op_whole op;
    int32_t n_in[WHOLE_KINDS];
    int32_t n_items[WHOLE_KINDS]; /* tiles of 16 outputs, of every block */
    int32_t before[WHOLE_KINDS];  /* items of the layer's matrices before this one */
    int32_t layer_items;
    int32_t x_floats;            /* of shared memory for rows of x */
    int32_t n_tiles;             /* of queries, in a piece and KV head */
    int32_t n_segments;          /* of positions */
    float *partial;              /* as attention.cu has it */
    bool is_direct[WHOLE_KINDS]; /* x is read where it lies: it does not fit */
};

/* ---- shared memory */

#define DIM_WHOLE 128 /* largest head */
#define TEAMS (THREADS / TEAM)
#define SUMS_FLOATS (2 * WARPS * GROUP * SUM_STRIDE) /* of two tiles, used in turn */
#define SMALL_BYTES 1024
#define SHARED_WHOLE (227 * 1024)

/* What of shared memory is neither ring nor x. */
struct small {
    float warp_sums[GROUP][WARPS], scales[GROUP];
    uint32_t arrived[TEAMS];
    uint32_t is_whole;
};
static_assert(sizeof(struct small) <= SMALL_BYTES, "shared memory is laid out for it");

struct shared {
    char *ring;  /* [WARPS][D][SLOT_BYTES] */
    float *sums; /* [SUMS_FLOATS]; with x behind it, tiles of attention while they are needed */
    float *x;
    struct small *small;
};

template <int D> static __device__ __forceinline__ struct shared lay_out(char *memory) {
    struct shared s;
    s.ring = memory;
    s.small = (struct small *)(memory + D * WARPS * SLOT_BYTES);
    s.sums = (float *)((char *)s.small + SMALL_BYTES);
    s.x = s.sums + SUMS_FLOATS;
    return s;
}

/* ---- the way through the weights */

/* A tile is eight outputs and eight others, so that both halves of a rotated pair, or gate and up,
 * meet in a warp. This lane's row of each half, from its eight columns of the first chunk on. */
struct whole_rows {
    const char *low, *high;
};

static __device__ __forceinline__ enum whole_kind whole_kind_of(const struct whole_args &a,
                                                                int32_t stage) {
    return stage < a.op.n_layers * WHOLE_HEAD ? (enum whole_kind)(stage % WHOLE_HEAD) : WHOLE_HEAD;
}

/* Where an item of q, k and v begins: the part, its head, and the first of eight pairs. */
struct whole_qkv {
    int32_t part, head, pair;
};
static __device__ __forceinline__ struct whole_qkv whole_qkv_at(const struct ft_op_whole &op,
                                                                int32_t item) {
    int32_t per_head = op.head_dim / TILE, head = item / per_head;
    struct whole_qkv at = {0, head, item % per_head * HALF};
    if (head >= op.n_heads) {
        at.part = 1 + (head - op.n_heads) / op.n_kv_heads;
        at.head = (head - op.n_heads) % op.n_kv_heads;
    }
    return at;
}

static __device__ __forceinline__ struct whole_rows whole_aim(const struct whole_args &a,
                                                              int32_t stage, int32_t item) {
    const struct ft_op_whole &op = a.op;
    const struct ft_whole_layer *layer = op.layers + stage / WHOLE_HEAD;
    enum whole_kind kind = whole_kind_of(a, stage);
    const void *low = op.head, *high;
    int32_t row = item * TILE, apart = HALF, last = INT32_MAX;
    if (kind == WHOLE_QKV) {
        struct whole_qkv at = whole_qkv_at(op, item);
        low = at.part == 0 ? layer->q : at.part == 1 ? layer->k : layer->v;
        row = at.head * op.head_dim + at.pair;
        apart = op.head_dim / 2;
    } else if (kind == WHOLE_O) {
        low = layer->o;
    } else if (kind == WHOLE_GATE_UP) {
        low = layer->gate;
        row = item * HALF;
        apart = 0;
    } else if (kind == WHOLE_DOWN) {
        low = layer->down;
    } else {
        last = op.vocab - 1; /* its last tile may be cut */
    }
    high = kind == WHOLE_GATE_UP ? layer->up : low;
    int32_t lane_row = row + (int32_t)threadIdx.x % 32 / 4;
    int64_t row_bytes = (int64_t)a.n_in[kind] * 2;
    int32_t column_bytes = (int32_t)threadIdx.x % 4 * 16;
    return {(const char *)low + min(lane_row, last) * row_bytes + column_bytes,
            (const char *)high + min(lane_row + apart, last) * row_bytes + column_bytes};
}

/* The first item of this block in a stage: blocks that had one more before have one less next. */
static __device__ __forceinline__ int32_t whole_first_item(const struct whole_args &a,
                                                           int32_t stage) {
    int32_t n = (int32_t)gridDim.x;
    int64_t before =
        (int64_t)(stage / WHOLE_HEAD) * a.layer_items + a.before[whole_kind_of(a, stage)];
    int32_t first = (int32_t)blockIdx.x - (int32_t)(before % n);
    return first < 0 ? first + n : first;
}

/* A warp's range of the columns of a matrix, in chunks. */
static __device__ __forceinline__ int32_t whole_begin(int32_t n_in, int32_t warp) {
    return warp * (n_in / CHUNK) / WARPS;
}

/* The next chunk to be fetched: D chunks ahead of the arithmetic, whatever stage that is in. */
struct whole_cursor {
    int32_t stage, item, chunk, end;
    struct whole_rows rows;
};

/* To the first item at or after this one that there is; past the head there is none. */
static __device__ __forceinline__ void whole_settle(const struct whole_args &a,
                                                    struct whole_cursor &c) {
    int32_t last = a.op.n_layers * WHOLE_HEAD;
    while (c.stage <= last && c.item >= a.n_items[whole_kind_of(a, c.stage)]) {
        c.stage++;
        c.item = whole_first_item(a, c.stage);
    }
    if (c.stage > last)
        return;
    int32_t n_in = a.n_in[whole_kind_of(a, c.stage)], warp = (int32_t)threadIdx.x / 32;
    c.chunk = whole_begin(n_in, warp);
    c.end = whole_begin(n_in, warp + 1);
    c.rows = whole_aim(a, c.stage, c.item);
}

/* Each lane fetches what it will use itself: nobody else has to be waited for. */
static __device__ __forceinline__ void whole_fetch(const struct whole_args &a,
                                                   struct whole_cursor &c, char *slot) {
    if (c.stage <= a.op.n_layers * WHOLE_HEAD) {
        k_fetch_start(slot, c.rows.low + (int64_t)c.chunk * CHUNK * 2);
        k_fetch_start(slot + SLOT_BYTES / 2, c.rows.high + (int64_t)c.chunk * CHUNK * 2);
        if (++c.chunk == c.end) {
            c.item += (int32_t)gridDim.x;
            whole_settle(a, c);
        }
    }
    k_fetch_close();
}

/* A lane's way: what it has fetched, oldest first, and what it will fetch next. */
struct whole_way {
    struct whole_cursor next;
    char *slots; /* of this lane, SLOT_BYTES apart */
    int32_t at;  /* the oldest */
};

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
                return false;
            }
            seen = was;
            continue;
        }
        k_relax();
        seen = k_ask(word);
    }
}

/* What is passed so far, and where the next mark goes. */
struct whole_progress {
    uint32_t n_passed;
    uint64_t *mark_ns;
};

static __device__ __forceinline__ void whole_mark(struct whole_progress *progress) {
    if (progress->mark_ns != NULL)
        *progress->mark_ns++ = k_now_ns();
}

/* All blocks of an assembled grid. */
static __device__ __forceinline__ void whole_sync(const struct ft_op_whole &op,
                                                  struct whole_progress *progress) {
    __syncthreads();
    progress->n_passed += gridDim.x;
    if (threadIdx.x == 0) {
        whole_mark(progress);
        k_tell(&op.state->arrived, 1);
        while (k_ask(&op.state->arrived) < progress->n_passed)
            k_relax();
        whole_mark(progress);
    }
    __syncthreads();
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
