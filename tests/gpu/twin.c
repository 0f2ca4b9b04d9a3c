#include "gpu/twin.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void twin_open(struct twin *twin) {
    struct ft_err err = {0};
    struct ft_device_opts opts = {.n_threads = 2, .idle_spin_us = 50};
    *twin = (struct twin){0};
    ck_assert_msg(ft_device_open(&twin->cpu, "cpu", &opts, &err) == FT_OK, "%s", err.text);
    ck_assert_msg(ft_device_open(&twin->gpu, "cuda", &opts, &err) == FT_OK, "%s", err.text);
}

void twin_release(struct twin *twin) {
    while (twin->n_copies > 0)
        twin->gpu->kind->give_back(twin->gpu, twin->copies[--twin->n_copies], 0);
}

void twin_close(struct twin *twin) {
    twin_release(twin);
    ft_device_close(&twin->gpu);
    ft_device_close(&twin->cpu);
}

void *twin_put(struct twin *twin, const void *host, size_t bytes) {
    struct ft_err err = {0};
    void *copy = NULL;
    if (host == NULL)
        return NULL;
    ck_assert_int_lt(twin->n_copies, TWIN_COPIES);
    ck_assert_msg(twin->gpu->kind->alloc(twin->gpu, bytes, &copy, &err) == FT_OK, "%s", err.text);
    twin->copies[twin->n_copies++] = copy;
    twin->gpu->kind->copy(twin->gpu, copy, host, bytes);
    return copy;
}

void twin_get(struct twin *twin, void *host, const void *copy, size_t bytes) {
    struct ft_err err = {0};
    twin->gpu->kind->fetch(twin->gpu, host, copy, bytes);
    ck_assert_msg(twin->gpu->kind->sync(twin->gpu, &err) == FT_OK, "%s", err.text);
}

void twin_close_to(double got, double want, double tolerance, const char *what, int64_t at) {
    if (!(fabs(got - want) <= tolerance) && !(isnan(got) && isnan(want)))
        ck_abort_msg("%s: [%lld] is %.9g, not %.9g (tolerance %.3g)", what, (long long)at, got,
                     want, tolerance);
}

/* In a child, so that this process can fork tests afterwards. */
static bool has_gpu(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct ft_err err = {0};
        struct ft_device *device = NULL;
        struct ft_device_opts opts = {.n_threads = 1};
        enum ft_code code = ft_device_open(&device, "cuda", &opts, &err);
        if (code != FT_OK)
            printf("skipped: %s\n", err.text);
        ft_device_close(&device);
        fflush(stdout);
        /* a build without CUDA, or a machine without a GPU; anything else is for the tests to say
         */
        _exit(code == FT_E_PROC_OS || code == FT_E_PROC_CONFIG ? 1 : 0);
    }
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

int twin_main(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    bool is_there = has_gpu();
    if (is_there)
        srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return !is_there ? 77 : failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
