/* Mutated safetensors files: headers in memory, and whole checkpoints on disk. The reader may
 * refuse; every byte of what it accepts must be readable and belong to one tensor. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/model/safetensors.h"
#include "common/model/weights.h"
#include "fuzz/config_mutate.h"
#include "support/fixtures.h"
#include "support/suite.h"

#define GOLDEN "tests/data/golden/qwen3-qknorm"
#define HEADER_MAX 16384

/* A small file: three tensors, of which mutations can make overlaps, gaps and other shapes. */
static const char k_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"c\":{\"dtype\":\"F16\",\"shape\":[2,1,2],\"data_offsets\":[32,40]}}  ";
#define DATA_BYTES 40

/* length + header + n_data bytes of data in a block of exactly that size. */
static unsigned char *make_file(uint64_t length, const char *header, size_t n_header,
                                const void *data, size_t n_data) {
    unsigned char *file = malloc(8 + n_header + n_data);
    ck_assert_ptr_nonnull(file);
    for (unsigned i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, n_header);
    memcpy(file + 8 + n_header, data, n_data);
    return file;
}

static uint64_t mutate_length(struct mutate_rng *rng, uint64_t length) {
    switch (mutate_below(rng, 16)) {
    case 0:
        return length ^ (1ull << mutate_below(rng, 64));
    case 1:
        return length + mutate_below(rng, 32) - 16;
    default:
        return length;
    }
}

static void check_promises(const struct ft_safetensors *f, const unsigned char *file, size_t len) {
    uint64_t at = 0;
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < f->n_entries; i++) {
        const struct ft_safetensors_entry *e = &f->entries[i];
        ck_assert(e->begin <= len && e->bytes <= len - e->begin);
        ck_assert(i == 0 || e->begin == at);
        ck_assert(e->begin % (uint64_t)ft_dtype_bytes(e->dtype) == 0);
        for (uint64_t k = 0; k < e->bytes; k++)
            sum = (unsigned char)(sum + file[e->begin + k]);
        at = e->begin + e->bytes;
    }
    ck_assert(f->n_entries == 0 || at == len);
}

START_TEST(parse_mutated_header_refuses_or_keeps_promises) {
    struct mutate_rng rng = {20};
    uint64_t n_rounds = 0, n_accepted = 0;
    const unsigned char data[DATA_BYTES + 8] = {0};
    int64_t until = mutate_deadline_ns();
    do {
        char header[HEADER_MAX];
        memcpy(header, k_header, sizeof k_header - 1);
        size_t n = mutate_json(&rng, header, sizeof k_header - 1, sizeof header);
        size_t n_data = mutate_below(&rng, 8) == 0 ? mutate_below(&rng, sizeof data) : DATA_BYTES;
        unsigned char *file = make_file(mutate_length(&rng, n), header, n, data, n_data);
        struct ft_safetensors out;
        struct ft_err err = {0};
        size_t len = 8 + n + n_data;
        enum ft_code code = ft_safetensors_parse(&out, "x", file, len, len, &err);
        ck_assert(code == FT_OK || (code == FT_E_PROC_MODEL && err.text[0] != 0));
        if (code == FT_OK) {
            check_promises(&out, file, len);
            ft_arena_destroy(&out.arena);
        }
        n_accepted += code == FT_OK;
        n_rounds++;
        free(file);
    } while (ft_clock_now_ns() < until || n_accepted == 0);
    printf("header: %llu rounds, %llu accepted\n", (unsigned long long)n_rounds,
           (unsigned long long)n_accepted);
    ck_assert_msg(n_accepted < n_rounds, "the mutations test nothing");
}
END_TEST

static unsigned char sum_tensor(struct ft_tensor t) {
    unsigned char sum = 0;
    size_t bytes = (size_t)t.rows * (size_t)t.cols * (size_t)ft_dtype_bytes(t.dtype);
    for (size_t i = 0; t.data != NULL && i < bytes; i++)
        sum = (unsigned char)(sum + ((const unsigned char *)t.data)[i]);
    return sum;
}

START_TEST(open_mutated_checkpoint_refuses_or_binds) {
    const char *dir = ft_fixture_temp_dir();
    ft_fixture_copy(ft_fixture_source(GOLDEN), dir);
    struct ft_buf file = ft_fixture_read(dir, "model.safetensors");
    struct ft_model_config config;
    struct ft_err err = {0};
    ck_assert_msg(ft_model_config_load(dir, &config, &err) == FT_OK, "%s", err.text);
    uint64_t n_header = 0, n_rounds = 0, n_accepted = 0;
    memcpy(&n_header, file.ptr, 8);
    const char *data = file.ptr + 8 + n_header;
    size_t n_data = file.len - 8 - (size_t)n_header;
    struct mutate_rng rng = {21};
    volatile unsigned char sum = 0;
    int64_t until = mutate_deadline_ns();
    do {
        char header[HEADER_MAX];
        memcpy(header, file.ptr + 8, (size_t)n_header);
        size_t n = mutate_json(&rng, header, (size_t)n_header, sizeof header);
        size_t kept = mutate_below(&rng, 8) == 0 ? n_data - mutate_below(&rng, 4097) : n_data;
        unsigned char *mutant = make_file(mutate_length(&rng, n), header, n, data, kept);
        ft_fixture_write(dir, "model.safetensors", mutant, 8 + n + kept);
        free(mutant);
        struct ft_weights w;
        struct ft_model_config c = config;
        enum ft_code code = ft_weights_open(&w, dir, &c, &err);
        ck_assert(code == FT_OK || (code == FT_E_PROC_MODEL && err.text[0] != 0));
        if (code == FT_OK) {
            sum = (unsigned char)(sum + sum_tensor(w.embed) + sum_tensor(w.norm));
            for (int32_t i = 0; i < c.n_layers; i++)
                sum =
                    (unsigned char)(sum + sum_tensor(w.layers[i].q) + sum_tensor(w.layers[i].down));
            ft_weights_close(&w);
        }
        n_accepted += code == FT_OK;
        n_rounds++;
    } while (ft_clock_now_ns() < until || n_accepted == 0);
    printf("checkpoint: %llu rounds, %llu accepted\n", (unsigned long long)n_rounds,
           (unsigned long long)n_accepted);
    ck_assert_msg(n_accepted < n_rounds, "the mutations test nothing");
    ft_buf_fini(&file);
    ft_fixture_remove_dir(dir);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fuzz_safetensors");
    TCase *tcase = tcase_create("fuzz_safetensors");
    tcase_add_test(tcase, parse_mutated_header_refuses_or_keeps_promises);
    tcase_add_test(tcase, open_mutated_checkpoint_refuses_or_binds);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
