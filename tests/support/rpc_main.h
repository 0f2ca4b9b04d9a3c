/* rpc_main: the main function that every suite of common/rpc shares.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   is included twice by one program. */
#ifndef FT_TESTS_RPC_MAIN_H
#define FT_TESTS_RPC_MAIN_H

#include <check.h>
#include <stdlib.h>

#include "support/suite.h"

static Suite *suite(void);

int main(void) {
    return suite_run(suite());
}

#endif
