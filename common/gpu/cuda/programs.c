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

/* In a free place, or in that of the one that was used longest ago. */
static void keep(struct ft_cuda_programs *programs, cudaGraphExec_t graph) {
    struct program *oldest = &programs->programs[0];
    for (size_t i = 1; i < FT_CUDA_PROGRAMS_MAX; i++)
        if (programs->programs[i].used < oldest->used)
            oldest = &programs->programs[i];
    if (oldest->graph != NULL)
        cudaGraphExecDestroy(oldest->graph); /* one that runs is destroyed when it has run */
    *oldest = (struct program){programs->noting, graph, ++programs->clock};
    programs->hashes[oldest - programs->programs] = hash_of(&programs->noting);
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

static bool start_noting(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                         const struct ft_device_key *key, bool for_later, int *error) {
    *error = (int)cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (*error != (int)cudaSuccess)
        return false;
    programs->noting = *key;
    programs->state = for_later ? NOTING_FOR_LATER : NOTING;
    return true;
}

bool ft_programs_begin(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                       const struct ft_device_key *key, int *error) {
    struct program *p = find(programs, key);
    *error = cudaSuccess;
    if (p != NULL) {
        p->used = ++programs->clock;
        *error = (int)cudaGraphLaunch(p->graph, stream);
        return true;
    }
    if (take_seen(programs, key))
        start_noting(programs, stream, key, false, error);
    else
        programs->seen[programs->n_seen++ % SEEN_MAX] = *key;
    return false;
}

bool ft_programs_note(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                      const struct ft_device_key *key, int *error) {
    *error = cudaSuccess;
    if (find(programs, key) != NULL)
        return false;
    take_seen(programs, key);
    return start_noting(programs, stream, key, true, error);
}

int ft_programs_end(struct ft_cuda_programs *programs, struct CUstream_st *stream, bool is_sound) {
    bool for_later = programs->state == NOTING_FOR_LATER;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t program = NULL;
    if (programs->state == IDLE)
        return cudaSuccess;
    programs->state = IDLE;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (error == cudaSuccess && is_sound)
        error = cudaGraphInstantiate(&program, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (error == cudaSuccess && program != NULL)
        error = for_later ? cudaGraphUpload(program, stream) : cudaGraphLaunch(program, stream);
    if (error != cudaSuccess)
        (void)cudaGetLastError(); /* it is reported, and harms nothing that comes later */
    if (error == cudaSuccess && program != NULL)
        keep(programs, program);
    else if (program != NULL)
        cudaGraphExecDestroy(program);
    return (int)error;
}
