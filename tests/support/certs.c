#include "support/certs.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static char g_dir[64];

int certs_make(void) {
    char command[512];
    if (system("command -v openssl >/dev/null") != 0)
        return 0;
    snprintf(g_dir, sizeof g_dir, "/tmp/foretoken-certs-XXXXXX");
    if (mkdtemp(g_dir) == NULL)
        return 0;
    snprintf(command, sizeof command, "%s/tests/support/certs.sh %s", FT_TEST_SOURCE_DIR, g_dir);
    if (system(command) == 0)
        return 1;
    fprintf(stderr, "certs.sh failed; see %s/openssl.log\n", g_dir);
    exit(EXIT_FAILURE);
}

void certs_remove(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", g_dir);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", g_dir);
}

const char *certs_path(const char *name) {
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", g_dir, name);
    return path;
}

void certs_copy(const char *from, const char *to) {
    char command[512];
    snprintf(command, sizeof command, "cat %s/%s > %s/%s", g_dir, from, g_dir, to);
    ck_assert_int_eq(system(command), 0);
}
