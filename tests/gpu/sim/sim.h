/* sim: kernels on the host: every thread of every block is a fiber, switched where a kernel waits
 * for others, in an order drawn from a seed.
 * Owns:    the blocks and shared memory of a launch while it runs; launches that are held.
 * Runs in: tests, one thread.
 * Never:   says anything of speed, or of writes that a card may show late: its memory is in order.
 */
#ifndef TESTS_GPU_SIM_H
#define TESTS_GPU_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sim_result {
    int is_stuck;      /* threads waited for what nobody would do */
    uint64_t switches; /* of fibers */
};

/* Of the order in which threads run from now on. */
void sim_seed(uint64_t seed);
/* One warp of each block gets on once where it could have so many times, from now on; 0: each block
 * has a warp of its own that is a little slow, or none. */
void sim_starve(uint32_t warp, uint32_t seldom);
/* Launches after sim_hold run together at sim_run, on n_places processors with room for one block
 * each: blocks are dealt out in an order drawn from the seed, of all grids. */
void sim_hold(void);
struct sim_result sim_run(int32_t n_places);
/* Result of the latest launch that was not held. */
struct sim_result sim_last(void);

#ifdef __cplusplus
}

/* What the shims of CUDA's headers are made of. */
struct sim_dim3 {
    unsigned x, y, z;
    sim_dim3(unsigned ax = 1, unsigned ay = 1, unsigned az = 1) : x(ax), y(ay), z(az) {
    }
};
char *sim_shared(void);
void sim_relax(void);
uint64_t sim_now_ns(void);
void sim_barrier(int32_t number, int32_t n);
/* What each lane of the warp has brought. */
const uint64_t *sim_exchange(uint64_t value);
void sim_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);
void sim_fetch_start(void *shared, const void *global);
void sim_fetch_part(void *shared, const void *global, size_t n, size_t size);
void sim_fetch_commit(void);
/* For all groups but the last n. */
void sim_fetch_wait(uint32_t n);
uint32_t sim_cluster_rank(void);
uint32_t sim_cluster_size(void);
char *sim_shared_of(uint32_t rank);
void sim_cluster_arrive(void);
void sim_cluster_wait(void);
void sim_store_there(float *own, uint32_t rank, const void *from, size_t bytes, uint64_t *word);
void sim_turn_setup(uint64_t *word, uint32_t n);
void sim_turn_arrive(uint64_t *word, uint32_t bytes);
void sim_turn_arrive_there(uint64_t *word, uint32_t rank);
void sim_turn_wait(uint64_t *word, uint32_t parity);
struct ft_whole_map;
void sim_chunks_start(void *shared, const struct ft_whole_map *map, int32_t row, int32_t column,
                      int32_t n, uint64_t *word);
void sim_bulk_start(void *shared, const void *global, uint32_t bytes, uint64_t *word);
void sim_box_start(void *shared, const struct ft_whole_map *map, int32_t row, int32_t column,
                   uint64_t *word);
#endif
#endif
