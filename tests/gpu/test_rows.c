/* Operations on single rows, on a GPU and on the CPU. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/twin.h"
#include "unit/ops_reference.h"

START_TEST(gather_of_every_16_bit_number_is_exact) {
    struct twin twin;
    twin_open(&twin);
    static uint16_t table[65536];
    static float out[65536];
    int32_t idx[64];
    for (int32_t i = 0; i < 65536; i++)
        table[i] = (uint16_t)i;
    for (int32_t i = 0; i < 64; i++)
        idx[i] = 63 - i;
    for (int e = FT_ELEM_F16; e <= FT_ELEM_BF16; e++) {
        struct ft_op_gather op = {.src = twin_put(&twin, table, sizeof table),
                                  .elem = (enum ft_elem)e,
                                  .n_cols = 1024,
                                  .idx = twin_put(&twin, idx, sizeof idx),
                                  .n_rows = 64,
                                  .out = twin_put(&twin, out, sizeof out)};
        twin.gpu->kind->ops->gather(twin.gpu, &op);
        twin_get(&twin, out, op.out, sizeof out);
        for (int32_t i = 0; i < 65536; i++) {
            double want =
                ref_decode((enum ft_elem)e, (uint16_t)((63 - i / 1024) * 1024 + i % 1024));
            bool equal = (double)out[i] == want && !signbit(out[i]) == !signbit(want);
            if (isnan(want) ? !isnan(out[i]) : !equal)
                ck_abort_msg("%d is %g, not %g", i, (double)out[i], want);
        }
    }
    twin_close(&twin);
}
END_TEST

START_TEST(angles_match_the_cpu) {
    struct twin twin;
    twin_open(&twin);
    enum { ROWS = 40, PAIRS = 70 };
    static float want[ROWS * 2 * PAIRS], got[ROWS * 2 * PAIRS], inv_freq[PAIRS];
    int32_t positions[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        positions[i] = i * i * 83;
    for (int32_t j = 0; j < PAIRS; j++)
        inv_freq[j] = powf(10000.0f, -(float)j / PAIRS);
    struct ft_op_angles op = {positions, inv_freq, ROWS, PAIRS, want};
    twin.cpu->kind->ops->angles(twin.cpu, &op);
    op.positions = twin_put(&twin, positions, sizeof positions);
    op.inv_freq = twin_put(&twin, inv_freq, sizeof inv_freq);
    op.out = twin_put(&twin, got, sizeof got);
    twin.gpu->kind->ops->angles(twin.gpu, &op);
    twin_get(&twin, got, op.out, sizeof got);
    for (int32_t i = 0; i < ROWS * 2 * PAIRS; i++)
        twin_close_to((double)got[i], (double)want[i], 3e-7, "angles", i);
    twin_close(&twin);
}
END_TEST

START_TEST(rmsnorm_matches_the_cpu) {
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 3;
    enum { ROWS = 9 };
    for (int32_t n = 1; n < 5000; n = n * 2 + n % 3) {
        size_t bytes = (size_t)(ROWS * n) * sizeof(float);
        float *x = ref_random_floats(&random, (int64_t)ROWS * n);
        float *weight = ref_random_floats(&random, n);
        float *want = malloc(bytes), *got = malloc(bytes);
        struct ft_op_rmsnorm op = {x, weight, 1e-5f, ROWS, n, want};
        twin.cpu->kind->ops->rmsnorm(twin.cpu, &op);
        op.x = twin_put(&twin, x, bytes);
        op.weight = twin_put(&twin, weight, (size_t)n * sizeof(float));
        op.out = twin_put(&twin, x, bytes);
        twin.gpu->kind->ops->rmsnorm(twin.gpu, &op);
        twin_get(&twin, got, op.out, bytes);
        for (int32_t i = 0; i < ROWS * n; i++)
            twin_close_to((double)got[i], (double)want[i], 4e-6 * fabs((double)want[i]), "rmsnorm",
                          i);
        op.out = twin_put(&twin, x, bytes); /* in place */
        op.x = op.out;
        twin.gpu->kind->ops->rmsnorm(twin.gpu, &op);
        twin_get(&twin, want, op.out, bytes);
        ck_assert_mem_eq(got, want, bytes);
        twin_release(&twin);
        free(x);
        free(weight);
        free(want);
        free(got);
    }
    twin_close(&twin);
}
END_TEST

enum { ROWS = 11, HEADS = 6, KV_HEADS = 2, BLOCKS = 3, SLOTS = BLOCKS * FT_OPS_KV_BLOCK };

static void check_rope(struct twin *twin, int32_t dim, bool norms, uint64_t *random) {
    size_t q_bytes = (size_t)(ROWS * HEADS * dim) * sizeof(float);
    size_t k_bytes = (size_t)(ROWS * KV_HEADS * dim) * sizeof(float), dim_bytes = (size_t)dim * 4;
    size_t kv_bytes = (size_t)(BLOCKS * ft_kv_block_floats(KV_HEADS, dim)) * sizeof(float);
    float *q = ref_random_floats(random, ROWS * HEADS * dim), *q_got = malloc(q_bytes);
    float *k = ref_random_floats(random, ROWS * KV_HEADS * dim);
    float *v = ref_random_floats(random, ROWS * KV_HEADS * dim);
    float *angles = ref_random_floats(random, ROWS * dim);
    float *q_norm = ref_random_floats(random, dim), *k_norm = ref_random_floats(random, dim);
    float *kv = calloc(1, kv_bytes), *kv_got = malloc(kv_bytes);
    int32_t slots[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        slots[i] = (i * 13 + 5) % SLOTS;
    struct ft_op_rope op = {.q = twin_put(twin, q, q_bytes),
                            .k = twin_put(twin, k, k_bytes),
                            .v = twin_put(twin, v, k_bytes),
                            .n_rows = ROWS,
                            .n_heads = HEADS,
                            .angles = twin_put(twin, angles, ROWS * dim_bytes),
                            .slots = twin_put(twin, slots, sizeof slots),
                            .q_norm = norms ? twin_put(twin, q_norm, dim_bytes) : NULL,
                            .k_norm = norms ? twin_put(twin, k_norm, dim_bytes) : NULL,
                            .eps = 1e-6f,
                            .kv = {twin_put(twin, kv, kv_bytes), KV_HEADS, dim}};
    twin->gpu->kind->ops->rope(twin->gpu, &op);
    twin_get(twin, q_got, op.q, q_bytes);
    twin_get(twin, kv_got, op.kv.base, kv_bytes);
    twin_release(twin);
    op.q = q, op.k = k, op.v = v, op.angles = angles, op.slots = slots, op.kv.base = kv;
    op.q_norm = norms ? q_norm : NULL;
    op.k_norm = norms ? k_norm : NULL;
    twin->cpu->kind->ops->rope(twin->cpu, &op);
    for (int32_t i = 0; i < ROWS * HEADS * dim; i++)
        twin_close_to((double)q_got[i], (double)q[i], 1e-5, "q", i);
    for (int64_t i = 0; i < (int64_t)(kv_bytes / sizeof(float)); i++)
        twin_close_to((double)kv_got[i], (double)kv[i], 1e-5, "kv", i);
    float *arrays[] = {q, q_got, k, v, angles, q_norm, k_norm, kv, kv_got};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
}

START_TEST(rope_and_kv_write_match_the_cpu) {
    static const int32_t dims[] = {2, 10, 16, 64, 80, 128, 256};
    struct twin twin;
    twin_open(&twin);
    uint64_t random = 4;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int norms = 0; norms < 2; norms++)
            check_rope(&twin, dims[i], norms == 1, &random);
    twin_close(&twin);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rows");
    TCase *tcase = tcase_create("small");
    tcase_add_test(tcase, gather_of_every_16_bit_number_is_exact);
    tcase_add_test(tcase, angles_match_the_cpu);
    tcase_add_test(tcase, rmsnorm_matches_the_cpu);
    tcase_add_test(tcase, rope_and_kv_write_match_the_cpu);
    suite_add_tcase(suite, tcase);
    return twin_main(suite);
}
