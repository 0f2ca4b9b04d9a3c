/* outages: what goes wrong, as rows of a table that the suite and the soak run.
 * Owns:    what a row keeps between its begin and its end.
 * Runs in: tests.
 * Never:   leaves anything broken behind: after end all is there again. */
#ifndef TEST_OUTAGES_H
#define TEST_OUTAGES_H

#include "support/load.h"

struct outage {
    const char *name;
    void (*begin)(struct load *load);
    int ms; /* that it lasts */
    void (*end)(struct load *load);
};

extern const struct outage outages[];
extern const size_t n_outages;

/* Open file descriptors, and bytes in memory, of a process of the cluster. */
int outage_descriptors(const struct cluster *cluster, enum cluster_role role);
size_t outage_memory(const struct cluster *cluster, enum cluster_role role);

#endif
