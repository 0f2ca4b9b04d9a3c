/* certs: the certificates of certs.sh for one suite.
 * Owns:    the folder, from make to remove.
 * Runs in: tests.
 * Never:   used beyond tests: the keys lie open. */
#ifndef FT_TESTS_CERTS_H
#define FT_TESTS_CERTS_H

#include <stddef.h>

/* Before the suite's cases fork. False: no openssl program here, the suite is to be skipped. */
int certs_make(void);
void certs_remove(void);
/* DIR/name, in one of a few static buffers used in turn. */
const char *certs_path(const char *name);
/* Copy file from over file to, in place. */
void certs_copy(const char *from, const char *to);

#endif
