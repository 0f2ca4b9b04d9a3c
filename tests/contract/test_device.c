/* What every device promises, over every row of the registry. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gpu/device.h"
#include "support/suite.h"

static const struct ft_device_opts opts = {.n_threads = 2, .idle_spin_us = 50};

/* NULL: this machine has no such device, which is said; the host's own is always there. */
static struct ft_device *open_kind(const struct ft_device_kind *kind) {
    struct ft_device *device = NULL;
    struct ft_err err = {0};
    enum ft_code code = ft_device_open(&device, kind->name, &opts, &err);
    if (code == FT_E_PROC_OS && !kind->is_host) {
        ck_assert_ptr_null(device);
        printf("skipped: %s: %s\n", kind->name, err.text);
        return NULL;
    }
    ck_assert_msg(code == FT_OK, "%s", err.text);
    return device;
}

START_TEST(kind_has_every_function) {
    const struct ft_device_kind *kind = ft_device_kind_at((size_t)_i);
    ck_assert(kind->open && kind->close && kind->describe && kind->alloc && kind->place &&
              kind->give_back && kind->copy && kind->fetch && kind->pin && kind->unpin &&
              kind->begin && kind->end && kind->note && kind->sync && kind->gave_up);
    ck_assert(kind->ops->gather && kind->ops->angles && kind->ops->rmsnorm && kind->ops->linear &&
              kind->ops->rope && kind->ops->attention && kind->ops->read && kind->ops->step);
}
END_TEST

START_TEST(open_by_name_says_what_it_is) {
    const struct ft_device_kind *kind = ft_device_kind_at((size_t)_i);
    struct ft_device *device = open_kind(kind);
    if (device == NULL)
        return;
    ck_assert_ptr_eq(device->kind, kind);
    char text[FT_DEVICE_TEXT_MAX];
    kind->describe(device, text);
    ck_assert_int_eq(strncmp(text, kind->name, strlen(kind->name)), 0);
    ft_device_close(&device);
    ck_assert_ptr_null(device);
    ft_device_close(&device);
}
END_TEST

/* Looked at before the machine is: one without a GPU says so of names that are right. */
START_TEST(variant_of_a_gpu_is_a_number_and_single) {
    static const char *const good[] = {"cuda", "cuda:0", "cuda:single", "cuda:0,single"};
    static const char *const bad[] = {"cuda:singly",         "cuda:0,", "cuda:,single",
                                      "cuda:0single",        "cuda:-1", "cuda:1024",
                                      "cuda:0,single,single"};
    bool has_kind = false;
    for (size_t i = 0; ft_device_kind_at(i) != NULL; i++)
        has_kind = has_kind || strcmp(ft_device_kind_at(i)->name, "cuda") == 0;
    for (size_t i = 0; has_kind && i < sizeof good / sizeof good[0]; i++) {
        struct ft_device *device = NULL;
        struct ft_err err = {0};
        enum ft_code code = ft_device_open(&device, good[i], &opts, &err);
        ck_assert_msg(code == FT_OK || code == FT_E_PROC_OS, "%s: %s", good[i], err.text);
        ck_assert_int_eq(ft_device_check(good[i], &err), FT_OK);
        ft_device_close(&device);
    }
    for (size_t i = 0; has_kind && i < sizeof bad / sizeof bad[0]; i++) {
        struct ft_device *device = NULL;
        struct ft_err err = {0};
        ck_assert_int_eq(ft_device_open(&device, bad[i], &opts, &err), FT_E_PROC_CONFIG);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i] + strlen("cuda:")));
        ck_assert_int_eq(ft_device_check(bad[i], &err), FT_E_PROC_CONFIG);
    }
}
END_TEST

START_TEST(open_of_unknown_variant_names_those_there_are) {
    char spec[64];
    struct ft_device *device = NULL;
    struct ft_err err = {0};
    strcpy(spec, ft_device_kind_at((size_t)_i)->name);
    strcat(spec, ":abacus");
    ck_assert_int_eq(ft_device_open(&device, spec, &opts, &err), FT_E_PROC_CONFIG);
    ck_assert_ptr_null(device);
    ck_assert_msg(strstr(err.text, ":abacus\"") != NULL, "%s", err.text);
    ck_assert_int_eq(ft_device_check(spec, &err), FT_E_PROC_CONFIG);
}
END_TEST

START_TEST(open_of_unknown_device_names_those_there_are) {
    static const char *const specs[] = {"", "cp", "cpux", "tpu", ":cpu"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct ft_device *device = NULL;
        struct ft_err err = {0};
        ck_assert_int_eq(ft_device_open(&device, specs[i], &opts, &err), FT_E_PROC_CONFIG);
        ck_assert_ptr_null(device);
        for (size_t k = 0; ft_device_kind_at(k) != NULL; k++)
            ck_assert_msg(strstr(err.text, ft_device_kind_at(k)->name) != NULL, "%s", err.text);
    }
}
END_TEST

START_TEST(alloc_of_too_much_fails_and_leaves_output_alone) {
    struct ft_device *device = open_kind(ft_device_kind_at((size_t)_i));
    if (device == NULL)
        return;
    struct ft_err err = {0};
    void *memory = NULL;
    ck_assert_int_eq(device->kind->alloc(device, (size_t)1 << 56, &memory, &err), FT_E_PROC_MEMORY);
    ck_assert_ptr_null(memory);
    ck_assert_msg(strstr(err.text, "72057594037927936") != NULL, "%s", err.text);
    device->kind->give_back(device, NULL, 0);
    ft_device_close(&device);
}
END_TEST

/* Memory comes aligned and zero; what is copied or placed is what a gather then reads, and what
 * fetch brings back. */
START_TEST(copied_and_placed_memory_feeds_operations) {
    const struct ft_device_kind *kind = ft_device_kind_at((size_t)_i);
    struct ft_device *device = open_kind(kind);
    if (device == NULL)
        return;
    struct ft_err err = {0};
    enum { ROWS = 3, COLS = 5, BYTES = 4096 };
    float table[ROWS * COLS];
    for (int32_t i = 0; i < ROWS * COLS; i++)
        table[i] = (float)i;
    const int32_t idx[] = {2, 0};
    void *memory = NULL;
    const void *placed = NULL;
    ck_assert_int_eq(kind->alloc(device, BYTES, &memory, &err), FT_OK);
    ck_assert_uint_eq((uintptr_t)memory % 64, 0);
    ck_assert_int_eq(kind->place(device, table, sizeof table, &placed, &err), FT_OK);
    int32_t *d_idx = memory;
    float *d_out = (float *)memory + 64, out[BYTES / 4 - 64];
    kind->copy(device, d_idx, idx, sizeof idx);
    struct ft_op_gather op = {placed, FT_ELEM_F32, COLS, d_idx, 2, d_out};
    kind->ops->gather(device, &op);
    kind->fetch(device, out, d_out, sizeof out);
    ck_assert_int_eq(kind->sync(device, &err), FT_OK);
    for (int32_t i = 0; i < 2 * COLS; i++)
        ck_assert(out[i] == table[idx[i / COLS] * COLS + i % COLS]);
    for (int32_t i = 2 * COLS; i < BYTES / 4 - 64; i++)
        ck_assert_msg(out[i] == 0.0f, "allocated memory is not zero");
    kind->give_back(device, memory, BYTES);
    ft_device_close(&device);
}
END_TEST

/* Operations between note and end are for later: begin starts them then, with what memory holds by
 * then. A device that notes nothing says so. */
START_TEST(noted_operations_are_done_when_they_are_begun) {
    const struct ft_device_kind *kind = ft_device_kind_at((size_t)_i);
    struct ft_device *device = open_kind(kind);
    if (device == NULL)
        return;
    struct ft_err err = {0};
    enum { COLS = 4, BYTES = 4096 };
    const float table[2 * COLS] = {1, 2, 3, 4, 5, 6, 7, 8};
    float out[COLS] = {0};
    int32_t idx = 0;
    void *memory = NULL;
    const void *placed = NULL;
    ck_assert_int_eq(kind->alloc(device, BYTES, &memory, &err), FT_OK);
    ck_assert_int_eq(kind->place(device, table, sizeof table, &placed, &err), FT_OK);
    float *d_out = (float *)memory + 64;
    struct ft_op_gather op = {placed, FT_ELEM_F32, COLS, memory, 1, d_out};
    struct ft_device_key key = {{1, 2, 3}};
    kind->ops->gather(device, &op); /* a kind of operation is done before it is noted */
    kind->copy(device, d_out, out, sizeof out);
    ck_assert_int_eq(kind->sync(device, &err), FT_OK);
    bool is_noted = kind->note(device, &key);
    ck_assert_int_eq(is_noted, kind->n_programs_max > 0);
    if (is_noted) {
        kind->ops->gather(device, &op);
        ck_assert(kind->end(device));
        ck_assert_int_eq(kind->sync(device, &err), FT_OK);
        ck_assert(!kind->note(device, &key));
        idx = 1;
        kind->copy(device, memory, &idx, sizeof idx);
        kind->fetch(device, out, d_out, sizeof out);
        ck_assert_int_eq(kind->sync(device, &err), FT_OK);
        ck_assert_msg(out[0] == 0.0f, "noting did it");
        ck_assert(kind->begin(device, &key));
        kind->fetch(device, out, d_out, sizeof out);
        ck_assert_int_eq(kind->sync(device, &err), FT_OK);
        ck_assert_int_eq(memcmp(out, table + COLS, sizeof out), 0);
    }
    kind->give_back(device, memory, BYTES);
    ft_device_close(&device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("contract");
    int n_kinds = 0;
    while (ft_device_kind_at((size_t)n_kinds) != NULL)
        n_kinds++;
    tcase_add_loop_test(tcase, kind_has_every_function, 0, n_kinds);
    tcase_add_loop_test(tcase, open_by_name_says_what_it_is, 0, n_kinds);
    tcase_add_loop_test(tcase, open_of_unknown_variant_names_those_there_are, 0, n_kinds);
    tcase_add_test(tcase, variant_of_a_gpu_is_a_number_and_single);
    tcase_add_test(tcase, open_of_unknown_device_names_those_there_are);
    tcase_add_loop_test(tcase, alloc_of_too_much_fails_and_leaves_output_alone, 0, n_kinds);
    tcase_add_loop_test(tcase, copied_and_placed_memory_feeds_operations, 0, n_kinds);
    tcase_add_loop_test(tcase, noted_operations_are_done_when_they_are_begun, 0, n_kinds);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
