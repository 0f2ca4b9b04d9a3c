#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "support/rpc_fixture.h"

START_TEST(unary_echo_returns_the_message) {
    struct rpc_answer a = rpc_ask(fx.client, "/test.Echo/Unary", ft_str_c("hello"), NULL);
    ck_assert_int_eq(a.status.code, 0);
    ck_assert_str_eq(a.bytes, "hello");
    ck_assert(rpc_wait_int(&fx.echo.gone, 1, 1000));
    ck_assert_int_eq(fx.echo.cancelled, 0);
    ck_assert(fx.echo.deadline_ns == INT64_MAX);
}
END_TEST

static Suite *suite(void) {
    Suite *s = suite_create("rpc_unary");
    TCase *t = tcase_create("unary");
    tcase_add_checked_fixture(t, rpc_fixture_setup, rpc_fixture_teardown);
    tcase_add_test(t, unary_echo_returns_the_message);
    suite_add_tcase(s, t);
    return s;
}

int main(void) {
    SRunner *r = srunner_create(suite());
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
