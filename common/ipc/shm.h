/* shm: shared-memory objects under names that nobody can guess, each locked by who made it, so that
 * the name of one whose maker was killed can be told from all others.
 * Owns:    nothing; a descriptor belongs to whom it was given.
 * Runs in: workers.
 * Never:   removes a name whose maker holds the descriptor, in whatever namespace it runs. */
#ifndef FT_IPC_SHM_H
#define FT_IPC_SHM_H

#include "common/ipc/region.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_SHM_PREFIX "/foretoken-"

/* A fresh object, empty, mode 0600. Its lock is held until the descriptor is closed: not before the
 * name is unlinked. -1: errno says why. */
int ft_shm_open_fresh(char name[FT_REGION_NAME_MAX]);
/* Unlink the names of this user's objects that nobody holds. What is in use elsewhere stays in
 * memory; what else goes wrong leaves a name for the next time. */
void ft_shm_sweep(void);

#ifdef __cplusplus
}
#endif
#endif
