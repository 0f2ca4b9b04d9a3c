#include "common/gpu/cuda/programs.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* Batch sizes, draft lengths and context lengths in use at one time; some 100 kB each. */
#define PROGRAMS_MAX 128

struct program {
    struct ft_device_key key;
    cudaGraphExec_t graph; /* NULL: seen once */
    uint64_t used;         /* 0: free */
};

struct ft_cuda_programs {
    struct program programs[PROGRAMS_MAX];
    struct program *noting; /* NULL: nothing is being noted */
    uint64_t clock;
};

struct ft_cuda_programs *ft_programs_create(void) {
    return calloc(1, sizeof(struct ft_cuda_programs));
}

void ft_programs_destroy(struct ft_cuda_programs **programs) {
    if (*programs == NULL)
        return;
    for (size_t i = 0; i < PROGRAMS_MAX; i++)
        if ((*programs)->programs[i].graph != NULL)
            cudaGraphExecDestroy((*programs)->programs[i].graph);
    free(*programs);
    *programs = NULL;
}

/* The program of this key; one that was used longest ago is made anew for it. */
static struct program *find(struct ft_cuda_programs *programs, const struct ft_device_key *key) {
    struct program *oldest = &programs->programs[0];
    for (size_t i = 0; i < PROGRAMS_MAX; i++) {
        struct program *p = &programs->programs[i];
        if (p->used > 0 && memcmp(&p->key, key, sizeof *key) == 0)
            return p;
        if (p->used < oldest->used)
            oldest = p;
    }
    if (oldest->graph != NULL)
        cudaGraphExecDestroy(oldest->graph); /* one that runs is destroyed when it has run */
    *oldest = (struct program){.key = *key};
    return oldest;
}

bool ft_programs_begin(struct ft_cuda_programs *programs, struct CUstream_st *stream,
                       const struct ft_device_key *key, int *error) {
    struct program *p = find(programs, key);
    bool is_new = p->used == 0;
    p->used = ++programs->clock;
    *error = cudaSuccess;
    if (p->graph != NULL) {
        *error = cudaGraphLaunch(p->graph, stream);
        return true;
    }
    if (is_new)
        return false;
    *error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (*error == (int)cudaSuccess)
        programs->noting = p;
    return false;
}

int ft_programs_end(struct ft_cuda_programs *programs, struct CUstream_st *stream) {
    struct program *p = programs->noting;
    cudaGraph_t graph = NULL;
    if (p == NULL)
        return cudaSuccess;
    programs->noting = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(&p->graph, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    return (int)(error == cudaSuccess ? cudaGraphLaunch(p->graph, stream) : error);
}
