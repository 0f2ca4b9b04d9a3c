/* fake_gpu: a device whose memory is said not to be the host's, for what is done with GPUs where
 * there is none: it copies, shares memory within this process, and chooses as spec does. Owns:
 * nothing but what is allocated from it. Runs in: tests. Never:   computes a model. */
#ifndef TESTS_SUPPORT_FAKE_GPU_H
#define TESTS_SUPPORT_FAKE_GPU_H

#include "common/gpu/device.h"

struct fake_gpu {
    struct ft_device device;
    const char *uuid;
    bool is_stale;  /* shared memory cannot be opened */
    bool is_broken; /* nothing that is chosen arrives, and sync says so */
    int n_open;     /* shared memory that is open */
};

/* Ready to use as &fake->device; there is nothing to close. */
void fake_gpu_init(struct fake_gpu *fake, const char *uuid);

#endif
