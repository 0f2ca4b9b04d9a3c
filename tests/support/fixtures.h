/* fixtures: tiny models, temporary folders and files of the repository, for tests.
 * Owns:    the paths it returns, until the process ends.
 * Runs in: tests; one thread.
 * Never:   returns a failure: the running test fails with the reason.
 * Models are made on first use by tests/fixtures/mkfix.py (python3 is needed then, not to build)
 * and kept under the build folder; tests that run at once may share them. */
#ifndef FT_TESTS_SUPPORT_FIXTURES_H
#define FT_TESTS_SUPPORT_FIXTURES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Folder of the model that spec names, "cyc" or "r7n+ctx=256"; tests/fixtures/README.md lists the
 * names and changes. Read only: other tests use it too (see ft_fixture_copy). */
const char *ft_fixture_model(const char *spec);

/* Path of a file or folder of the repository, "models/demo-target". */
const char *ft_fixture_source(const char *path);

/* $FORETOKEN_BENCH_MODELS/name, or NULL (and a message on stderr) when the variable is unset. */
const char *ft_fixture_bench_model(const char *name);

/* A new empty folder under the build folder; ft_fixture_remove_dir ends it. */
const char *ft_fixture_temp_dir(void);
void ft_fixture_remove_dir(const char *dir); /* with all that is in it */

/* CPU time of this process: how busy the machine is must not decide a test. */
int64_t ft_fixture_cpu_ns(void);
/* What may take a second of it; instrumented code is several times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FT_FIXTURE_CPU_SECOND_NS 10000000000
#else
#define FT_FIXTURE_CPU_SECOND_NS 1000000000
#endif

/* Copy the regular files of one folder into another. */
void ft_fixture_copy(const char *from_dir, const char *to_dir);

void ft_fixture_write(const char *dir, const char *name, const void *ptr, size_t len);
void ft_fixture_write_text(const char *dir, const char *name, const char *text);
/* The whole file; the caller calls ft_buf_fini. */
struct ft_buf ft_fixture_read(const char *dir, const char *name);
/* The caller calls json_decref. */
json_t *ft_fixture_json(const char *dir, const char *name);

#ifdef __cplusplus
}
#endif
#endif
