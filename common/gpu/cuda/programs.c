#include "common/gpu/cuda/programs.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* Keys that came once, the latest of them: most are of prompts and never come again. */
#define SEEN_MAX 64

struct program {
    struct ft_device_key key;
    cudaGraphExec_t graph; /* NULL: free */
    uint64_t used;         /* 0: free */
};

struct ft_cuda_programs {
    /* Of the programs' keys, side by side: each step looks through them. 0: free. */
    uint64_t hashes[FT_CUDA_PROGRAMS_MAX];
    struct program programs[FT_CUDA_PROGRAMS_MAX];
    struct ft_device_key seen[SEEN_MAX]; /* a ring */
    uint64_t n_seen;
    uint64_t failed[FT_CUDA_PROGRAMS_MAX]; /* a ring: hashes of keys that became no program */
    uint64_t n_failed;
    enum { IDLE, NOTING, NOTING_FOR_LATER } state;
    struct ft_device_key noting; /* what is being noted */
    uint64_t clock;
};

struct ft_cuda_programs *ft_programs_create(void) {
    return calloc(1, sizeof(struct ft_cuda_programs));
}

void ft_programs_destroy(struct ft_cuda_programs **programs) {
    if (*programs == NULL)
        return;
    for (size_t i = 0; i < FT_CUDA_PROGRAMS_MAX; i++)
        if ((*programs)->programs[i].graph != NULL)
            cudaGraphExecDestroy((*programs)->programs[i].graph);
    free(*programs);
    *programs = NULL;
}

static bool is_same(const struct ft_device_key *a, const struct ft_device_key *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* FNV-1a over the numbers; never 0. */
static uint64_t hash_of(const struct ft_device_key *key) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < sizeof key->at / sizeof key->at[0]; i++) {
        hash = (hash ^ (uint64_t)key->at[i]) * 0x100000001B3u;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

static struct program *find(struct ft_cuda_programs *programs, const struct ft_device_key *key) {
    uint64_t hash = hash_of(key);
    for (size_t i = 0; i < FT_CUDA_PROGRAMS_MAX; i++)
        if (programs->hashes[i] == hash && is_same(&programs->programs[i].key, key))
            return &programs->programs[i];
    return NULL;
}

/* A key that became no program is left alone: what a program needs, GPU memory above all, is not
 * there, and each attempt costs more than the operations do. */
static void remember_failed(struct ft_cuda_programs *programs, const struct ft_device_key *key) {
    programs->failed[programs->n_failed++ % FT_CUDA_PROGRAMS_MAX] = hash_of(key);
}

static uint64_t *find_failed(struct ft_cuda_programs *programs, const struct ft_device_key *key) {
    uint64_t hash = hash_of(key);
    for (uint64_t i = 0; i < programs->n_failed && i < FT_CUDA_PROGRAMS_MAX; i++)
        if (programs->failed[i] == hash)
            return &programs->failed[i];
    return NULL;
}

static void forget(struct ft_cuda_programs *programs, struct program *program) {
    cudaGraphExecDestroy(program->graph); /* one that runs is destroyed when it has run */
    programs->hashes[program - programs->programs] = 0;
    *program = (struct program){0};
}

/* In a free place, or in that of the one that was used longest ago. */
static void keep(struct ft_cuda_programs *programs, cudaGraphExec_t graph) {
    struct program *oldest = &programs->programs[0];
    for (size_t i = 1; i < FT_CUDA_PROGRAMS_MAX; i++)
        if (programs->programs[i].used < oldest->used)
            oldest = &programs->programs[i];
    if (oldest->graph != NULL)
        forget(programs, oldest);
    *oldest = (struct program){programs->noting, graph, ++programs->clock};
    programs->hashes[oldest - programs->programs] = hash_of(&programs->noting);
    uint64_t *failed = find_failed(programs, &programs->noting);
    if (failed != NULL)
        *failed = 0; /* no hash */
}

/* Whether the key came before; it is forgotten then. */
static bool take_seen(struct ft_cuda_programs *programs, const struct ft_device_key *key) {
    for (uint64_t i = 0; i < programs->n_seen && i < SEEN_MAX; i++)
        if (is_same(&programs->seen[i], key)) {
            programs->seen[i] = (struct ft_device_key){{0}}; /* no key: steps have rows */
            return true;
        }
    return false;
}

static cudaError_t start_noting(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                                const struct ft_device_key *key, bool for_later) {
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) {
        (void)cudaGetLastError(); /* nothing else is harmed */
        return error;
    }
    programs->noting = *key;
    programs->state = for_later ? NOTING_FOR_LATER : NOTING;
    return cudaSuccess;
}

/* Whether it runs; one that cannot be started is not kept. */
static bool start(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                  struct program *program) {
    program->used = ++programs->clock;
    if (cudaGraphLaunch(program->graph, stream) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    remember_failed(programs, &program->key);
    forget(programs, program);
    return false;
}

bool ft_programs_begin(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                       const struct ft_device_key *key) {
    struct program *p = find(programs, key);
    if (p != NULL)
        return start(programs, stream, p);
    if (find_failed(programs, key) != NULL)
        return false;
    if (!take_seen(programs, key))
        programs->seen[programs->n_seen++ % SEEN_MAX] = *key;
    else if (start_noting(programs, stream, key, false) != cudaSuccess)
        remember_failed(programs, key);
    return false;
}

bool ft_programs_note(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                      const struct ft_device_key *key, int *error) {
    *error = cudaSuccess;
    if (find(programs, key) != NULL)
        return false;
    take_seen(programs, key);
    *error = (int)start_noting(programs, stream, key, true);
    return *error == cudaSuccess;
}

bool ft_programs_end(struct ft_cuda_programs *programs, struct CUstream_st *stream, bool is_sound,
                     int *out) {
    bool for_later = programs->state == NOTING_FOR_LATER;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t program = NULL;
    *out = cudaSuccess;
    if (programs->state == IDLE)
        return true;
    programs->state = IDLE;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (error == cudaSuccess && is_sound)
        error = cudaGraphInstantiate(&program, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (error == cudaSuccess && program != NULL)
        error = for_later ? cudaGraphUpload(program, stream) : cudaGraphLaunch(program, stream);
    if (error != cudaSuccess)
        (void)cudaGetLastError(); /* it harms nothing that comes later */
    if (error == cudaSuccess && program != NULL)
        keep(programs, program);
    else if (program != NULL)
        cudaGraphExecDestroy(program);
    if (for_later || error == cudaSuccess || !is_sound) {
        *out = (int)error;
        return true;
    }
    remember_failed(programs, &programs->noting);
    return false;
}
