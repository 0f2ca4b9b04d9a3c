/* whole_multiply: products within the whole step's kernel: a tile's weights from the ring times all
 * rows of x, and a warp's sums of them.
 * Owns:    nothing.
 * Runs in: nvcc's files only.
 * Never:   sums up in another order than linear.cu. */
#ifndef FT_GPU_KERNELS_WHOLE_MULTIPLY_CUH
#define FT_GPU_KERNELS_WHOLE_MULTIPLY_CUH

#include "common/gpu/kernels/whole.cuh"

/* An mma has eight columns for x: the three parts of few rows share them, so that PASSES of them do
 * for as many rows as there are, 8 * PASSES / 3. What mma leaves in a lane, by pass: of output
 * lane / 4 the columns lane % 4 * 2 and the next, then of that output + 8. */
template <int PASSES> struct sums { float at[PASSES][4]; };

/* The row and part in a column of a pass. Parts of a row lie in one lane's columns, or in few: a
 * lane has two columns of each pass. */
struct whole_column {
    int32_t row, part;
};
template <int PASSES>
static __device__ __forceinline__ struct whole_column column_of(int32_t pass, int32_t column) {
    int32_t lane = column / 2, own = pass * 2 + column % 2;
    if (PASSES == 3) /* two rows a lane */
        return {column, pass};
    if (PASSES == 2) /* a row a lane, and a part of the fifth */
        return own < 3 ? whole_column{lane, own} : whole_column{4, min(lane, 2)};
    if (lane == 1) /* between the lanes of the first row and the second, the last parts of both */
        return {own, 2};
    return {lane / 2, own};
}

/* What a warp multiplies: of a slot's columns, two sets of two chunks, from the chunk first on of
 * its block's; and rows of x from one on. Blocks that share tiles have half of the columns, so
 * that two warps have the same and eight of sixteen rows each. */
struct whole_part {
    int32_t place, first, row; /* place: of the pair of slices among the eight */
};
template <int SHARE> static __device__ __forceinline__ struct whole_part own_part(void) {
    int32_t warp = k_thread() / 32, own = warp % (WHOLE_WARPS / SHARE);
    return {place_in_team<SHARE>() * (WHOLE_WARPS / SHARE) + own, own * SETS * 2,
            warp / (WHOLE_WARPS / SHARE) * FT_WHOLE_ROWS_ALONE};
}

/* A lane's weights of the two chunks of a group, low rows and high ones, times x. Rows of a box lie
 * in the same banks: every other row begins with the second chunk. */
template <int PASSES, int SHARE>
static __device__ __forceinline__ uint32_t multiply_group(const char *slot, int32_t lane,
                                                          int32_t group, const uint4 x[2][PASSES],
                                                          struct sums<PASSES> &sums) {
    const char *from = slot + lane / 4 * (K_BOX_COLUMNS / SHARE * 2) + group * 128;
    bool is_odd = lane / 4 % 2 != 0;
    int32_t first = (lane % 4 ^ group % 8 ^ (is_odd ? 4 : 0)) * 16, second = first ^ 64;
    uint4 low[2] = {*(const uint4 *)(from + first), *(const uint4 *)(from + second)};
    from += share<SHARE>::BOX_BYTES;
    uint4 high[2] = {*(const uint4 *)(from + first), *(const uint4 *)(from + second)};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint4 l = is_odd ? low[1 - i] : low[i], h = is_odd ? high[1 - i] : high[i];
        uint32_t pairs[2][4] = {{l.x, h.x, l.y, h.y}, {l.z, h.z, l.w, h.w}};
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            uint32_t both[2][2] = {{x[i][p].x, x[i][p].y}, {x[i][p].z, x[i][p].w}};
            k_mma(sums.at[p], pairs[0], both[0]);
            k_mma(sums.at[p], pairs[1], both[1]);
        }
    }
    return low[0].x ^ low[1].x ^ high[0].x ^ high[1].x;
}

/* Of a slot, the two chunks of one set: this lane's columns of all passes. apart: bytes of a
 * chunk. Returns a word of each vector that was read. */
template <int PASSES>
static __device__ __forceinline__ uint32_t load_parts(const char *x, int32_t apart,
                                                      const int32_t columns[PASSES], int32_t n_left,
                                                      uint4 parts[2][PASSES]) {
    uint32_t read = 0;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            parts[i][p] = {0, 0, 0, 0};
            if (i < n_left)
                parts[i][p] = *(const uint4 *)(x + i * apart + columns[p]);
            read ^= parts[i][p].x;
        }
    return read;
}

/* Start rows that a norm stands before on their way into shared memory: a warp has what it
 * multiplies with, slot by slot. And until they are there but for those of the last n slots. */
template <int SHARE>
static __device__ __forceinline__ void fetch_normed(const struct ft_op_whole &op,
                                                    const struct shared &s) {
    struct whole_part own = own_part<SHARE>();
    int32_t lane = k_thread() % 32, n_chunks = op.hidden / CHUNK;
    int32_t row_bytes = ORDERS * COLUMN_BYTES, chunk_bytes = op.n_rows * row_bytes;
    const char *x = (const char *)op.normed;
#pragma unroll 1
    for (int32_t at = 0; at < n_chunks; at += SLOT_CHUNKS) {
        int32_t first = at + place_in_team<SHARE>() * share<SHARE>::CHUNKS + own.first;
        int32_t n = min(n_chunks - first, SETS * 2), to = (at / SHARE + own.first) * chunk_bytes;
        const char *from = x + first * chunk_bytes;
        if (SHARE == 1) { /* all rows of the chunks lie together */
#pragma unroll 2
            for (int32_t i = lane * 16; i < n * chunk_bytes; i += 32 * 16)
                k_fetch_start(s.x + to + i, from + i);
        } else {
            int32_t begin = own.row * row_bytes;
            int32_t end = min(own.row + FT_WHOLE_ROWS_ALONE, op.n_rows) * row_bytes;
            for (int32_t c = 0; c < n; c++, to += chunk_bytes, from += chunk_bytes)
#pragma unroll
                for (int32_t i = begin + lane * 16; i < end; i += 32 * 16)
                    k_fetch_start(s.x + to + i, from + i);
        }
        k_fetch_commit();
    }
}
static __device__ __forceinline__ void await_normed(int32_t n) {
    if (n == 0)
        k_fetch_wait_but<0>();
    else if (n == 1)
        k_fetch_wait_but<1>();
    else
        k_fetch_wait_but<2>();
    k_sync_warp();
}

/* An item's columns that this warp has, of each of its tiles. Columns without a row have another's
 * x, and nobody reads what they sum. IN_TURN: pieces of x come in turn, piece is the next one. Else
 * all of x is there, or, where piece.slot is 0, the warp's part of each slot is on its way, see
 * fetch_normed. */
template <int PASSES, int SHARE, bool IN_TURN>
static __device__ __forceinline__ void
multiply_item(const struct whole_args &a, const struct shared &s, struct whole_turn &turn,
              struct whole_turn &piece, int32_t n_rows, int32_t n_chunks,
              struct sums<PASSES> sums[SHARE][SETS]) {
    typedef share<SHARE> S;
    struct whole_part part = own_part<SHARE>();
    int32_t lane = k_thread() % 32;
    int32_t apart = n_rows * ORDERS * COLUMN_BYTES, columns[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; p++) {
        struct whole_column own = column_of<PASSES>(p, lane / 4);
        columns[p] = (min(part.row + own.row, n_rows - 1) * ORDERS + own.part) * COLUMN_BYTES;
    }
    const char *x = s.x + part.first * apart + lane % 4 * 16;
#pragma unroll 1
    for (int32_t at = 0; at < n_chunks; at += SLOT_CHUNKS) {
        uint4 parts[SETS][2][PASSES];
        int32_t n_left = n_chunks - at - part.place * SETS * 2;
        uint32_t read_x = 0;
        if (IN_TURN)
            k_turn_wait(&s.small->has_piece[piece.slot], piece.parity);
        else if (piece.slot == 0)
            await_normed((n_chunks - at - 1) / SLOT_CHUNKS);
        const char *from = x + (IN_TURN ? piece.slot * S::CHUNKS : at / SHARE) * apart;
#pragma unroll
        for (int j = 0; j < SETS; j++)
            read_x ^=
                load_parts<PASSES>(from + j * 2 * apart, apart, columns, n_left - j * 2, parts[j]);
#pragma unroll
        for (int t = 0; t < SHARE; t++) {
            uint32_t read = 0;
            k_turn_wait(&s.small->is_full[turn.slot], turn.parity);
#pragma unroll
            for (int j = 0; j < SETS; j++)
                read ^= multiply_group<PASSES, SHARE>(s.ring + turn.slot * S::SLOT_BYTES, lane,
                                                      part.first / 2 + j, parts[j], sums[t][j]);
            k_sync_warp();
            if (lane == 0) {
                k_turn_arrive_read(&s.small->is_free[turn.slot], read, a.none);
                if (IN_TURN && t == 0)
                    k_turn_arrive_read(&s.small->is_piece_free[piece.slot], read_x, a.none);
            }
            whole_next(turn, a.at.n_slots);
        }
        if (IN_TURN)
            whole_next(piece, a.at.n_pieces);
    }
}

/* What an output of one half sums up to in the lane's rows, and which they are. */
struct row_sums {
    float at[2];
    int32_t row[2]; /* GROUP: none */
};
template <int PASSES>
static __device__ __forceinline__ struct row_sums rows_of(const struct sums<PASSES> &sums, int half,
                                                          int32_t lane) {
    int i = half * 2, own = lane % 4;
    const float(*at)[4] = sums.at;
    if constexpr (PASSES == 3) {
        return {{by_size(at[0][i], at[1][i], at[2][i]),
                 by_size(at[0][i + 1], at[1][i + 1], at[2][i + 1])},
                {own * 2, own * 2 + 1}};
    } else if constexpr (PASSES == 2) {
        float middle = __shfl_sync(0xFFFFFFFFu, at[1][i + 1], lane - own + 1);
        float small = __shfl_sync(0xFFFFFFFFu, at[1][i + 1], lane - own + 2);
        return {{by_size(at[0][i], at[0][i + 1], at[1][i]), by_size(at[1][i + 1], middle, small)},
                {own, own == 0 ? 4 : GROUP}};
    } else {
        float first = __shfl_sync(0xFFFFFFFFu, at[0][i], lane - own + 1);
        float second = __shfl_sync(0xFFFFFFFFu, at[0][i + 1], lane - own + 1);
        return {{by_size(at[0][i], at[0][i + 1], own == 0 ? first : second), 0.0f},
                {own % 2 == 0 ? own / 2 : GROUP, GROUP}};
    }
}

/* A warp's sums of the rows that there are, its pair of slices added up; they are zero
 * afterwards. */
template <int PASSES>
static __device__ __forceinline__ void hand_in(struct sums<PASSES> sums[SETS], float *to,
                                               int32_t n_rows) {
    static_assert(SETS == 2, "a pair");
    int32_t thread = k_thread(), lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct row_sums rows = rows_of<PASSES>(sums[0], half, lane);
        struct row_sums others = rows_of<PASSES>(sums[1], half, lane);
        int32_t out = lane / 4 + half * HALF;
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (rows.row[i] < n_rows)
                to[warp * n_rows * TILE + sum_at(rows.row[i], out)] =
                    __fadd_rn(rows.at[i], others.at[i]);
    }
    sums[0] = sums[1] = {};
}
/* The same to the block that ends the tile, of those that share it: rows from one on. */
static __device__ __forceinline__ void send_in(struct sums<3> sums[SETS], float *to, uint32_t rank,
                                               uint64_t *is_sent, int32_t n_rows) {
    struct whole_part part = own_part<2>();
    int32_t lane = k_thread() % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct row_sums rows = rows_of<3>(sums[0], half, lane);
        struct row_sums others = rows_of<3>(sums[1], half, lane);
        int32_t row = part.row + rows.row[0], out = lane / 4 + half * HALF;
        if (row < n_rows) /* and the next, which may be none: nobody looks at it then */
            k_store_there(to + part.place * share<2>::SUMS + shared_sum_at(row, out), rank,
                          __fadd_rn(rows.at[0], others.at[0]), __fadd_rn(rows.at[1], others.at[1]),
                          is_sent);
    }
    sums[0] = sums[1] = {};
}

#endif
