/* stress_whole: processes run steps as one kernel on the same card, with single kernels of their
 * own beside them, for some seconds. Says how many steps were whole and how many gave up; fails
 * when results differ from those of single kernels, and says where, or when nothing gets done for
 * ten seconds. Run it with MPS and without.
 * usage: stress_whole [seconds [ROWS,...]]   a process for each number of rows; 1,5 unless given
 * FORETOKEN_STRESS: alone, no single kernels beside; single, no steps as one kernel; seldom, looks
 * at the results of every twentieth step alone, so that less stands between steps. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "gpu/whole_model.h"

#define PROCESSES_MAX 8
#define REPORTS 4 /* of a process */
#define SILENCE_S 10
#define PATIENCE_NS 300000
#define STEPS 20 /* between two resets */

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

static bool is_said(const char *word) {
    const char *said = getenv("FORETOKEN_STRESS");
    return said != NULL && strcmp(said, word) == 0;
}

/* Where results differ: how many logits of each row and KV numbers of each layer, and the first. */
static void report(struct whole_model *m, const float *want, const float *got, int64_t n) {
    const struct ft_op_whole *op = whole_model_op(m);
    int64_t n_rows = op->n_picks * op->row_stride, per_layer = (n - n_rows) / op->n_layers;
    for (int64_t i = 0; i < op->n_picks + op->n_layers; i++) {
        bool is_row = i < op->n_picks;
        int64_t from = is_row ? i * op->row_stride : n_rows + (i - op->n_picks) * per_layer;
        int64_t count = is_row ? op->row_stride : per_layer, n_other = 0, first = -1, last = -1;
        for (int64_t j = 0; j < count; j++)
            if (memcmp(want + from + j, got + from + j, sizeof *got) != 0) {
                first = n_other++ == 0 ? j : first;
                last = j;
            }
        if (n_other > 0)
            fprintf(stderr, "  %s %lld: %lld of %lld, %lld to %lld, %g instead of %g\n",
                    is_row ? "row" : "KV of layer",
                    (long long)(is_row ? i : i - op->n_picks), (long long)n_other,
                    (long long)count, (long long)first, (long long)last, (double)got[from + first],
                    (double)want[from + first]);
    }
}

/* Steps until the end; what to return from main. */
static int work(int which, int32_t n_rows, int64_t end_ns) {
    struct whole_model *m = make((uint64_t)which + 1, n_rows);
    struct whole_model *beside = make((uint64_t)which + 7, FT_WHOLE_ROWS_MAX);
    int64_t n, n_whole = 0, n_gave_up = 0, n_other = 0, longest_ns = 0;
    must(whole_model_single(m), "step");
    float *want = whole_model_results(m, &n);
    for (int64_t step = 0; ft_clock_now_ns() < end_ns; step++) {
        if (step % STEPS == 0)
            whole_model_reset(m);
        must(cudaDeviceSynchronize(), "reset");
        alarm(SILENCE_S);
        int64_t begin_ns = ft_clock_now_ns();
        if (step % 3 == 0 && !is_said("alone"))
            must(whole_model_single(beside), "step beside");
        must(is_said("single") ? whole_model_single(m) : whole_model_whole(m), "step");
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
        if (is_said("seldom") && step % STEPS != STEPS - 1)
            continue;
        float *got = whole_model_results(m, &n);
        if (memcmp(want, got, sizeof *got * (size_t)n) != 0 && n_other++ < REPORTS) {
            fprintf(stderr, "process %d, %d rows, step %lld, %s: other results\n", which, n_rows,
                    (long long)step, is_given_up ? "by single kernels" : "whole");
            report(m, want, got, n);
        }
        free(got);
    }
    alarm(0);
    printf("process %d, %d rows: %lld whole, %lld gave up, %lld with other results, longest step "
           "%.1f ms\n",
           which, n_rows, (long long)n_whole, (long long)n_gave_up, (long long)n_other,
           (double)longest_ns / 1e6);
    return n_other > 0 ? 2 : n_whole > 0 ? 0 : 5;
}

/* How many numbers of rows a list has; 0: it is none. */
static int read_rows(const char *list, int32_t rows[PROCESSES_MAX]) {
    int n = 0;
    for (char *end; n < PROCESSES_MAX; list = end + 1) {
        long value = strtol(list, &end, 10);
        if (end == list || value < 1 || value > FT_WHOLE_ROWS_MAX)
            return 0;
        rows[n++] = (int32_t)value;
        if (*end != ',')
            return *end == '\0' ? n : 0;
    }
    return 0;
}

int main(int argc, char **argv) {
    int32_t rows[PROCESSES_MAX];
    long seconds = argc > 1 ? strtol(argv[1], NULL, 10) : 20;
    int failed = 0, n = read_rows(argc > 2 ? argv[2] : "1,5", rows);
    if (n == 0 || seconds < 1) {
        fprintf(stderr, "usage: stress_whole [seconds [ROWS,...]], 1 to %d rows each\n",
                FT_WHOLE_ROWS_MAX);
        return 64;
    }
    signal(SIGALRM, hung);
    int64_t end_ns = ft_clock_now_ns() + seconds * 1000000000;
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0)
            exit(work(i, rows[i], end_ns));
        failed |= pid < 0;
    }
    for (int i = 0; i < n; i++) {
        int status = 0;
        failed |= wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    printf("%s\n", failed != 0 ? "FAILED" : "no hang, all results as by single kernels");
    return failed;
}
