/* kernels_linear: y = x W^T for few or many rows of x, W read once, in place.
 * Owns:    nothing.
 * Runs in: any thread; written in the vocabulary of a vec_*.h that is included before.
 * Never:   sums a dot product in another order than this: lane i takes elements i, i + lanes,
 *          i + 2 lanes, ... one after the other, then v_sum4 adds the lanes up. Tiles of any
 *          shape do that, so their shape is a matter of speed alone. */
#ifndef FT_GPU_CPU_KERNELS_LINEAR_H
#define FT_GPU_CPU_KERNELS_LINEAR_H

#include "common/gpu/cpu/kernels_rows.h"

/* Rows of x that go through a row group together stay in the second-level cache. */
#define LINEAR_CACHE_BYTES (256 * 1024)

/* How far ahead of its use a weight is fetched: memory answers in the time of some 20 lines, and
 * more would push x out of the first-level cache. */
#define AHEAD_BYTES 1536

/* Four rows of a matrix against some rows of x. */
struct linear_tile {
    const char *w[FT_ISA_ROW_GROUP];
    const float *x;
    int64_t x_stride;
    int32_t n_in;
    int64_t ahead; /* bytes from a weight in use to the one to fetch */
};

struct vec4 {
    vec r[FT_ISA_ROW_GROUP];
};

/* The statement for m = 0 .. n - 1, n a constant. Written out, because compilers give up keeping
 * an array in registers before they unroll a loop over it. */
#define EACH_ROW(n, statement)                                                                     \
    do {                                                                                           \
        if ((n) > 0) {                                                                             \
            enum { m = 0 };                                                                        \
            statement;                                                                             \
        }                                                                                          \
        if ((n) > 1) {                                                                             \
            enum { m = 1 };                                                                        \
            statement;                                                                             \
        }                                                                                          \
        if ((n) > 2) {                                                                             \
            enum { m = 2 };                                                                        \
            statement;                                                                             \
        }                                                                                          \
        if ((n) > 3) {                                                                             \
            enum { m = 3 };                                                                        \
            statement;                                                                             \
        }                                                                                          \
        if ((n) > 4) {                                                                             \
            enum { m = 4 };                                                                        \
            statement;                                                                             \
        }                                                                                          \
        if ((n) > 5) {                                                                             \
            enum { m = 5 };                                                                        \
            statement;                                                                             \
        }                                                                                          \
    } while (0)

INLINE struct vec4 fma4(struct vec4 w, vec x, struct vec4 sums) {
    sums.r[0] = v_fma(w.r[0], x, sums.r[0]);
    sums.r[1] = v_fma(w.r[1], x, sums.r[1]);
    sums.r[2] = v_fma(w.r[2], x, sums.r[2]);
    sums.r[3] = v_fma(w.r[3], x, sums.r[3]);
    return sums;
}

/* Vector i of a cache line of the four rows. */
INLINE struct vec4 weights_in_line(const struct linear_tile *t, int64_t at, int i,
                                   enum ft_elem elem) {
    struct vec4 w;
    for (int r = 0; r < FT_ISA_ROW_GROUP; r++)
        w.r[r] = elem == FT_ELEM_BF16
                     ? v_line_bf16(t->w[r] + at, i)
                     : load_elem(t->w[r] + at + (size_t)(i * VEC_LANES) * elem_bytes(elem), elem);
    return w;
}

/* The last n numbers of the four rows, zeros behind them. */
INLINE struct vec4 weights_n(const struct linear_tile *t, int64_t at, int32_t n,
                             enum ft_elem elem) {
    struct vec4 w;
    for (int r = 0; r < FT_ISA_ROW_GROUP; r++)
        w.r[r] = load_elem_n(t->w[r] + at, elem, n);
    return w;
}

INLINE void tile_prefetch(const struct linear_tile *t, int64_t at) {
    for (int r = 0; r < FT_ISA_ROW_GROUP; r++)
        v_prefetch(t->w[r] + at + t->ahead);
}

/* n and elem are constants where this is used, so that all sums are registers. */
INLINE void tile_dots(const struct linear_tile *t, quad *y, enum ft_elem elem, int n) {
    const int64_t bytes = (int64_t)elem_bytes(elem), stride = t->x_stride;
    const int32_t line = (int32_t)(64 / bytes); /* numbers in a cache line */
    struct vec4 sums[6];
    EACH_ROW(n, sums[m] = ((struct vec4){{v_zero(), v_zero(), v_zero(), v_zero()}}));
    const float *x = t->x;
    int32_t k = 0;
    for (; k + line <= t->n_in; k += line) {
        tile_prefetch(t, k * bytes);
        for (int i = 0; i < line / VEC_LANES; i++, x += VEC_LANES) {
            struct vec4 w = weights_in_line(t, k * bytes, i, elem);
            EACH_ROW(n, sums[m] = fma4(w, v_load(x + m * stride), sums[m]));
        }
    }
    while (k < t->n_in) {
        int32_t rest = i_min(t->n_in - k, VEC_LANES);
        struct vec4 w = weights_n(t, k * bytes, rest, elem);
        EACH_ROW(n, sums[m] = fma4(w, v_load_n(x + m * stride, rest), sums[m]));
        k += rest;
        x += rest;
    }
    EACH_ROW(n, y[m] = v_sum4(sums[m].r[0], sums[m].r[1], sums[m].r[2], sums[m].r[3]));
}

INLINE void tile_dots_of(const struct linear_tile *t, quad *y, enum ft_elem elem, int n) {
    switch (elem) {
    case FT_ELEM_F32:
        tile_dots(t, y, FT_ELEM_F32, n);
        return;
    case FT_ELEM_F16:
        tile_dots(t, y, FT_ELEM_F16, n);
        return;
    case FT_ELEM_BF16:
        tile_dots(t, y, FT_ELEM_BF16, n);
        return;
    }
}

/* Functions of their own, so that each has all registers to itself. */
#define TILE(n)                                                                                    \
    static void tile_##n(const struct linear_tile *t, quad *y, enum ft_elem elem) {                \
        if ((n) <= VEC_TILE_ROWS)                                                                  \
            tile_dots_of(t, y, elem, n);                                                           \
    }                                                                                              \
    _Static_assert(VEC_TILE_ROWS <= 6, "a tile function for each height")
TILE(1);
TILE(2);
TILE(3);
TILE(4);
TILE(5);
TILE(6);
#undef TILE

typedef void (*tile_fn)(const struct linear_tile *t, quad *y, enum ft_elem elem);
static const tile_fn tiles[] = {tile_1, tile_2, tile_3, tile_4, tile_5, tile_6};

/* Columns first .. last - 1 of a matrix's output, which one thread computes. A tile takes its four
 * weight rows a quarter of them apart, so that memory sees four long streams, each in order. */
struct columns {
    const struct ft_matrix *part;
    int32_t first, last;
    int32_t quarter;
};

static struct columns columns_of(const struct ft_matrix *part, int32_t group, int32_t last_group) {
    int32_t first = group * FT_ISA_ROW_GROUP;
    int32_t last = i_min(last_group * FT_ISA_ROW_GROUP, part->n_out);
    return (struct columns){part, first, last, ft_isa_groups(last - first)};
}

/* Write the sums of one row of x for columns col, col + quarter, ... */
INLINE void finish(const struct columns *c, int32_t col, int64_t row, quad y, bool add) {
    const float *bias = c->part->bias;
    float *out = c->part->out + row * c->part->out_stride + col, s[FT_ISA_ROW_GROUP];
    int32_t n = i_min((c->last - col - 1) / c->quarter + 1, FT_ISA_ROW_GROUP);
    q_store(s, y);
    for (int r = 0; bias != NULL && r < n; r++)
        s[r] += bias[col + r * c->quarter];
    for (int r = 0; r < n; r++, out += c->quarter)
        *out = add ? *out + s[r] : s[r];
}

/* Tile i of the columns against rows first .. last - 1 of x. */
static void linear_tile(const struct ft_op_linear *op, const struct columns *c, int32_t i,
                        int32_t first, int32_t last) {
    size_t row_bytes = (size_t)op->n_in * elem_bytes(c->part->elem);
    struct linear_tile t = {.x_stride = op->n_in, .n_in = op->n_in, .ahead = AHEAD_BYTES};
    for (int32_t r = 0; r < FT_ISA_ROW_GROUP; r++) { /* past the end: the last row once more */
        int32_t col = i_min(c->first + i + r * c->quarter, c->last - 1);
        t.w[r] = (const char *)c->part->weight + (size_t)col * row_bytes;
    }
    int32_t n_tiles = (last - first + VEC_TILE_ROWS - 1) / VEC_TILE_ROWS;
    for (int32_t at = 0, row = first; at < n_tiles; at++) {
        /* of about equal height: 8 rows are 4 + 4, not 6 + 2 */
        int32_t n = (last - row + n_tiles - at - 1) / (n_tiles - at);
        quad y[VEC_TILE_ROWS];
        t.x = op->x + (int64_t)row * op->n_in;
        tiles[n - 1](&t, y, c->part->elem);
        for (int32_t m = 0; m < n; m++)
            finish(c, c->first + i, row + m, y[m], op->end == FT_LINEAR_ADD);
        row += n;
        t.ahead = 0; /* fetched already */
    }
}

static void swiglu(const struct ft_op_linear *op, int32_t begin, int32_t end, int32_t first,
                   int32_t last) {
    struct columns gate = columns_of(&op->parts[0], begin, end);
    struct columns up = columns_of(&op->parts[1], begin, end);
    for (int32_t i = 0; i < gate.quarter; i++) {
        linear_tile(op, &gate, i, first, last);
        linear_tile(op, &up, i, first, last);
    }
    for (int32_t row = first; row < last; row++)
        silu_mul_row(gate.part->out + row * gate.part->out_stride + gate.first,
                     up.part->out + row * up.part->out_stride + up.first, gate.last - gate.first);
}

static void linear(const void *arg, int32_t begin, int32_t end) {
    const struct ft_op_linear *op = arg;
    int32_t n_rows = LINEAR_CACHE_BYTES / (op->n_in * (int32_t)sizeof(float));
    n_rows = i_max(n_rows / VEC_TILE_ROWS, 2) * VEC_TILE_ROWS;
    for (int32_t first = 0; first < op->n_rows; first += n_rows) {
        int32_t last = i_min(first + n_rows, op->n_rows);
        if (op->end == FT_LINEAR_SWIGLU) {
            swiglu(op, begin, end, first, last);
            continue;
        }
        int32_t part_begin = 0; /* item of the part's first group */
        for (int32_t p = 0; p < op->n_parts; p++) {
            int32_t part_end = part_begin + ft_isa_groups(op->parts[p].n_out);
            int32_t from = i_max(begin, part_begin), to = i_min(end, part_end);
            struct columns c = columns_of(&op->parts[p], from - part_begin, to - part_begin);
            for (int32_t i = 0; from < to && i < c.quarter; i++)
                linear_tile(op, &c, i, first, last);
            part_begin = part_end;
        }
    }
}

#endif
