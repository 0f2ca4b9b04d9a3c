#include "support/fixtures.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/file.h"

#define PATH_BYTES 4096
#define FILE_BYTES_MAX (256u << 20)
#define SCRIPT FT_TEST_SOURCE_DIR "/tests/fixtures/mkfix.py"

extern char **environ;

/* Returned paths stay reachable until the process ends, so that leak checkers are content. */
static struct kept {
    struct kept *next;
    char path[];
} * s_kept;

static const char *keep(const char *path) {
    for (const struct kept *k = s_kept; k != NULL; k = k->next)
        if (strcmp(k->path, path) == 0)
            return k->path;
    size_t bytes = strlen(path) + 1;
    struct kept *k = malloc(sizeof *k + bytes);
    ck_assert_ptr_nonnull(k);
    memcpy(k->path, path, bytes);
    k->next = s_kept;
    s_kept = k;
    return k->path;
}

static void join(char out[PATH_BYTES], const char *dir, const char *name) {
    struct ft_err err = {0};
    ck_assert_msg(ft_file_join(out, PATH_BYTES, dir, name, &err) == FT_OK, "%s", err.text);
}

static void make_dir(const char *path) {
    ck_assert_msg(mkdir(path, 0700) == 0 || errno == EEXIST, "cannot make %s: %s", path,
                  strerror(errno));
}

/* The cache of one version of the script: a change of it must not leave old models in use. */
static void cache_dir(char out[PATH_BYTES]) {
    struct ft_buf script = ft_fixture_read(FT_TEST_SOURCE_DIR "/tests/fixtures", "mkfix.py");
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < script.len; i++)
        hash = (hash ^ (unsigned char)script.ptr[i]) * 1099511628211u;
    ft_buf_fini(&script);
    char name[32];
    snprintf(name, sizeof name, "%016" PRIx64, hash);
    make_dir(FT_TEST_BINARY_DIR "/fixtures");
    join(out, FT_TEST_BINARY_DIR "/fixtures", name);
    make_dir(out);
}

/* Run the script into the empty folder dir, and fail with what it printed. */
static void run_script(const char *dir, const char *spec) {
    char log[PATH_BYTES];
    join(log, dir, "mkfix.log");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    char *argv[] = {"env", "python3", SCRIPT, (char *)(uintptr_t)dir, (char *)(uintptr_t)spec,
                    NULL};
    pid_t pid = 0;
    int failed = posix_spawn(&pid, "/usr/bin/env", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    ck_assert_msg(failed == 0, "cannot run /usr/bin/env: %s", strerror(failed));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        ck_assert_int_eq(errno, EINTR);
    if (status != 0) {
        struct ft_buf text = ft_fixture_read(dir, "mkfix.log");
        ft_fixture_remove_dir(dir);
        bool is_missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
        ck_abort_msg("python3 %s %s: %s%s", SCRIPT, spec,
                     is_missing ? "python3 is needed to make the models of the tests: " : "",
                     text.len == 0 ? "(no message)" : text.ptr);
    }
    unlink(log);
}

const char *ft_fixture_model(const char *spec) {
    char cache[PATH_BYTES], path[PATH_BYTES], temp[PATH_BYTES];
    cache_dir(cache);
    join(path, cache, spec);
    if (access(path, F_OK) == 0)
        return keep(path);
    join(temp, cache, ".new-XXXXXX");
    ck_assert_msg(mkdtemp(temp) != NULL, "cannot make %s: %s", temp, strerror(errno));
    run_script(temp, spec);
    /* Whoever is first wins; another process may have made the same model meanwhile. */
    if (rename(temp, path) != 0) {
        ck_assert_msg(errno == EEXIST || errno == ENOTEMPTY, "cannot rename %s: %s", temp,
                      strerror(errno));
        ft_fixture_remove_dir(temp);
    }
    return keep(path);
}

const char *ft_fixture_source(const char *path) {
    char out[PATH_BYTES];
    join(out, FT_TEST_SOURCE_DIR, path);
    ck_assert_msg(access(out, F_OK) == 0, "%s is not there", out);
    return keep(out);
}

const char *ft_fixture_bench_model(const char *name) {
    const char *dir = getenv("FORETOKEN_BENCH_MODELS");
    if (dir == NULL || dir[0] == 0) {
        fprintf(stderr, "skipped: FORETOKEN_BENCH_MODELS is unset, %s is not at hand\n", name);
        return NULL;
    }
    char out[PATH_BYTES];
    join(out, dir, name);
    ck_assert_msg(access(out, F_OK) == 0, "%s is not there", out);
    return keep(out);
}

const char *ft_fixture_temp_dir(void) {
    char out[PATH_BYTES];
    make_dir(FT_TEST_BINARY_DIR "/tmp");
    join(out, FT_TEST_BINARY_DIR "/tmp", "XXXXXX");
    ck_assert_msg(mkdtemp(out) != NULL, "cannot make %s: %s", out, strerror(errno));
    return keep(out);
}

void ft_fixture_remove_dir(const char *dir) {
    DIR *entries = opendir(dir);
    ck_assert_msg(entries != NULL, "cannot list %s: %s", dir, strerror(errno));
    for (struct dirent *e = readdir(entries); e != NULL; e = readdir(entries)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char path[PATH_BYTES];
        join(path, dir, e->d_name);
        struct stat st;
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            ft_fixture_remove_dir(path);
        else
            unlink(path);
    }
    closedir(entries);
    ck_assert_msg(rmdir(dir) == 0, "cannot remove %s: %s", dir, strerror(errno));
}

int64_t ft_fixture_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void ft_fixture_copy(const char *from_dir, const char *to_dir) {
    DIR *entries = opendir(from_dir);
    ck_assert_msg(entries != NULL, "cannot list %s: %s", from_dir, strerror(errno));
    for (struct dirent *e = readdir(entries); e != NULL; e = readdir(entries)) {
        char path[PATH_BYTES];
        join(path, from_dir, e->d_name);
        struct stat st;
        if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        struct ft_buf text = ft_fixture_read(from_dir, e->d_name);
        ft_fixture_write(to_dir, e->d_name, text.ptr, text.len);
        ft_buf_fini(&text);
    }
    closedir(entries);
}

void ft_fixture_write(const char *dir, const char *name, const void *ptr, size_t len) {
    char path[PATH_BYTES];
    join(path, dir, name);
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "cannot write %s: %s", path, strerror(errno));
    bool is_written = len == 0 || fwrite(ptr, 1, len, file) == len;
    ck_assert_msg(fclose(file) == 0 && is_written, "cannot write %s", path);
}

void ft_fixture_write_text(const char *dir, const char *name, const char *text) {
    ft_fixture_write(dir, name, text, strlen(text));
}

struct ft_buf ft_fixture_read(const char *dir, const char *name) {
    char path[PATH_BYTES];
    join(path, dir, name);
    struct ft_buf out;
    struct ft_err err = {0};
    ft_buf_init(&out, 0);
    ck_assert_msg(ft_file_read(path, FILE_BYTES_MAX, &out, &err) == FT_OK, "%s", err.text);
    return out;
}

json_t *ft_fixture_json(const char *dir, const char *name) {
    struct ft_buf text = ft_fixture_read(dir, name);
    json_error_t where;
    json_t *root = json_loadb(text.ptr, text.len, JSON_DECODE_ANY, &where);
    ck_assert_msg(root != NULL, "%s/%s: line %d: %s", dir, name, where.line, where.text);
    ft_buf_fini(&text);
    return root;
}
