#include <check.h>
#include <stdlib.h>

#include "coordinator/retry.h"
#include "support/suite.h"

#define MS INT64_C(1000000)

START_TEST(hint_before_anything_ended_is_a_short_answer) {
    struct co_retry retry = {0};
    ck_assert_int_eq(co_retry_queue_ms(&retry, 1, 4), CO_RETRY_MS_UNKNOWN);
    ck_assert_int_eq(co_retry_client_ms(&retry, 1, 4), CO_RETRY_MS_UNKNOWN);
}
END_TEST

START_TEST(queue_hint_is_the_time_until_so_many_places_are_free) {
    struct co_retry retry = {0};
    for (int i = 0; i < 50; i++)
        co_retry_ended(&retry, 2000 * MS, 9000 * MS);
    ck_assert_int_eq(co_retry_queue_ms(&retry, 1, 4), 500);
    ck_assert_int_eq(co_retry_queue_ms(&retry, 1, 4), 1000); /* behind the first */
    ck_assert_int_eq(co_retry_queue_ms(&retry, 3, 4), 2500);
    for (int i = 0; i < 5; i++)
        co_retry_ended(&retry, 2000 * MS, 9000 * MS);
    ck_assert_int_eq(retry.n_turned_away, 0); /* five places came free */
    ck_assert_int_eq(co_retry_queue_ms(&retry, 1, 8), 250);
    ck_assert_int_eq(co_retry_queue_ms(&retry, 1, 0), 4000); /* nobody runs: one at a time */
}
END_TEST

START_TEST(client_hint_is_the_time_until_its_own_requests_end) {
    struct co_retry retry = {0};
    for (int i = 0; i < 50; i++)
        co_retry_ended(&retry, 100 * MS, 6000 * MS);
    ck_assert_int_eq(co_retry_client_ms(&retry, 1, 3), 2000);
    ck_assert_int_eq(co_retry_client_ms(&retry, 2, 3), 4000);
    ck_assert_int_eq(retry.n_turned_away, 0); /* others' places are not its concern */
}
END_TEST

START_TEST(hint_follows_what_requests_take_of_late) {
    struct co_retry retry = {0};
    for (int i = 0; i < 50; i++)
        co_retry_ended(&retry, 4000 * MS, 4000 * MS);
    for (int i = 0; i < 60; i++)
        co_retry_ended(&retry, 400 * MS, 400 * MS);
    int32_t ms = co_retry_queue_ms(&retry, 1, 1);
    ck_assert_int_ge(ms, 399);
    ck_assert_int_le(ms, 420);
    for (int i = 0; i < 60; i++)
        co_retry_ended(&retry, -1, 10 * MS); /* left while they waited: no time of service */
    ck_assert_int_ge(co_retry_queue_ms(&retry, 1, 1), 399);
    ck_assert_int_le(co_retry_client_ms(&retry, 1, 1), CO_RETRY_MS_MIN);
}
END_TEST

START_TEST(hint_stays_within_its_bounds) {
    struct co_retry retry = {0};
    co_retry_ended(&retry, 0, 0);
    ck_assert_int_eq(co_retry_queue_ms(&retry, 1, 1000), CO_RETRY_MS_MIN);
    for (int i = 0; i < 100; i++)
        co_retry_ended(&retry, INT64_MAX / 4, INT64_MAX / 4);
    ck_assert_int_eq(co_retry_queue_ms(&retry, INT32_MAX, 1), CO_RETRY_MS_MAX);
    ck_assert_int_eq(co_retry_queue_ms(&retry, INT32_MAX, 1), CO_RETRY_MS_MAX);
    ck_assert_int_gt(retry.n_turned_away, 0);
    ck_assert_int_eq(co_retry_client_ms(&retry, INT32_MAX, 1), CO_RETRY_MS_MAX);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("retry");
    TCase *tc = tcase_create("retry");
    tcase_add_test(tc, hint_before_anything_ended_is_a_short_answer);
    tcase_add_test(tc, queue_hint_is_the_time_until_so_many_places_are_free);
    tcase_add_test(tc, client_hint_is_the_time_until_its_own_requests_end);
    tcase_add_test(tc, hint_follows_what_requests_take_of_late);
    tcase_add_test(tc, hint_stays_within_its_bounds);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
