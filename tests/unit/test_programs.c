/* The table of CUDA graphs, over graphs that are lists (support/noting_device.c). */
#include <check.h>

#include "common/gpu/device.h"
#include "support/noting_device.h"
#include "support/suite.h"

enum { MAX = 512 };

static struct ft_device *g_device;
static const float k_table[] = {1, 2, 3, 4};
static const int32_t k_idx[] = {2};
static float g_out;

static void open_device(void) {
    struct ft_err err = {0};
    struct ft_device_opts opts = {.n_threads = 1};
    noting = (struct noting){0};
    g_out = 0;
    ck_assert_int_eq(ft_device_open(&g_device, "noting", &opts, &err), FT_OK);
    ck_assert_int_eq(g_device->kind->n_programs_max, MAX);
}

static void close_device(void) {
    ft_device_close(&g_device);
    ck_assert_int_eq(noting.n_graphs, 0);
}

static struct ft_device_key key_of(int64_t number) {
    return (struct ft_device_key){{1, number, number % 7}};
}

static void gather(void) {
    struct ft_op_gather op = {k_table, FT_ELEM_F32, 1, k_idx, 1, &g_out};
    g_device->kind->ops->gather(g_device, &op);
}

/* What a step does. Returns whether there was a program. */
static bool step(int64_t number) {
    struct ft_device_key key = key_of(number);
    struct ft_err err = {0};
    g_out = 0;
    bool is_found = g_device->kind->begin(g_device, &key);
    if (!is_found) {
        gather();
        if (!g_device->kind->end(g_device)) {
            ck_assert_msg(g_out == 0.0f, "end did it");
            gather();
        }
    }
    ck_assert_int_eq(g_device->kind->sync(g_device, &err), FT_OK);
    ck_assert_msg(g_out == 3.0f, "the step was not done");
    return is_found;
}

static bool note(int64_t number) {
    struct ft_device_key key = key_of(number);
    if (!g_device->kind->note(g_device, &key))
        return false;
    gather();
    ck_assert(g_device->kind->end(g_device));
    return true;
}

START_TEST(key_is_noted_the_second_time_and_found_the_third) {
    open_device();
    ck_assert(!step(1));
    ck_assert_int_eq(noting.n_graphs, 0);
    ck_assert(!step(1));
    ck_assert_int_eq(noting.n_graphs, 1);
    ck_assert(step(1) && step(1));
    ck_assert(!step(2));
    close_device();
}
END_TEST

START_TEST(noted_key_is_found_the_first_time_and_was_not_done_before) {
    open_device();
    ck_assert(note(1));
    ck_assert_msg(g_out == 0.0f, "noting did it");
    ck_assert_int_eq(noting.n_done, 0);
    ck_assert(!note(1)); /* it is there */
    ck_assert(step(1));
    ck_assert(!step(2));
    ck_assert(note(2)); /* one that came once */
    ck_assert(step(2));
    ck_assert_int_eq(noting.n_graphs, 2);
    close_device();
}
END_TEST

START_TEST(keys_that_come_once_take_no_programs_place) {
    open_device();
    for (int64_t i = 0; i < MAX; i++)
        ck_assert(note(i));
    for (int64_t i = 0; i < 3 * MAX; i++)
        ck_assert(!step(MAX + i));
    for (int64_t i = 0; i < MAX; i++)
        ck_assert(step(i));
    close_device();
}
END_TEST

START_TEST(program_used_longest_ago_goes_first) {
    open_device();
    for (int64_t i = 0; i < MAX; i++)
        ck_assert(note(i));
    ck_assert(step(0)); /* now 1 is the oldest */
    ck_assert(note(MAX));
    ck_assert_int_eq(noting.n_graphs, MAX);
    ck_assert(step(0) && step(2) && step(MAX));
    ck_assert(!step(1));
    close_device();
}
END_TEST

START_TEST(noting_that_fails_is_said_once_and_leaves_the_key_to_its_second_time) {
    open_device();
    struct ft_err err = {0};
    noting.fail_at = 1;
    ck_assert(note(1)); /* it began */
    ck_assert_int_eq(g_device->kind->sync(g_device, &err), FT_E_PROC_INTERNAL);
    ck_assert_int_eq(g_device->kind->sync(g_device, &err), FT_OK);
    ck_assert_int_eq(noting.n_graphs, 0);
    ck_assert(!step(1) && !step(1) && step(1));
    close_device();
}
END_TEST

START_TEST(program_that_lacks_an_operation_is_not_kept) {
    open_device();
    struct ft_err err = {0};
    noting.breaks = true;
    ck_assert(note(1));
    noting.breaks = false;
    ck_assert_int_eq(g_device->kind->sync(g_device, &err), FT_E_PROC_INTERNAL);
    ck_assert_int_eq(noting.n_graphs, 0);
    ck_assert(!step(1));
    close_device();
}
END_TEST

/* Whatever of it fails: the step is done all the same, and the key is left alone. */
START_TEST(step_that_cannot_be_noted_is_done_by_operations_and_its_key_left_alone) {
    open_device();
    noting.fail_at = 1;
    noting.fail_in = (enum noting_stage)_i;
    for (int i = 0; i < 5; i++)
        ck_assert(!step(1));
    ck_assert_int_eq(noting.n_captures, 1);
    ck_assert_int_eq(noting.n_done, 5);
    ck_assert_int_eq(noting.n_graphs, 0);
    ck_assert(!step(2) && !step(2) && step(2));
    ck_assert(note(1)); /* asked for again, it is kept again */
    ck_assert(step(1));
    for (int64_t i = 0; i < MAX; i++)
        ck_assert(note(3 + i)); /* it goes, and comes back as any other */
    ck_assert(!step(1) && !step(1) && step(1));
    close_device();
}
END_TEST

START_TEST(keys_that_failed_are_remembered_up_to_as_many_as_there_are_programs) {
    open_device();
    for (int64_t i = 0; i <= MAX; i++) {
        ck_assert(!step(i));
        noting.fail_at = noting.n_captures + 1;
        ck_assert(!step(i));
    }
    ck_assert_int_eq(noting.n_captures, MAX + 1);
    for (int64_t i = 1; i <= MAX; i++)
        ck_assert(!step(i) && !step(i));
    ck_assert_int_eq(noting.n_captures, MAX + 1);
    ck_assert(!step(0) && !step(0) && step(0));
    close_device();
}
END_TEST

START_TEST(program_that_cannot_be_started_is_done_by_operations_and_not_kept) {
    open_device();
    ck_assert(note(1) && step(1));
    noting.fail_at = noting.n_captures;
    noting.fail_in = NOTING_LAUNCH;
    for (int i = 0; i < 4; i++)
        ck_assert(!step(1));
    ck_assert_int_eq(noting.n_captures, 1);
    ck_assert_int_eq(noting.n_graphs, 0);
    close_device();
}
END_TEST

START_TEST(operation_that_fails_while_its_step_is_noted_is_reported) {
    struct ft_device_key key = key_of(1);
    struct ft_err err = {0};
    open_device();
    ck_assert(!step(1));
    ck_assert(!g_device->kind->begin(g_device, &key));
    noting.breaks = true;
    gather();
    noting.breaks = false;
    ck_assert(g_device->kind->end(g_device));
    ck_assert_int_eq(g_device->kind->sync(g_device, &err), FT_E_PROC_INTERNAL);
    ck_assert_int_eq(noting.n_graphs, 0);
    close_device();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("programs");
    TCase *tcase = tcase_create("table");
    tcase_add_test(tcase, key_is_noted_the_second_time_and_found_the_third);
    tcase_add_test(tcase, noted_key_is_found_the_first_time_and_was_not_done_before);
    tcase_add_test(tcase, keys_that_come_once_take_no_programs_place);
    tcase_add_test(tcase, program_used_longest_ago_goes_first);
    tcase_add_test(tcase, noting_that_fails_is_said_once_and_leaves_the_key_to_its_second_time);
    tcase_add_test(tcase, program_that_lacks_an_operation_is_not_kept);
    tcase_add_loop_test(tcase,
                        step_that_cannot_be_noted_is_done_by_operations_and_its_key_left_alone, 0,
                        NOTING_STAGES);
    tcase_add_test(tcase, keys_that_failed_are_remembered_up_to_as_many_as_there_are_programs);
    tcase_add_test(tcase, program_that_cannot_be_started_is_done_by_operations_and_not_kept);
    tcase_add_test(tcase, operation_that_fails_while_its_step_is_noted_is_reported);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
