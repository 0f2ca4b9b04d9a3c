/* rpc_main: the main function that every suite of common/rpc shares.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   is included twice by one program. */
#ifndef FT_TESTS_RPC_MAIN_H
#define FT_TESTS_RPC_MAIN_H

#include <check.h>
#include <stdlib.h>

static Suite *suite(void);

int main(void) {
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
