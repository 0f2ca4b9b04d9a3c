/* stress_whole: two processes run steps as one kernel on the same card, with single kernels of
 * their own beside them, for some seconds. Says how many steps were whole and how many gave up;
 * fails when results differ from those of single kernels, or nothing gets done for ten seconds.
 * Run it with MPS and without. usage: stress_whole [seconds] */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "gpu/whole_model.h"

#define PROCESSES 2
#define SILENCE_S 10
#define PATIENCE_NS 300000
#define STEPS 20 /* between two looks at the results */

static const struct whole_shape shape = {2048, 8192, 32, 8, 64, 32000, 4, 0, false, 512};

static void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "stress_whole: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static void hung(int number) {
    static const char text[] = "stress_whole: HANGS\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(4);
    _exit(3);
}

static struct whole_model *make(uint64_t seed, int32_t n_rows) {
    struct whole_model *m = whole_model_create(&shape, 1, seed);
    struct whole_seq seq = {480, n_rows};
    must(cudaStreamCreateWithFlags(&whole_model_target(m)->stream, cudaStreamNonBlocking),
         "stream");
    whole_model_place(m, &seq, 1, n_rows);
    whole_model_op(m)->patience_ns = PATIENCE_NS;
    whole_model_reset(m);
    return m;
}

/* Steps until the end; what to return from main. */
static int work(int which, int64_t end_ns) {
    struct whole_model *m = make((uint64_t)which + 1, which == 0 ? 1 : 5);
    struct whole_model *beside = make((uint64_t)which + 7, 8);
    int64_t n, n_whole = 0, n_gave_up = 0, longest_ns = 0;
    must(whole_model_single(m), "step");
    float *want = whole_model_results(m, &n);
    for (int64_t round = 0; ft_clock_now_ns() < end_ns; round++) {
        whole_model_reset(m);
        must(cudaDeviceSynchronize(), "reset");
        for (int i = 0; i < STEPS; i++) {
            alarm(SILENCE_S);
            int64_t begin_ns = ft_clock_now_ns();
            if ((round + i) % 3 == 0)
                must(whole_model_single(beside), "step beside");
            must(whole_model_whole(m), "step");
            bool is_given_up = whole_model_state(m).is_abandoned != 0;
            if (is_given_up) {
                whole_model_clear(m);
                must(whole_model_single(m), "step by single kernels");
            }
            must(cudaDeviceSynchronize(), "step");
            int64_t took_ns = ft_clock_now_ns() - begin_ns;
            longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
            n_whole += !is_given_up;
            n_gave_up += is_given_up;
        }
        float *got = whole_model_results(m, &n);
        if (memcmp(want, got, sizeof *got * (size_t)n) != 0) {
            fprintf(stderr, "stress_whole: process %d, round %lld: other results\n", which,
                    (long long)round);
            return 2;
        }
        free(got);
    }
    alarm(0);
    printf("process %d: %lld whole, %lld gave up, longest step %.1f ms\n", which,
           (long long)n_whole, (long long)n_gave_up, (double)longest_ns / 1e6);
    return n_whole > 0 ? 0 : 5;
}

int main(int argc, char **argv) {
    long seconds = argc > 1 ? strtol(argv[1], NULL, 10) : 20;
    int failed = 0;
    signal(SIGALRM, hung);
    int64_t end_ns = ft_clock_now_ns() + seconds * 1000000000;
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        if (pid == 0)
            exit(work(i, end_ns));
        failed |= pid < 0;
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        failed |= wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    printf("%s\n", failed != 0 ? "FAILED" : "no hang, all results as by single kernels");
    return failed;
}
