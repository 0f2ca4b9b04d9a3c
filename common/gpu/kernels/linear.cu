/* y = x weight^T on the tensor cores, to f32 accuracy, for few rows: bound by reading the weights.
 *
 * An f32 number is the sum of three bf16 numbers (8 + 8 + 8 bits), an f16 number of two. Products
 * of such parts are exact, and mma sums them in f32; those below 2^-24 of the whole are left out.
 *
 * The order of a sum follows from n_in alone: the columns, in pairs of chunks of 32, are dealt out
 * to sixteen warps; each has a chain of mma from zero for products of like size; the three are
 * added, then the sums of two warps, then of two pairs, then those four in order. So the bits of an
 * output depend neither on the rows beside it nor on how tiles are dealt out. A norm's scale is one
 * factor of a whole row, which the sums are multiplied with at the end. */
#include <cuda_fp16.h>

#include "common/gpu/kernels/launch.cuh"
#include "common/gpu/kernels/linear.cuh"

#define SHARED_MAX (184 * 1024)

struct linear_args {
    struct ft_op_linear op;
    int32_t n_items;                          /* tiles, or pairs of tiles for SwiGLU */
    int32_t n_pass;                           /* rows of a block */
    int32_t x_stride;                         /* floats of a row of x in shared memory */
    int32_t first_tile[FT_OPS_PARTS_MAX + 1]; /* of each part */
};

/* How weights of a format are loaded and taken apart. VECTORS of 16 bytes hold a lane's eight. */
template <int ELEM> struct format;
template <> struct format<FT_ELEM_BF16> {
    enum { VECTORS = 1, PARTS = 1, BYTES = 2 };
};
template <> struct format<FT_ELEM_F16> {
    enum { VECTORS = 1, PARTS = 2, BYTES = 2 };
};
template <> struct format<FT_ELEM_F32> {
    enum { VECTORS = 2, PARTS = 3, BYTES = 4 };
};

/* Pair i (of four) of a lane's eight weights, in parts. */
template <int ELEM>
static __device__ __forceinline__ void weight_pair(const uint4 *v, int i, uint32_t *parts) {
    if (ELEM == FT_ELEM_F32) {
        const uint4 w = v[i / 2];
        float a = __uint_as_float(i % 2 == 0 ? w.x : w.z);
        float b = __uint_as_float(i % 2 == 0 ? w.y : w.w);
        split_pair(a, b, parts, 3);
        return;
    }
    uint32_t bits = i == 0 ? v->x : i == 1 ? v->y : i == 2 ? v->z : v->w;
    if (ELEM == FT_ELEM_BF16) {
        parts[0] = bits;
        return;
    }
    float a = __half2float(__ushort_as_half((unsigned short)bits));
    float b = __half2float(__ushort_as_half((unsigned short)(bits >> 16)));
    split_pair(a, b, parts, 2);
}

/* Tile t of an item: the part it belongs to and its first output there. */
template <int T>
static __device__ __forceinline__ int tile_part(const struct linear_args &a, int32_t item, int t,
                                                int32_t *first) {
    if (T == 2) { /* SwiGLU: the same outputs of gate and up */
        *first = item * TILE;
        return t;
    }
    int p = item >= a.first_tile[2] ? 2 : item >= a.first_tile[1] ? 1 : 0;
    *first = (item - a.first_tile[p]) * TILE;
    return p;
}

/* Chunks whose weights a lane loads together: 128 bytes. Two batches of sixteen warps are 128 kB on
 * the way, which a processor needs when others have no work left; it takes all registers. */
template <int ELEM, int T> struct batch {
    enum { VECTORS = format<ELEM>::VECTORS, U = 4 / (T * VECTORS) };
    uint4 w[U][T][2][VECTORS];
};

/* A warp's way through its columns of each item's tiles, two batches ahead of the
 * arithmetic. Past the last output of a matrix, or column of a row, it reads the last again: what
 * comes of it is not used. */
template <int T> struct stream {
    int32_t item, chunk;    /* next to be loaded, of the warp's */
    int32_t end;            /* chunks that the warp has */
    const char *rows[T][2]; /* weights of this lane's two outputs of each tile */
};

/* Chunk u of a batch of U that begins with a warp's chunk first. */
template <int U> static __device__ __forceinline__ int32_t chunk_at(int32_t first, int u) {
    int32_t warp = threadIdx.x / 32;
    return U % 2 == 0 ? chunk_of(warp, first) + u / 2 * (2 * WARPS) + u % 2
                      : chunk_of(warp, first + u);
}

template <int ELEM, int T>
static __device__ __forceinline__ void seek(const struct linear_args &a, struct stream<T> &s) {
#pragma unroll
    for (int t = 0; t < T; t++) {
        int32_t first;
        int p = tile_part<T>(a, min(s.item, a.n_items - 1), t, &first);
        const struct ft_matrix &part = a.op.parts[p];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int32_t row = min(first + (int32_t)threadIdx.x % 32 / 4 + 8 * r, part.n_out - 1);
            s.rows[t][r] =
                (const char *)part.weight + (int64_t)row * a.op.n_in * format<ELEM>::BYTES;
        }
    }
}

template <int ELEM, int T>
static __device__ __forceinline__ void load_batch(const struct linear_args &a, struct stream<T> &s,
                                                  batch<ELEM, T> &out) {
    typedef batch<ELEM, T> B;
    int32_t n = s.item < a.n_items ? s.end - s.chunk : 0;
#pragma unroll
    for (int u = 0; u < B::U; u++) {
        if (u >= n)
            break;
        int32_t chunk = chunk_at<B::U>(s.chunk, u);
        int32_t column = min(chunk * CHUNK + (int32_t)threadIdx.x % 4 * 8, a.op.n_in - 8);
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int v = 0; v < B::VECTORS; v++)
                    out.w[u][t][r][v] =
                        k_load_weights(s.rows[t][r] + column * format<ELEM>::BYTES + v * 16);
    }
    s.chunk += B::U;
    if (s.chunk >= s.end) {
        s.item += gridDim.x;
        s.chunk = 0;
        seek<ELEM, T>(a, s);
    }
}

/* Rows of x, times the norm where there is one, into shared memory [n][x_stride], zero behind
 * n_in; and what the norm will scale each row with. All of it is done when the block has synced. */
static __device__ __forceinline__ void stage(const struct linear_args &a, float *to, int32_t n,
                                             int32_t first_row, float (*warp_sums)[WARPS]) {
    int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t n_padded = (a.op.n_in + CHUNK - 1) / CHUNK * CHUNK;
    for (int32_t m = 0; m < n; m++) {
        const float *x = a.op.x + (int64_t)(first_row + m) * a.op.n_in;
        float sum = 0.0f;
#pragma unroll 4
        for (int32_t from = warp * 32 * 4; from < n_padded; from += THREADS * 4) {
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float squares = 0.0f;
            int32_t at = from + lane * 4;
            if (at < a.op.n_in)
                v = weigh_four(x, a.op.norm, at, squares);
            if (at < n_padded)
                *(float4 *)(to + m * a.x_stride + at) = v;
            if (a.op.norm != NULL)
                sum = __fadd_rn(sum, squares_of_sixteen(squares));
        }
        if (a.op.norm != NULL) {
            sum = squares_of_warp(sum);
            if (lane == 0)
                warp_sums[m][warp] = sum;
        }
    }
}

/* What mma leaves in a lane, by tile, group of rows and size of the products. */
template <int T, int G> struct sums { float at[T][G][ORDERS][4]; };

/* x in shared memory, from this lane's row and columns of the first chunk; which of the warp's
 * chunks is next, and how many there are from there on. */
struct x_rows {
    const float *lane;
    int32_t n, stride;
    int32_t first, n_chunks;
};

/* A batch times x. */
template <int ELEM, int T, int G>
static __device__ __forceinline__ void multiply(const batch<ELEM, T> &b, const struct x_rows &rows,
                                                struct sums<T, G> &sums) {
    typedef batch<ELEM, T> B;
    typedef format<ELEM> F;
#pragma unroll
    for (int u = 0; u < B::U; u++) {
        if (u >= rows.n_chunks)
            return;
        uint32_t x[G][ORDERS][4];
#pragma unroll
        for (int g = 0; g < G; g++)
            load_x(rows.lane + g * GROUP * rows.stride + chunk_at<B::U>(rows.first, u) * CHUNK,
                   g * GROUP + (int32_t)threadIdx.x % 32 / 4 < rows.n, x[g]);
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t w[2][2][F::PARTS]; /* row, pair */
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                    for (int i = 0; i < 2; i++)
                        weight_pair<ELEM>(b.w[u][t][r], 2 * h + i, w[r][i]);
#pragma unroll
                for (int wp = 0; wp < F::PARTS; wp++)
#pragma unroll
                    for (int xp = 0; xp + wp < ORDERS; xp++) {
                        uint32_t m[4] = {w[0][0][wp], w[1][0][wp], w[0][1][wp], w[1][1][wp]};
#pragma unroll
                        for (int g = 0; g < G; g++)
                            k_mma(sums.at[t][g][wp + xp], m, &x[g][xp][2 * h]);
                    }
            }
    }
}

/* A warp's sums into shared memory, where output finds them; they are zero afterwards. */
template <int T, int G>
static __device__ __forceinline__ void hand_in(struct sums<T, G> &sums, float *to) {
    int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float *s = &sums.at[t][g][0][i];
                int32_t row = g * GROUP + lane % 4 * 2 + i % 2, out = lane / 4 + i / 2 * 8;
                to[((t * WARPS + warp) * GROUP * G + row) * SUM_STRIDE + out] =
                    by_size(s[0], s[4], s[8]);
                s[0] = s[4] = s[8] = 0.0f;
            }
}

template <int T, int G>
static __device__ __forceinline__ float output(const struct linear_args &a, const float *sums,
                                               float scale, int t, int32_t row, const float *bias) {
    const float *from = sums + (t * WARPS * GROUP * G + row) * SUM_STRIDE;
    float sum = add_slices(from, GROUP * G * SUM_STRIDE);
    if (a.op.norm != NULL)
        sum = __fmul_rn(sum, scale);
    return bias == NULL ? sum : __fadd_rn(sum, *bias);
}

/* An item's outputs, by one warp while the others go on: a lane has one output of every other
 * row. */
template <int T, int G>
static __device__ __forceinline__ void finish(const struct linear_args &a, const float *sums,
                                              const float *scales, int32_t item, int32_t first_row,
                                              int32_t n) {
    int32_t first, out = threadIdx.x % TILE;
    const struct ft_matrix &part = a.op.parts[tile_part<T>(a, item, 0, &first)];
    int32_t at = first + out;
    if (at >= part.n_out)
        return;
    for (int32_t row = threadIdx.x % 32 / TILE; row < n; row += 32 / TILE) {
        float scale = scales[row];
        float *to = part.out + (int64_t)(first_row + row) * part.out_stride + at;
        float before = a.op.end == FT_LINEAR_ADD ? __ldcg(to) : 0.0f;
        float y =
            output<T, G>(a, sums + out, scale, 0, row, part.bias == NULL ? NULL : part.bias + at);
        if (T == 2) {
            const float *bias = a.op.parts[1].bias;
            y = __fmul_rn(silu(y), output<T, G>(a, sums + out, scale, T - 1, row,
                                                bias == NULL ? NULL : bias + at));
        }
        *to = a.op.end == FT_LINEAR_ADD ? __fadd_rn(before, y) : y;
    }
}

/* A block has an item at a time, a tile of 16 outputs, or one of gate and one of up; a warp
 * its share of the columns; a lane two outputs of a tile. x stays in shared memory for all items.
 * Weights are read once for each 8 * G rows, two batches ahead, the first two before the kernel
 * before has ended. */
template <int ELEM, int T, int G>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_kernel(const __grid_constant__ struct linear_args a) {
    K_SHARED_MEMORY(float, x);
    __shared__ float shared_sums[2][T * WARPS * GROUP * G * SUM_STRIDE]; /* used in turn */
    __shared__ float warp_sums[GROUP * G][WARPS], scales[GROUP * G];
    typedef batch<ELEM, T> B;
    int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t n_chunks = (a.op.n_in + CHUNK - 1) / CHUNK, first_row = blockIdx.y * a.n_pass;
    int32_t n = min(a.n_pass, a.op.n_rows - first_row);

    k_let_next_start();
    struct stream<T> stream;
    stream.item = blockIdx.x;
    stream.chunk = 0;
    stream.end = chunks_of(warp, n_chunks);
    seek<ELEM, T>(a, stream);
    B batches[2];
    load_batch<ELEM, T>(a, stream, batches[0]);
    load_batch<ELEM, T>(a, stream, batches[1]);
    k_wait();
    stage(a, x, n, first_row, warp_sums);
    __syncthreads();
    if ((int32_t)threadIdx.x < n && a.op.norm != NULL)
        scales[threadIdx.x] = scale_of_warps(warp_sums[threadIdx.x], a.op.n_in, a.op.eps);
    const float *x_lane = x + lane / 4 * a.x_stride + lane % 4 * 8;
    struct x_rows rows = {x_lane, n, a.x_stride, 0, 0};
    struct sums<T, G> sums = {};
    int32_t item = blockIdx.x, chunk = 0, n_done = 0;
    while (item < a.n_items) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            rows.first = chunk;
            rows.n_chunks = stream.end - chunk;
            multiply<ELEM, T, G>(batches[i], rows, sums);
            load_batch<ELEM, T>(a, stream, batches[i]);
            chunk += B::U;
            if (chunk >= stream.end && item < a.n_items) {
                hand_in<T, G>(sums, shared_sums[n_done % 2]);
                __syncthreads();
                if (warp == n_done % WARPS)
                    finish<T, G>(a, shared_sums[n_done % 2], scales, item, first_row, n);
                n_done++;
                item += gridDim.x;
                chunk = 0;
            }
        }
    }
}

/* Any shape and alignment: a warp has one output of one row, a lane every 32nd column. For shapes
 * that no large model has. */
static __global__ void __launch_bounds__(THREADS)
    linear_any_kernel(const __grid_constant__ struct linear_args a) {
    k_let_next_start();
    k_wait();
    int32_t out = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    bool is_swiglu = a.op.end == FT_LINEAR_SWIGLU;
    const float *x = a.op.x + (int64_t)blockIdx.y * a.op.n_in;
    int p = 0;
    if (!is_swiglu)
        while (p + 1 < a.op.n_parts && out >= a.op.parts[p].n_out)
            out -= a.op.parts[p++].n_out;
    float y[2] = {0.0f, 0.0f};
    if (out >= a.op.parts[p].n_out)
        return;
    for (int t = 0; t < (is_swiglu ? 2 : 1); t++) {
        const struct ft_matrix &part = a.op.parts[p + t];
        float sum = 0.0f;
        for (int32_t k = lane; k < a.op.n_in; k += 32) {
            int64_t at = (int64_t)out * a.op.n_in + k;
            float w = part.elem == FT_ELEM_F32 ? ((const float *)part.weight)[at]
                      : part.elem == FT_ELEM_F16
                          ? __half2float(__ushort_as_half(((const uint16_t *)part.weight)[at]))
                          : __uint_as_float((uint32_t)((const uint16_t *)part.weight)[at] << 16);
            sum = __fmaf_rn(__ldcg(x + k), w, sum);
        }
        y[t] = k_warp_sum(sum);
        if (part.bias != NULL)
            y[t] = __fadd_rn(y[t], part.bias[out]);
    }
    if (lane != 0)
        return;
    const struct ft_matrix &part = a.op.parts[p];
    float *to = part.out + (int64_t)blockIdx.y * part.out_stride + out;
    if (is_swiglu)
        *to = __fmul_rn(silu(y[0]), y[1]);
    else
        *to = a.op.end == FT_LINEAR_ADD ? __fadd_rn(__ldcg(to), y[0]) : y[0];
}

static cudaError_t launch_any(const struct k_target *on, struct linear_args *args) {
    int64_t n_out = 0;
    for (int32_t p = 0; p < args->op.n_parts; p++)
        n_out += args->op.parts[p].n_out;
    if (args->op.end == FT_LINEAR_SWIGLU)
        n_out = args->op.parts[0].n_out;
    if (args->op.norm != NULL) {
        struct ft_op_rmsnorm norm = {args->op.x,      args->op.norm, args->op.eps,
                                     args->op.n_rows, args->op.n_in, args->op.normed};
        cudaError_t error = k_rmsnorm(on, &norm);
        if (error != cudaSuccess)
            return error;
        args->op.x = args->op.normed;
    }
    dim3 grid(k_ceil_div(n_out, WARPS), (unsigned)args->op.n_rows);
    return k_launch(on, (const void *)linear_any_kernel, {grid, dim3(THREADS), 0, 1}, args);
}

template <int ELEM, int T, int G>
static cudaError_t launch(const struct k_target *on, struct linear_args *args) {
    args->x_stride = (int32_t)k_ceil_div(args->op.n_in, CHUNK) * CHUNK + X_PAD;
    int64_t row_bytes = args->x_stride * (int64_t)sizeof(float), fit = SHARED_MAX / row_bytes;
    args->n_pass = (int32_t)(fit < GROUP * G ? fit : GROUP * G);
    if (args->n_pass > args->op.n_rows)
        args->n_pass = args->op.n_rows;
    if (args->n_pass < 1)
        return cudaErrorInvalidValue;
    dim3 grid((unsigned)(args->n_items < on->n_processors ? args->n_items : on->n_processors),
              k_ceil_div(args->op.n_rows, args->n_pass));
    return k_launch(on, (const void *)linear_kernel<ELEM, T, G>,
                    {grid, dim3(THREADS), (size_t)(args->n_pass * row_bytes), 1}, args);
}

template <int ELEM>
static cudaError_t launch_format(const struct k_target *on, struct linear_args *args) {
    bool is_pair = args->op.end == FT_LINEAR_SWIGLU;
    return is_pair ? launch<ELEM, 2, 1>(on, args) : launch<ELEM, 1, 1>(on, args);
}

/* Rows up to which this is the faster way where there is another; and no more than a block holds,
 * which may be none. */
#define FEW_ROWS 6
static int32_t few_rows(const struct ft_op_linear *op) {
    int64_t row_bytes = ((int64_t)k_ceil_div(op->n_in, CHUNK) * CHUNK + X_PAD) * sizeof(float);
    return (int32_t)(SHARED_MAX / row_bytes < FEW_ROWS ? SHARED_MAX / row_bytes : FEW_ROWS);
}

/* Rows that no block holds. Which way they go follows from their width and the card's scratch, so
 * that a row has the same bits however many there are: many at a time, as many as scratch has room
 * for, or else the general way. */
static cudaError_t launch_wide(const struct k_target *on, struct linear_args *args) {
    struct ft_op_linear some = args->op;
    some.n_rows = MANY_ROWS;
    if (!k_linear_many_does(on, &some))
        return launch_any(on, args);
    for (int32_t left = args->op.n_rows; left > 0; left -= some.n_rows) {
        some.n_rows = left;
        if (!k_linear_many_does(on, &some))
            some.n_rows = MANY_ROWS;
        cudaError_t error = k_linear_many(on, &some);
        if (error != cudaSuccess)
            return error;
        some.x += (int64_t)some.n_rows * some.n_in;
        for (int32_t p = 0; p < some.n_parts; p++)
            some.parts[p].out += some.n_rows * some.parts[p].out_stride;
    }
    return cudaSuccess;
}

extern "C" cudaError_t k_linear(const struct k_target *on, const struct ft_op_linear *op) {
    struct linear_args args = {*op, 0, 0, 0, {0}};
    bool is_aligned = op->n_in % 8 == 0 && (uintptr_t)op->x % 16 == 0;
    for (int32_t p = 0; p < op->n_parts; p++) {
        is_aligned = is_aligned && (uintptr_t)op->parts[p].weight % 16 == 0 &&
                     op->parts[p].elem == op->parts[0].elem;
        args.first_tile[p + 1] = args.first_tile[p] + (int32_t)k_ceil_div(op->parts[p].n_out, TILE);
    }
    args.n_items = op->end == FT_LINEAR_SWIGLU ? args.first_tile[1] : args.first_tile[op->n_parts];
    for (int32_t p = op->n_parts; p < FT_OPS_PARTS_MAX; p++)
        args.first_tile[p] = INT32_MAX;
    if (!is_aligned)
        return launch_any(on, &args);
    if (few_rows(op) == 0)
        return launch_wide(on, &args);
    if (op->n_rows > few_rows(op) && k_linear_many_does(on, op))
        return k_linear_many(on, op);
    if (op->parts[0].elem == FT_ELEM_F32)
        return launch_format<FT_ELEM_F32>(on, &args);
    if (op->parts[0].elem == FT_ELEM_F16)
        return launch_format<FT_ELEM_F16>(on, &args);
    return launch_format<FT_ELEM_BF16>(on, &args);
}

template <int ELEM, int T> static cudaError_t allow(void) {
    return cudaFuncSetAttribute((const void *)linear_kernel<ELEM, T, 1>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MAX);
}
template <int ELEM> static cudaError_t allow_format(void) {
    cudaError_t error = allow<ELEM, 1>();
    return error == cudaSuccess ? allow<ELEM, 2>() : error;
}

extern "C" cudaError_t k_linear_setup(struct k_target *on) {
    cudaError_t error = allow_format<FT_ELEM_BF16>();
    if (error == cudaSuccess)
        error = allow_format<FT_ELEM_F16>();
    if (error == cudaSuccess)
        error = allow_format<FT_ELEM_F32>();
    return error == cudaSuccess ? k_linear_many_setup(on) : error;
}
