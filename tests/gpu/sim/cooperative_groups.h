/* cooperative_groups: clusters of blocks, as far as the kernels use them, for a C++ compiler.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   is seen by a build for a card. */
#ifndef TESTS_GPU_SIM_COOPERATIVE_GROUPS_H
#define TESTS_GPU_SIM_COOPERATIVE_GROUPS_H

#include "sim.h"

namespace cooperative_groups {
struct cluster_group {
    unsigned num_blocks() const {
        return sim_cluster_size();
    }
    unsigned block_rank() const {
        return sim_cluster_rank();
    }
    void sync() const {
        sim_cluster_arrive();
        sim_cluster_wait();
    }
    /* The place in another block's memory that p has in this one's. */
    template <class T> T *map_shared_rank(T *p, unsigned rank) const {
        return (T *)(sim_shared_of(rank) + ((char *)p - sim_shared()));
    }
};
static inline cluster_group this_cluster() {
    return {};
}
} // namespace cooperative_groups

#endif
