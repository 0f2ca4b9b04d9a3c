#include "sim.h"

#include "common/gpu/kernels/map.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

#define N_PROCESSORS 3
#define STACK_BYTES (128 << 10)
#define SHARED_BYTES (227 << 10)
#define BARRIERS 16
#define WARP 32
#define SELDOM 16 /* one turn in so many: a slow warp's */
/* An argument of a kernel: passed in memory, so that a larger type than the kernel's will do. */
#define ARGS_BYTES (12 << 10)
/* Looks at a word without anybody getting any further, after which nobody ever will. */
#define RELAXES_MAX 3000000

struct alignas(64) args {
    char bytes[ARGS_BYTES];
};
typedef void (*kernel_fn)(struct args);

struct block;
/* Blocks that run together and write into each other's memory. */
struct cluster {
    std::vector<block *> blocks; /* NULL: has ended */
    uint32_t n_arrived, n_over;  /* threads at the barrier; barriers before it */
};
struct fetch {
    void *to;
    const void *from;
    size_t bytes, size; /* what is missing becomes 0 */
};
/* A word that turns are counted in, and the turn that goes on. */
struct turn {
    uint64_t n_over; /* turns before it */
    uint32_t n, n_arrived;
    int64_t bytes; /* that are to come and have not been started */
    std::vector<fetch> fetches;
};
enum fiber_state { READY, WAITING, DONE };

struct fiber {
    void *sp;
    char *stack;
    struct block *block;
    dim3 thread, at;
    enum fiber_state state;
    std::vector<fetch> fetches; /* on their way */
    std::vector<size_t> groups; /* where each of them ends */
    uint32_t n_arrived;         /* at barriers of the cluster */
};

/* What the lanes of a warp have put down for something that all of them do. */
struct warp {
    int n_in;
    uint64_t brought[WARP], exchanged[WARP];
    float *d[WARP];
    const uint32_t *a[WARP], *b[WARP];
};

struct barrier {
    int32_t n_in;
    std::vector<fiber *> waiting;
};

struct launch {
    kernel_fn kernel;
    struct args args;
    dim3 grid, block;
    size_t shared_bytes;
    uint32_t next_block, n_blocks, n_cluster;
};

struct block {
    struct launch *launch;
    std::vector<fiber> fibers;
    std::vector<warp> warps;
    barrier barriers[BARRIERS];
    char *shared;
    uint32_t n_done;
    std::shared_ptr<cluster> beside;
    uint32_t rank; /* in it */
    uint32_t slow; /* a warp that seldom gets on, or none of them */
    std::map<const uint64_t *, turn> turns;
};

extern "C" void sim_switch(void **save, void *to);
/* The registers that a callee keeps, then the other stack. */
__asm__(".text\n.globl sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size sim_switch,.-sim_switch\n");

sim_dim3 threadIdx, blockIdx, blockDim, gridDim;

static struct {
    void *scheduler_sp;
    fiber *current;
    uint64_t random, now_ns, switches, relaxes;
    uint32_t starved, seldom; /* see sim_starve; seldom 0: none */
    bool is_holding;
    std::deque<launch> held;
    std::vector<char *> stacks;
    struct sim_result last;
} sim = {};

static uint64_t draw(void) {
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u;
    return sim.random >> 33;
}

extern "C" void sim_seed(uint64_t seed) {
    sim.random = seed * 2 + 1;
    draw();
}

extern "C" void sim_starve(uint32_t warp, uint32_t seldom) {
    sim.starved = warp;
    sim.seldom = seldom;
}

/* ---- fibers */

static void leave(void) {
    sim_switch(&sim.current->sp, sim.scheduler_sp);
}
static void progress(void) {
    sim.relaxes = 0;
}

static void fiber_main(void) {
    fiber *self = sim.current;
    self->block->launch->kernel(self->block->launch->args);
    self->state = DONE;
    self->block->n_done++;
    progress();
    for (;;)
        leave();
}

static char *take_stack(void) {
    if (!sim.stacks.empty()) {
        char *stack = sim.stacks.back();
        sim.stacks.pop_back();
        return stack;
    }
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) {
        perror("sim: stacks");
        abort();
    }
    return (char *)stack;
}

static void start_fiber(fiber &f) {
    f.stack = take_stack();
    void **top = (void **)(f.stack + STACK_BYTES);
    *--top = NULL; /* as if fiber_main had been called */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    f.sp = top;
    f.state = READY;
}

static std::unique_ptr<block> start_block(launch *of, const std::shared_ptr<cluster> &beside) {
    std::unique_ptr<block> b(new block());
    b->beside = beside;
    b->rank = (uint32_t)beside->blocks.size();
    beside->blocks.push_back(b.get());
    uint32_t at = of->next_block++, n = of->block.x;
    b->launch = of;
    b->fibers.resize(n);
    b->warps.resize((n + WARP - 1) / WARP);
    b->slow = (uint32_t)(draw() % (2 * b->warps.size()));
    if (sim.seldom > 0)
        b->slow = sim.starved;
    b->shared = (char *)aligned_alloc(1024, SHARED_BYTES);
    memset(b->shared, 0xFF, SHARED_BYTES); /* NaN */
    dim3 place(at % of->grid.x, at / of->grid.x % of->grid.y, at / of->grid.x / of->grid.y);
    for (uint32_t i = 0; i < n; i++) {
        fiber &f = b->fibers[i];
        f.block = b.get();
        f.thread = dim3(i, 0, 0);
        f.at = place;
        start_fiber(f);
    }
    return b;
}

static void end_block(block &b) {
    for (fiber &f : b.fibers) {
        if (!f.fetches.empty())
            fprintf(stderr, "sim: a thread ended with fetches on their way\n"), abort();
        sim.stacks.push_back(f.stack);
    }
    b.beside->blocks[b.rank] = NULL;
    for (const auto &word : b.turns)
        if (!word.second.fetches.empty())
            fprintf(stderr, "sim: a block ended with copies on their way\n"), abort();
    free(b.shared);
}

/* Run the lanes of a warp in turn, each until it waits. */
static void run_warp(block &b, uint32_t warp) {
    for (uint32_t i = warp * WARP; i < (warp + 1) * WARP && i < b.fibers.size(); i++) {
        if (b.fibers[i].state != READY)
            continue;
        sim.current = &b.fibers[i];
        threadIdx = sim.current->thread;
        blockIdx = sim.current->at;
        blockDim = b.launch->block;
        gridDim = b.launch->grid;
        sim.switches++;
        sim_switch(&sim.scheduler_sp, sim.current->sp);
    }
}

static bool has_ready(const block &b, uint32_t warp) {
    for (uint32_t i = warp * WARP; i < (warp + 1) * WARP && i < b.fibers.size(); i++)
        if (b.fibers[i].state == READY)
            return true;
    return false;
}

/* Blocks in places; another starts where one has ended. */
static struct sim_result run(std::vector<launch *> launches, int32_t n_places) {
    std::vector<std::unique_ptr<block>> blocks;
    struct sim_result result = {0, 0};
    uint32_t seldom = sim.seldom > 0 ? sim.seldom : SELDOM;
    sim.switches = 0;
    progress();
    for (;;) {
        while ((int32_t)blocks.size() < n_places && !launches.empty()) {
            size_t which = draw() % launches.size();
            std::shared_ptr<cluster> beside(new cluster());
            for (uint32_t i = 0; i < launches[which]->n_cluster; i++)
                blocks.push_back(start_block(launches[which], beside));
            if (launches[which]->next_block == launches[which]->n_blocks)
                launches.erase(launches.begin() + (long)which);
        }
        if (blocks.empty())
            break;
        size_t at = draw() % blocks.size();
        block &b = *blocks[at];
        bool is_any = false;
        uint32_t n_warps = (uint32_t)b.warps.size(), first = (uint32_t)(draw() % n_warps);
        /* some warps of the block go on, from a random one */
        for (uint32_t i = 0, n = 1 + (uint32_t)(draw() % n_warps); i < n_warps && n > 0; i++) {
            uint32_t warp = (first + i) % n_warps;
            if (!has_ready(b, warp) || (warp == b.slow && draw() % seldom != 0))
                continue;
            run_warp(b, warp);
            is_any = true;
            n--;
        }
        if (!is_any && b.n_done < b.fibers.size())
            sim.relaxes += 1000;
        if (b.n_done == b.fibers.size()) {
            end_block(b);
            blocks.erase(blocks.begin() + (long)at);
            progress();
        }
        if (sim.relaxes > RELAXES_MAX) {
            result.is_stuck = 1;
            break; /* its blocks' memory is gone: the test fails */
        }
    }
    result.switches = sim.switches;
    return result;
}

/* ---- what a thread does */

char *sim_shared(void) {
    return sim.current->block->shared;
}

void sim_relax(void) {
    sim.relaxes++;
    leave();
}

uint64_t sim_now_ns(void) {
    return sim.now_ns += 7;
}

void sim_barrier(int32_t number, int32_t n) {
    block &b = *sim.current->block;
    barrier &at = b.barriers[number];
    if (number == 0)
        n = (int32_t)b.fibers.size();
    if (++at.n_in < n) {
        sim.current->state = WAITING;
        at.waiting.push_back(sim.current);
        leave();
        return;
    }
    for (fiber *f : at.waiting)
        f->state = READY;
    at.waiting.clear();
    at.n_in = 0;
    progress();
    leave();
}

/* Whether this lane is the last of its warp to come: it then does what all came for and calls
 * warp_done. The others wait until it has. */
static bool is_last_lane(warp &w) {
    progress();
    if (++w.n_in == WARP)
        return true;
    sim.current->state = WAITING;
    leave();
    return false;
}
static void warp_done(warp &w, block &b, uint32_t thread) {
    w.n_in = 0;
    for (uint32_t i = thread / WARP * WARP; i < (thread / WARP + 1) * WARP; i++)
        b.fibers[i].state = READY;
}

const uint64_t *sim_exchange(uint64_t value) {
    uint32_t thread = sim.current->thread.x, lane = thread % WARP;
    block &b = *sim.current->block;
    warp &w = b.warps[thread / WARP];
    w.brought[lane] = value;
    if (is_last_lane(w)) {
        memcpy(w.exchanged, w.brought, sizeof w.exchanged);
        warp_done(w, b, thread);
    }
    return w.exchanged;
}

static float bf16(uint32_t pair, int which) {
    return __uint_as_float(which == 0 ? pair << 16 : pair & 0xFFFF0000u);
}

/* Products in order of columns, each added in f32. */
static void multiply(warp &w) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < WARP; lane++) {
        int g = lane / 4, k = lane % 4 * 2;
        for (int i = 0; i < 2; i++) {
            a[g][k + i] = bf16(w.a[lane][0], i);
            a[g + 8][k + i] = bf16(w.a[lane][1], i);
            a[g][k + 8 + i] = bf16(w.a[lane][2], i);
            a[g + 8][k + 8 + i] = bf16(w.a[lane][3], i);
            b[k + i][g] = bf16(w.b[lane][0], i);
            b[k + 8 + i][g] = bf16(w.b[lane][1], i);
        }
    }
    float d[16][8];
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = w.d[lane][i];
    for (int out = 0; out < 16; out++)
        for (int k = 0; k < 16; k++)
            for (int row = 0; row < 8; row++)
                d[out][row] += a[out][k] * b[k][row];
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            w.d[lane][i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

void sim_mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    uint32_t thread = sim.current->thread.x, lane = thread % WARP;
    block &at = *sim.current->block;
    warp &w = at.warps[thread / WARP];
    w.d[lane] = d;
    w.a[lane] = a;
    w.b[lane] = b;
    if (is_last_lane(w)) {
        multiply(w);
        warp_done(w, at, thread);
    }
}

static struct turn &turn_of(struct block &b, const uint64_t *word) {
    auto found = b.turns.find(word);
    if (found == b.turns.end())
        fprintf(stderr, "sim: a word that was not set up\n"), abort();
    return found->second;
}
static struct turn &turn_at(const uint64_t *word) {
    return turn_of(*sim.current->block, word);
}
void sim_turn_setup(uint64_t *word, uint32_t n) {
    sim.current->block->turns[word] = {0, n, 0, 0, {}};
}
static void end_turn(struct turn &turn) {
    if (turn.n_arrived < turn.n || turn.bytes != 0)
        return;
    for (const fetch &f : turn.fetches)
        memcpy(f.to, f.from, f.bytes);
    turn.fetches.clear();
    turn.n_arrived = 0;
    turn.n_over++;
    progress();
}
static void arrive(struct turn &turn, uint32_t bytes) {
    if (turn.n_arrived++ == turn.n)
        fprintf(stderr, "sim: more arrive than a turn has\n"), abort();
    turn.bytes += bytes;
    if (turn.fetches.empty()) /* else it ends when somebody has waited for it */
        end_turn(turn);
}
void sim_turn_arrive(uint64_t *word, uint32_t bytes) {
    arrive(turn_at(word), bytes);
}
/* Another block of the cluster, and what lies there in the place of what lies here. */
static struct block &block_there(uint32_t rank) {
    struct block *b = rank < sim_cluster_size() ? sim.current->block->beside->blocks[rank] : NULL;
    if (b == NULL)
        fprintf(stderr, "sim: memory of a block that is not there\n"), abort();
    return *b;
}
static uint64_t *word_there(const struct block &there, const uint64_t *word) {
    return (uint64_t *)(there.shared + ((char *)(uintptr_t)word - sim.current->block->shared));
}
void sim_turn_arrive_there(uint64_t *word, uint32_t rank) {
    struct block &there = block_there(rank);
    arrive(turn_of(there, word_there(there, word)), 0);
}
static bool is_turn_over(uint64_t *word, uint32_t parity) {
    struct turn &turn = turn_at(word);
    if (turn.n_over % 2 == parity)
        end_turn(turn);
    return turn.n_over % 2 != parity;
}
void sim_turn_wait(uint64_t *word, uint32_t parity) {
    while (!is_turn_over(word, parity))
        sim_relax();
}
/* What was there is gone at once, what comes is there when it has been waited for. */
static void start_copy(void *shared, const void *from, uint64_t *word) {
    memset(shared, 0xFF, 16);
    turn_at(word).fetches.push_back({shared, from, 16, 16});
}
void sim_fetch_part(void *shared, const void *global, size_t n, size_t size) {
    if ((uintptr_t)shared % size != 0 || (uintptr_t)global % size != 0 || n > size)
        fprintf(stderr, "sim: a fetch that is not aligned\n"), abort();
    memset(shared, 0xFF, size);
    sim.current->fetches.push_back({shared, global, n, size});
}
void sim_fetch_start(void *shared, const void *global) {
    sim_fetch_part(shared, global, 16, 16);
}
void sim_fetch_commit(void) {
    sim.current->groups.push_back(sim.current->fetches.size());
}
void sim_fetch_wait(uint32_t n) {
    fiber &own = *sim.current;
    if (own.groups.size() <= n)
        return;
    auto last = own.groups.end() - n - 1;
    ptrdiff_t end = (ptrdiff_t)*last;
    for (auto f = own.fetches.begin(); f != own.fetches.begin() + end; f++) {
        memset(f->to, 0, f->size);
        memcpy(f->to, f->from, f->bytes);
    }
    own.fetches.erase(own.fetches.begin(), own.fetches.begin() + end);
    own.groups.erase(own.groups.begin(), last + 1);
    for (size_t &group : own.groups)
        group -= (size_t)end;
}
uint32_t sim_cluster_rank(void) {
    return sim.current->block->rank;
}
uint32_t sim_cluster_size(void) {
    return (uint32_t)sim.current->block->beside->blocks.size();
}
char *sim_shared_of(uint32_t rank) {
    return block_there(rank).shared;
}
void sim_cluster_arrive(void) {
    struct cluster &c = *sim.current->block->beside;
    if (sim.current->n_arrived++ != c.n_over)
        fprintf(stderr, "sim: a thread came to the next barrier of a cluster too early\n"), abort();
    c.n_arrived++;
    if (c.n_arrived == c.blocks.size() * sim.current->block->fibers.size()) {
        c.n_arrived = 0;
        c.n_over++;
        progress();
    }
}
void sim_cluster_wait(void) {
    while (sim.current->block->beside->n_over < sim.current->n_arrived)
        sim_relax();
}
void sim_store_there(float *own, uint32_t rank, const void *from, size_t bytes, uint64_t *word) {
    struct block &to = block_there(rank);
    ptrdiff_t at = (char *)own - sim.current->block->shared;
    if (at < 0 || at + (ptrdiff_t)bytes > SHARED_BYTES || at % (ptrdiff_t)bytes != 0)
        fprintf(stderr, "sim: a store past a block's memory, or not aligned\n"), abort();
    struct turn &turn = turn_of(to, word_there(to, word));
    memcpy(to.shared + at, from, bytes);
    turn.bytes -= (int64_t)bytes;
    end_turn(turn);
}
void sim_bulk_start(void *shared, const void *global, uint32_t bytes, uint64_t *word) {
    if ((uintptr_t)shared % 16 != 0 || (uintptr_t)global % 16 != 0 || bytes % 16 != 0)
        fprintf(stderr, "sim: a copy that is not aligned\n"), abort();
    for (uint32_t i = 0; i < bytes; i += 16)
        start_copy((char *)shared + i, (const char *)global + i, word);
    turn_at(word).bytes -= bytes;
}
/* Vectors of a matrix that a map describes; zero past its ends. */
static const void *vector_of(const struct ft_whole_map *map, int32_t row, int32_t column) {
    static const uint4 zero = {};
    int32_t n_out = (int32_t)map->words[1], n_in = (int32_t)map->words[2];
    return row < n_out && column < n_in
               ? (const char *)map->words[0] + ((int64_t)row * n_in + column) * 2
               : (const char *)&zero;
}
void sim_chunks_start(void *shared, const struct ft_whole_map *map, int32_t row, int32_t column,
                      int32_t n, uint64_t *word) {
    if ((uintptr_t)shared % 512 != 0 || column % 32 != 0 || map->words[3] != (uint64_t)n)
        fprintf(stderr, "sim: chunks that are not aligned, or not those of the map\n"), abort();
    for (int32_t c = 0; c < n; c++)
        for (int32_t r = 0; r < 64; r++)
            for (int32_t i = 0; i < 4; i++)
                start_copy((char *)shared + (c * 64 + r) * 64 + (i ^ r / 2 % 4) * 16,
                           vector_of(map, row + r, column + c * 32 + i * 8), word);
    turn_at(word).bytes -= n * 64 * 64;
}
void sim_box_start(void *shared, const struct ft_whole_map *map, int32_t row, int32_t column,
                   uint64_t *word) {
    if ((uintptr_t)shared % 1024 != 0 || column % 64 != 0)
        fprintf(stderr, "sim: a box that is not aligned\n"), abort();
    int32_t n = (int32_t)map->words[3];
    for (int32_t group = 0; group < n; group++)
        for (int32_t r = 0; r < 8; r++)
            for (int32_t i = 0; i < 8; i++)
                start_copy((char *)shared + (r * n + group) * 128 + (i ^ group % 8) * 16,
                           vector_of(map, row + r, column + group * 64 + i * 8), word);
    turn_at(word).bytes -= n * 8 * 128;
}

/* ---- what the host does */

cudaError_t k_map_make(struct ft_whole_map *map, const void *weight, int32_t n_out, int32_t n_in,
                       int32_t n_columns) {
    if (n_in % 64 != 0 || n_columns % 64 != 0 || (uintptr_t)weight % 16 != 0)
        return cudaErrorInvalidValue;
    *map = {{(uint64_t)weight, (uint64_t)n_out, (uint64_t)n_in, (uint64_t)(n_columns / 64)}};
    return cudaSuccess;
}

cudaError_t k_map_make_chunks(struct ft_whole_map *map, const void *weight, int32_t n_out,
                              int32_t n_in, int32_t box_rows, int32_t n_chunks) {
    if (box_rows != 64)
        return cudaErrorInvalidValue;
    cudaError_t error = k_map_make(map, weight, n_out, n_in, 64);
    map->words[3] = (uint64_t)n_chunks;
    return error;
}

/* Bytes that may be read from there: an argument lies on the stack, and how long it is nobody says.
 */
static size_t room_behind(const void *arg) {
    pthread_attr_t attr;
    void *stack;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &attr) != 0 ||
        pthread_attr_getstack(&attr, &stack, &bytes) != 0)
        abort();
    pthread_attr_destroy(&attr);
    ptrdiff_t room = (char *)stack + bytes - (const char *)arg;
    return room > 0 && room < ARGS_BYTES ? (size_t)room : ARGS_BYTES;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args) {
    launch l = {};
    l.kernel = (kernel_fn)kernel;
    memcpy(l.args.bytes, args[0], room_behind(args[0]));
    l.grid = config->gridDim;
    l.block = config->blockDim;
    l.shared_bytes = config->dynamicSmemBytes;
    l.n_blocks = l.grid.x * l.grid.y * l.grid.z;
    l.n_cluster = 1;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
            l.n_cluster = config->attrs[i].val.clusterDim.x;
    if (l.shared_bytes > SHARED_BYTES || l.n_cluster == 0 || l.grid.x % l.n_cluster != 0 ||
        l.n_blocks == 0 || l.block.x == 0)
        return cudaErrorInvalidValue;
    sim.held.push_back(l);
    if (sim.is_holding)
        return cudaSuccess;
    /* a kernel with static shared memory may have one block at a time, one with a ring has all */
    std::vector<launch *> one = {&sim.held.back()};
    int32_t n_places = l.n_cluster > 1                ? 2 * (int32_t)l.n_cluster
                       : l.shared_bytes > (200 << 10) ? (int32_t)l.n_blocks
                                                      : 1;
    sim.last = run(one, n_places);
    sim.held.pop_back();
    return sim.last.is_stuck ? cudaErrorLaunchTimeout : cudaSuccess;
}

extern "C" void sim_hold(void) {
    sim.is_holding = true;
}
extern "C" struct sim_result sim_run(int32_t n_places) {
    std::vector<launch *> launches;
    for (launch &l : sim.held)
        launches.push_back(&l);
    struct sim_result result = run(launches, n_places);
    sim.held.clear();
    sim.is_holding = false;
    return result;
}
extern "C" struct sim_result sim_last(void) {
    return sim.last;
}

extern "C" cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int) {
    *value = N_PROCESSORS;
    return cudaSuccess;
}
extern "C" cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = aligned_alloc(256, (bytes + 511) / 256 * 256);
    return *out == NULL ? cudaErrorInvalidValue : cudaSuccess;
}
extern "C" cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}
extern "C" cudaError_t cudaMemset(void *memory, int byte, size_t bytes) {
    memset(memory, byte, bytes);
    return cudaSuccess;
}
extern "C" cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}
extern "C" const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess              ? "no error"
           : error == cudaErrorLaunchTimeout ? "a kernel that waits for what nobody will do"
                                             : "a value that is not allowed";
}
