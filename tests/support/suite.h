/* suite: what the main function of a Check suite does.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   forks by itself: Check does, as CK_FORK says. */
#ifndef TEST_SUITE_H
#define TEST_SUITE_H

#include <check.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Run suite, which is freed; what main returns. CK_VERBOSITY says how much is printed. */
static inline int suite_run(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? 0 : 1;
}

#ifdef __cplusplus
}
#endif

#endif
