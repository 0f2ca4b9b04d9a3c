/* Attention on a GPU against double precision, and its bits against company. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/twin.h"
#include "unit/ops_reference.h"

#define SEQS 5
#define LEN 420
#define TABLE ((LEN + FT_OPS_KV_BLOCK - 1) / FT_OPS_KV_BLOCK)
#define ROWS 80

struct shape {
    int32_t n_heads, n_kv_heads, head_dim, window;
};
static const struct shape shapes[] = {
    {1, 1, 2, 0},   {4, 2, 64, 0},   {6, 2, 16, 0},   {8, 1, 80, 0},   {40, 1, 10, 0},
    {3, 3, 256, 0}, {10, 5, 64, 1},  {4, 2, 32, 5},   {4, 2, 64, 130}, {2, 1, 24, 200},
    {6, 2, 128, 0}, {4, 4, 128, 33}, {5, 1, 48, 128}, {5, 1, 64, 256},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

/* Where the rows of each sequence begin, and how many there are. */
static const struct {
    int32_t position, n_rows;
} places[SEQS] = {{0, 5}, {127, 1}, {109, 40}, {399, 6}, {63, 3}};

/* Keys and values [LEN, n_kv_heads, head_dim] of each sequence and the same in paged form, where
 * all that no row sees is NaN, as the KV of a poisoned sequence would be. */
struct scene {
    struct shape shape;
    struct ft_kv kv;
    size_t kv_bytes, row_bytes;
    float *k[SEQS], *v[SEQS], *q, *out;
    int32_t blocks[SEQS * TABLE];
    struct ft_span spans[SEQS];
    int32_t n_rows;
};

static void write_kv(struct scene *s, int32_t seq, int32_t position) {
    int32_t dim = s->shape.head_dim, n_kv = s->shape.n_kv_heads;
    int64_t padded = ft_kv_padded_dim(dim);
    int32_t block = s->blocks[seq * TABLE + position / FT_OPS_KV_BLOCK];
    int32_t at = position % FT_OPS_KV_BLOCK;
    for (int32_t h = 0; h < n_kv; h++) {
        float *head =
            s->kv.base + block * ft_kv_block_floats(n_kv, dim) + h * ft_kv_head_floats(dim);
        for (int32_t d = 0; d < padded; d++) {
            int64_t from = ((int64_t)position * n_kv + h) * dim + d;
            head[d * FT_OPS_KV_BLOCK + at] = d < dim ? s->k[seq][from] : 0.0f;
            head[(FT_OPS_KV_BLOCK + at) * padded + d] = d < dim ? s->v[seq][from] : 0.0f;
        }
    }
}

static void make_scene(struct scene *s, struct shape shape) {
    uint64_t random = 5;
    *s = (struct scene){.shape = shape};
    int64_t kv_floats = SEQS * TABLE * ft_kv_block_floats(shape.n_kv_heads, shape.head_dim);
    s->kv_bytes = (size_t)kv_floats * sizeof(float);
    s->kv = (struct ft_kv){malloc(s->kv_bytes), shape.n_kv_heads, shape.head_dim};
    for (int64_t i = 0; i < kv_floats; i++)
        s->kv.base[i] = NAN;
    for (int32_t seq = 0; seq < SEQS; seq++) {
        int64_t n = (int64_t)LEN * shape.n_kv_heads * shape.head_dim;
        s->k[seq] = ref_random_floats(&random, n);
        s->v[seq] = ref_random_floats(&random, n);
        for (int32_t b = 0; b < TABLE; b++)
            s->blocks[seq * TABLE + b] = (b * SEQS + seq) * 7 % (SEQS * TABLE);
        s->spans[seq] = (struct ft_span){.row = s->n_rows,
                                         .n_rows = places[seq].n_rows,
                                         .position = places[seq].position,
                                         .table = seq * TABLE};
        s->n_rows += places[seq].n_rows;
        int32_t first = places[seq].position - shape.window + 1;
        for (int32_t p = shape.window > 0 && first > 0 ? first : 0;
             p < places[seq].position + places[seq].n_rows; p++)
            write_kv(s, seq, p);
    }
    ck_assert_int_le(s->n_rows, ROWS);
    int64_t row_floats = (int64_t)shape.n_heads * shape.head_dim;
    s->row_bytes = (size_t)row_floats * sizeof(float);
    s->q = ref_random_floats(&random, s->n_rows * row_floats);
    s->out = ref_random_floats(&random, s->n_rows * row_floats);
}

static void free_scene(struct scene *s) {
    for (int32_t seq = 0; seq < SEQS; seq++) {
        free(s->k[seq]);
        free(s->v[seq]);
    }
    free(s->kv.base);
    free(s->q);
    free(s->out);
}

/* Large enough that softmax is far from flat. */
static float scale_of(const struct scene *s) {
    return 4.0f / sqrtf((float)s->shape.head_dim);
}

/* The scene's rows given as these spans of them; rows count from first. */
static void run_spans(struct twin *twin, struct scene *s, const struct ft_span *spans,
                      int32_t n_spans) {
    struct ft_span moved[SEQS], pieces[ROWS];
    int32_t n_pieces = 0, first = spans[0].row, n_rows = 0, len_max = 0;
    for (int32_t i = 0; i < n_spans; i++) {
        moved[i] = spans[i];
        moved[i].row -= first;
        n_rows += spans[i].n_rows;
        n_pieces += ft_span_cut(&moved[i], pieces + n_pieces);
        if (spans[i].position + spans[i].n_rows > len_max)
            len_max = spans[i].position + spans[i].n_rows;
    }
    float *out = s->out + (size_t)first * s->row_bytes / sizeof(float);
    struct ft_op_attention op = {
        .q = twin_put(twin, s->q + (size_t)first * s->row_bytes / sizeof(float),
                      (size_t)n_rows * s->row_bytes),
        .out = twin_put(twin, out, (size_t)n_rows * s->row_bytes),
        .n_heads = s->shape.n_heads,
        .scale = scale_of(s),
        .window = s->shape.window,
        .spans = moved,
        .n_spans = n_spans,
        .pieces = twin_put(twin, pieces, (size_t)n_pieces * sizeof pieces[0]),
        .n_pieces = n_pieces,
        .n_rows = n_rows,
        .len_max = len_max,
        .blocks = twin_put(twin, s->blocks, sizeof s->blocks),
        .kv = s->kv,
    };
    op.kv.base = twin_put(twin, s->kv.base, s->kv_bytes);
    twin->gpu->kind->ops->attention(twin->gpu, &op);
    twin_get(twin, out, op.out, (size_t)n_rows * s->row_bytes);
    twin_release(twin);
}

static void check_query(const struct scene *s, const struct ft_span *span, int32_t seq, int32_t row,
                        int32_t head) {
    int32_t dim = s->shape.head_dim, n_kv = s->shape.n_kv_heads;
    int32_t kv_head = head / (s->shape.n_heads / n_kv), position = span->position + row;
    float *k = malloc((size_t)((position + 1) * dim) * sizeof(float));
    float *v = malloc((size_t)((position + 1) * dim) * sizeof(float));
    for (int32_t p = 0; p <= position; p++)
        for (int32_t d = 0; d < dim; d++) {
            k[p * dim + d] = s->k[seq][(p * n_kv + kv_head) * dim + d];
            v[p * dim + d] = s->v[seq][(p * n_kv + kv_head) * dim + d];
        }
    int64_t at = ((int64_t)(span->row + row) * s->shape.n_heads + head) * dim;
    double want[FT_OPS_HEAD_DIM_MAX];
    struct ref_attention reference = {s->q + at,          k, v, dim, position, s->shape.window,
                                      (double)scale_of(s)};
    ref_attention(&reference, want);
    for (int32_t d = 0; d < dim; d++)
        twin_close_to((double)s->out[at + d], want[d], 2e-5, "attention", at + d);
    free(k);
    free(v);
}

START_TEST(attention_of_any_shape_matches_reference) {
    struct twin twin;
    struct scene s;
    twin_open(&twin);
    make_scene(&s, shapes[_i]);
    run_spans(&twin, &s, s.spans, SEQS);
    for (int32_t seq = 0; seq < SEQS; seq++)
        for (int32_t row = 0; row < s.spans[seq].n_rows; row++)
            for (int32_t head = 0; head < s.shape.n_heads; head++)
                check_query(&s, &s.spans[seq], seq, row, head);
    free_scene(&s);
    twin_close(&twin);
}
END_TEST

/* All rows at once; freed by the caller. */
static float *run_together(struct twin *twin, struct scene *s) {
    size_t bytes = (size_t)s->n_rows * s->row_bytes;
    float *together = malloc(bytes);
    run_spans(twin, s, s->spans, SEQS);
    memcpy(together, s->out, bytes);
    return together;
}

/* Row by row, and in twos and threes: the same bits as all together. */
START_TEST(dev50_attention_row_does_not_depend_on_company) {
    struct twin twin;
    struct scene s;
    twin_open(&twin);
    make_scene(&s, shapes[_i]);
    float *together = run_together(&twin, &s);
    size_t bytes = (size_t)s.n_rows * s.row_bytes;
    for (int32_t chunk = 1; chunk <= 7; chunk += 3) {
        memset(s.out, 0xFF, bytes);
        for (int32_t seq = 0; seq < SEQS; seq++)
            for (int32_t at = 0; at < s.spans[seq].n_rows; at += chunk) {
                int32_t left = s.spans[seq].n_rows - at;
                struct ft_span span = s.spans[seq];
                span.row += at;
                span.position += at;
                span.n_rows = left < chunk ? left : chunk;
                run_spans(&twin, &s, &span, 1);
            }
        ck_assert_mem_eq(together, s.out, bytes);
    }
    free(together);
    free_scene(&s);
    twin_close(&twin);
}
END_TEST

/* A sequence's last row has a broken key and value: rows before it, of the same tile, do not see
 * them. */
START_TEST(attention_row_does_not_depend_on_what_it_does_not_see) {
    struct twin twin;
    struct scene s;
    twin_open(&twin);
    make_scene(&s, shapes[_i]);
    float *clean = run_together(&twin, &s);
    size_t width = s.row_bytes / sizeof(float);
    int32_t row_kv = s.shape.n_kv_heads * s.shape.head_dim;
    for (int32_t seq = 0; seq < SEQS; seq++) {
        int32_t last = s.spans[seq].position + s.spans[seq].n_rows - 1;
        for (int32_t i = last * row_kv; i < (last + 1) * row_kv; i++) {
            s.k[seq][i] = i % 2 == 0 ? NAN : INFINITY;
            s.v[seq][i] = i % 2 == 0 ? INFINITY : NAN;
        }
        write_kv(&s, seq, last);
    }
    run_spans(&twin, &s, s.spans, SEQS);
    for (int32_t seq = 0; seq < SEQS; seq++) {
        const struct ft_span *span = &s.spans[seq];
        size_t first = (size_t)span->row * width, n = (size_t)(span->n_rows - 1) * width;
        ck_assert_mem_eq(clean + first, s.out + first, n * sizeof(float));
        ck_assert(!isfinite(s.out[first + n]));
    }
    free(clean);
    free_scene(&s);
    twin_close(&twin);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention");
    TCase *tcase = tcase_create("gpu");
    tcase_add_loop_test(tcase, attention_of_any_shape_matches_reference, 0, N_SHAPES);
    tcase_add_loop_test(tcase, dev50_attention_row_does_not_depend_on_company, 0, N_SHAPES);
    tcase_add_loop_test(tcase, attention_row_does_not_depend_on_what_it_does_not_see, 0, N_SHAPES);
    suite_add_tcase(suite, tcase);
    TCase *small = tcase_create("small"); /* for tools that slow the GPU down a thousandfold */
    tcase_add_loop_test(small, attention_of_any_shape_matches_reference, 1, 2);
    suite_add_tcase(suite, small);
    return twin_main(suite);
}
