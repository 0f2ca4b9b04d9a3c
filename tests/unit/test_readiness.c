#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/readiness.h"
#include "support/suite.h"

struct told {
    int n;
    enum co_readiness_state state[16];
    char reason[16][64];
    struct co_readiness *leave; /* stop listening after the first call */
    struct co_readiness_listener *self;
};

static void tell(void *user, const struct co_readiness *readiness) {
    struct told *told = user;
    ck_assert_int_lt(told->n, 16);
    told->state[told->n] = readiness->state;
    snprintf(told->reason[told->n], sizeof told->reason[0], "%.63s", readiness->reason);
    told->n++;
    if (told->leave != NULL)
        co_readiness_unlisten(told->leave, told->self);
}

START_TEST(init_is_starting_with_a_reason) {
    struct co_readiness r;
    co_readiness_init(&r);
    ck_assert_int_eq(r.state, CO_READINESS_STARTING);
    ck_assert_str_ne(r.reason, "");
    ck_assert_uint_eq(r.n_changes, 0);
    ck_assert_str_eq(co_readiness_name(r.state), "starting");
}
END_TEST

START_TEST(changes_are_told_once_each_in_order) {
    struct co_readiness r;
    struct told told = {0};
    struct co_readiness_listener listener = {0};
    co_readiness_init(&r);
    co_readiness_listen(&r, &listener, tell, &told);
    ck_assert_int_eq(told.n, 0);
    co_readiness_starting(&r, "waiting for the target worker");
    co_readiness_target_back(&r); /* what it never lost */
    co_readiness_serving(&r);
    co_readiness_serving(&r);
    co_readiness_target_lost(&r, "killed");
    co_readiness_target_lost(&r, "killed");
    co_readiness_target_lost(&r, "not reached");
    co_readiness_target_back(&r);
    static const enum co_readiness_state states[] = {
        CO_READINESS_STARTING,    CO_READINESS_READY, CO_READINESS_UNAVAILABLE,
        CO_READINESS_UNAVAILABLE, CO_READINESS_READY,
    };
    static const char *const reasons[] = {"waiting for the target worker", "", "killed",
                                          "not reached", ""};
    ck_assert_int_eq(told.n, 5);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(told.state[i], states[i]);
        ck_assert_str_eq(told.reason[i], reasons[i]);
    }
    ck_assert_uint_eq(r.n_changes, 3); /* another reason is no other state */
}
END_TEST

START_TEST(target_lost_before_the_first_token_is_still_starting) {
    struct co_readiness r;
    co_readiness_init(&r);
    co_readiness_target_lost(&r, "killed");
    ck_assert_int_eq(r.state, CO_READINESS_STARTING);
    co_readiness_serving(&r);
    ck_assert_int_eq(r.state, CO_READINESS_UNAVAILABLE);
    ck_assert_str_eq(r.reason, "killed");
    co_readiness_target_back(&r);
    ck_assert_int_eq(r.state, CO_READINESS_READY);
    ck_assert_str_eq(r.reason, "");
}
END_TEST

START_TEST(drain_outweighs_the_target_and_resume_shows_what_became_of_it) {
    struct co_readiness r;
    struct told told = {0};
    struct co_readiness_listener listener = {0};
    co_readiness_init(&r);
    co_readiness_serving(&r);
    co_readiness_listen(&r, &listener, tell, &told);
    co_readiness_drain(&r, "an operator");
    co_readiness_target_lost(&r, "killed");
    ck_assert_int_eq(r.state, CO_READINESS_DRAINING);
    ck_assert_str_eq(r.reason, "an operator");
    ck_assert_int_eq(told.n, 1);
    co_readiness_resume(&r);
    ck_assert_int_eq(r.state, CO_READINESS_UNAVAILABLE);
    ck_assert_str_eq(r.reason, "killed");
    co_readiness_resume(&r);
    ck_assert_int_eq(told.n, 2);
    co_readiness_init(&r); /* a drain while starting ends in starting */
    co_readiness_drain(&r, "x");
    co_readiness_resume(&r);
    ck_assert_int_eq(r.state, CO_READINESS_STARTING);
}
END_TEST

START_TEST(listener_may_leave_while_it_is_told) {
    struct co_readiness r;
    struct co_readiness_listener a = {0}, b = {0}, c = {0};
    struct told told_a = {0}, told_b = {.leave = &r, .self = &b}, told_c = {0};
    co_readiness_init(&r);
    co_readiness_listen(&r, &a, tell, &told_a);
    co_readiness_listen(&r, &b, tell, &told_b);
    co_readiness_listen(&r, &c, tell, &told_c);
    co_readiness_serving(&r);
    co_readiness_target_lost(&r, "killed");
    ck_assert_int_eq(told_a.n, 2);
    ck_assert_int_eq(told_b.n, 1);
    ck_assert_int_eq(told_c.n, 2);
    co_readiness_unlisten(&r, &b); /* again */
    co_readiness_unlisten(&r, &a);
    co_readiness_target_back(&r);
    ck_assert_int_eq(told_a.n, 2);
    ck_assert_int_eq(told_c.n, 3);
}
END_TEST

START_TEST(long_reason_is_cut_and_told_once) {
    struct co_readiness r;
    struct told told = {0};
    struct co_readiness_listener listener = {0};
    char text[2 * FT_ERR_TEXT_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    co_readiness_init(&r);
    co_readiness_serving(&r);
    co_readiness_listen(&r, &listener, tell, &told);
    co_readiness_target_lost(&r, text);
    co_readiness_target_lost(&r, text);
    ck_assert_int_eq(told.n, 1);
    ck_assert_uint_eq(strlen(r.reason), FT_ERR_TEXT_MAX - 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("readiness");
    TCase *tc = tcase_create("readiness");
    tcase_add_test(tc, init_is_starting_with_a_reason);
    tcase_add_test(tc, changes_are_told_once_each_in_order);
    tcase_add_test(tc, target_lost_before_the_first_token_is_still_starting);
    tcase_add_test(tc, drain_outweighs_the_target_and_resume_shows_what_became_of_it);
    tcase_add_test(tc, listener_may_leave_while_it_is_told);
    tcase_add_test(tc, long_reason_is_cut_and_told_once);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
