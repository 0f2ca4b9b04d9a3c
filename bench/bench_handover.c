/* bench_handover: what it costs to hand a round from one process to the next on one GPU: draft,
 * target and coordinator, each with a stand-in for its step that is busy for a fixed time, so that
 * what a round takes beyond these times is the hand-overs. By ways: a reply when the step is done;
 * all steps enqueued ahead, each behind the IPC event of the one before; the same behind a word
 * that the stream waits for. To be run through MPS, as the product is.
 * usage: bench_handover [rounds] */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/handover.h"
#include "common/base/clock.h"
#include "common/gpu/kernels/driver.h"
#include "common/gpu/kernels/kernels.h"

enum rank { COORDINATOR, DRAFT, TARGET, RANKS };
enum way { BY_REPLY, BY_EVENT, BY_WORD, WAYS, LEAVE };
static const char *const way_names[WAYS] = {
    "reply, then a message",
    "IPC events, enqueued ahead",
    "words that streams wait for, enqueued ahead",
};
static const uint64_t busy_ns[RANKS] = {20000, 1000000, 2000000};

enum { ROUNDS_MAX = 2000, PASSES = 5, ALIVE_S = 60 };

/* What all three look at; who writes a word is its only writer. */
struct board {
    _Alignas(64) atomic_uint is_open[RANKS];
    _Alignas(64) atomic_uint go[RANKS];       /* the round that a process may begin */
    _Alignas(64) atomic_uint enqueued[RANKS]; /* the round that it has enqueued */
    _Alignas(64) atomic_uint done[RANKS];     /* the round whose step is over */
    atomic_uint way;
    cudaIpcMemHandle_t words[RANKS];
    cudaIpcEventHandle_t events[RANKS];
};

/* A stream memory operation of the driver. Returns a CUresult. */
typedef int (*word_fn)(cudaStream_t stream, unsigned long long at, uint32_t value, unsigned flags);

/* A process: what it has, and what it has open of the one before it. */
struct process {
    struct board *board;
    enum rank rank;
    cudaStream_t stream;
    uint32_t *words; /* dev [2]: what the step wrote; what streams wait for */
    cudaEvent_t event;
    uint32_t *words_before;
    cudaEvent_t event_before;
    word_fn wait_word, write_word;
};

static void must(int error, const char *what) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "bench_handover: %s: %s\n", what, cudaGetErrorString((cudaError_t)error));
    exit(1);
}

static void await(atomic_uint *word, uint32_t value) {
    while (atomic_load_explicit(word, memory_order_acquire) != value)
        ;
}
static void say(atomic_uint *word, uint32_t value) {
    atomic_store_explicit(word, value, memory_order_release);
}

/* ---- stream memory operations, which the runtime has no names for */

static word_fn find(const char *name) {
    void *found = k_driver_find(name);
    word_fn fn = NULL;
    if (found == NULL) {
        fprintf(stderr, "bench_handover: this driver has no %s\n", name);
        exit(1);
    }
    memcpy(&fn, &found, sizeof fn);
    return fn;
}
static void on_word(word_fn fn, cudaStream_t stream, uint32_t *at, uint32_t value) {
    int result = fn(stream, (uintptr_t)at, value, 0);
    if (result == 0)
        return;
    fprintf(stderr, "bench_handover: a stream and a word: CUresult %d\n", result);
    exit(1);
}

/* ---- a step */

/* Enqueue the step of a round behind the one before it, in the way that is in force. */
static void enqueue(struct process *p, uint32_t round, uint32_t *to) {
    enum way way = (enum way)atomic_load(&p->board->way);
    bool is_first = p->words_before == NULL, is_last = p->rank == COORDINATOR;
    if (way == BY_EVENT && !is_first)
        must(cudaStreamWaitEvent(p->stream, p->event_before, 0), "wait for an event");
    if (way == BY_WORD && !is_first) /* flag 0: until it is round or later */
        on_word(p->wait_word, p->stream, p->words_before + 1, round);
    must(handover_step(p->stream, busy_ns[p->rank], p->words_before, to, round), "step");
    if (way == BY_EVENT && !is_last)
        must(cudaEventRecord(p->event, p->stream), "record");
    if (way == BY_WORD && !is_last)
        on_word(p->write_word, p->stream, p->words + 1, round);
    say(&p->board->enqueued[p->rank], round);
}

static void open_all(struct process *p, enum rank before) {
    struct board *board = p->board;
    must(cudaSetDevice(0), "GPU");
    p->wait_word = find("cuStreamWaitValue32");
    p->write_word = find("cuStreamWriteValue32");
    must(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking), "stream");
    must(cudaMalloc((void **)&p->words, 2 * sizeof *p->words), "memory");
    must(cudaMemset(p->words, 0, 2 * sizeof *p->words), "memory");
    must(cudaDeviceSynchronize(), "memory");
    must(cudaEventCreateWithFlags(&p->event, cudaEventDisableTiming | cudaEventInterprocess),
         "event");
    must(cudaIpcGetMemHandle(&board->words[p->rank], p->words), "handle of memory");
    must(cudaIpcGetEventHandle(&board->events[p->rank], p->event), "handle of an event");
    say(&board->is_open[p->rank], 1);
    if (before == RANKS)
        return;
    await(&board->is_open[before], 1);
    must(cudaIpcOpenMemHandle((void **)&p->words_before, board->words[before],
                              cudaIpcMemLazyEnablePeerAccess),
         "open memory");
    must(cudaIpcOpenEventHandle(&p->event_before, board->events[before]), "open an event");
}

/* A worker: steps as the coordinator says, until it says LEAVE. */
static void work(struct board *board, enum rank rank, enum rank before) {
    struct process p = {.board = board, .rank = rank};
    alarm(ALIVE_S); /* whoever it waits for may be gone */
    open_all(&p, before);
    say(&board->is_open[rank], 2);
    for (uint32_t round = 1;; round++) {
        await(&board->go[rank], round);
        if (atomic_load(&board->way) == LEAVE)
            break;
        enqueue(&p, round, p.words);
        must(cudaStreamSynchronize(p.stream), "step");
        say(&board->done[rank], round);
    }
    exit(0);
}

static pid_t start(struct board *board, enum rank rank, enum rank before) {
    pid_t pid = fork();
    if (pid == 0)
        work(board, rank, before);
    if (pid < 0) {
        perror("bench_handover: fork");
        exit(1);
    }
    return pid;
}

/* ---- rounds */

/* The workers' share of a round, up to where the coordinator may enqueue its own. */
static void begin_round(struct board *board, uint32_t round) {
    enum way way = (enum way)atomic_load(&board->way);
    say(&board->go[DRAFT], round);
    if (way != BY_WORD) /* an event is waited for as it was last recorded */
        await(way == BY_EVENT ? &board->enqueued[DRAFT] : &board->done[DRAFT], round);
    say(&board->go[TARGET], round);
    if (way != BY_WORD)
        await(way == BY_EVENT ? &board->enqueued[TARGET] : &board->done[TARGET], round);
}

/* us of a round beyond what its steps are busy for. */
static double run_round(struct process *p, uint32_t round, volatile uint32_t *hp_result) {
    int64_t begin_ns = ft_clock_now_ns();
    begin_round(p->board, round);
    enqueue(p, round, (uint32_t *)(uintptr_t)hp_result);
    while (*hp_result != round)
        if (*hp_result == HANDOVER_WRONG) {
            fprintf(stderr, "bench_handover: a step began before the one before it was over\n");
            exit(1);
        }
    int64_t took_ns = ft_clock_now_ns() - begin_ns;
    await(&p->board->done[DRAFT], round);
    await(&p->board->done[TARGET], round);
    must(cudaStreamSynchronize(p->stream), "decision");
    return (double)(took_ns - (int64_t)(busy_ns[0] + busy_ns[1] + busy_ns[2])) / 1e3;
}

/* The same three steps one behind another in one process: what starting them takes by itself. */
static double run_alone(struct process *p, uint32_t *words, volatile uint32_t *hp_result,
                        uint32_t round) {
    int64_t begin_ns = ft_clock_now_ns();
    must(handover_step(p->stream, busy_ns[DRAFT], NULL, words, round), "step");
    must(handover_step(p->stream, busy_ns[TARGET], words, words, round), "step");
    must(handover_step(p->stream, busy_ns[COORDINATOR], words, (uint32_t *)(uintptr_t)hp_result,
                       round),
         "step");
    while (*hp_result != round)
        ;
    int64_t took_ns = ft_clock_now_ns() - begin_ns;
    return (double)(took_ns - (int64_t)(busy_ns[0] + busy_ns[1] + busy_ns[2])) / 1e3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static void print_row(const char *name, double *us, size_t n) {
    qsort(us, n, sizeof *us, by_value);
    printf("| %s | %.1f | %.1f | %.1f |\n", name, us[n / 10], us[n / 2], us[n * 9 / 10]);
}

static double us[WAYS + 1][PASSES * ROUNDS_MAX];

static uint32_t compare(struct process *p, volatile uint32_t *hp_result, int rounds) {
    uint32_t round = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int way = 0; way < WAYS; way++) {
            atomic_store(&p->board->way, (unsigned)way);
            for (int i = 0; i < rounds; i++)
                us[way][pass * rounds + i] = run_round(p, ++round, hp_result);
        }
        for (int i = 0; i < rounds; i++) {
            *hp_result = 0;
            us[WAYS][pass * rounds + i] = run_alone(p, p->words, hp_result, 1);
        }
    }
    size_t n = (size_t)PASSES * (size_t)rounds;
    printf("| a round of three processes, us beyond its steps | p10 | p50 | p90 |\n"
           "|---|---|---|---|\n");
    for (int way = 0; way < WAYS; way++)
        print_row(way_names[way], us[way], n);
    print_row("one process, one stream", us[WAYS], n);
    return round;
}

/* ---- the whole */

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    if (argc > 2 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_handover [rounds, 1..%d]\n", ROUNDS_MAX);
        return 64;
    }
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("bench_handover: shared memory");
        return 1;
    }
    alarm(ALIVE_S);
    pid_t draft = start(board, DRAFT, RANKS), target = start(board, TARGET, DRAFT);
    struct process p = {.board = board, .rank = COORDINATOR};
    uint32_t *hp_result = NULL;
    open_all(&p, TARGET);
    must(cudaMallocHost((void **)&hp_result, sizeof *hp_result), "pinned memory");
    await(&board->is_open[DRAFT], 2);
    await(&board->is_open[TARGET], 2);
    struct cudaDeviceProp prop;
    must(cudaGetDeviceProperties(&prop, 0), "GPU");
    printf("%s\n\n", prop.name);
    uint32_t round = compare(&p, hp_result, rounds);
    atomic_store(&board->way, LEAVE);
    say(&board->go[DRAFT], round + 1);
    say(&board->go[TARGET], round + 1);
    waitpid(draft, NULL, 0);
    waitpid(target, NULL, 0);
    return 0;
}
