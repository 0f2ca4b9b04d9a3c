/* device: where a model's numbers live and its operations run; one registry row per device.
 * Owns:    what alloc gave, until give_back, and what place made, until close.
 * Runs in: draft_worker, target_worker; loop thread only.
 * Never:   knows models or sequences: it moves bytes and runs the operations of ops.h. */
#ifndef FT_GPU_DEVICE_H
#define FT_GPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/gpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What every device starts with; an implementation embeds it first. */
struct ft_device {
    const struct ft_device_kind *kind;
};

struct ft_device_opts {
    int32_t n_threads;    /* CPU: threads of one step, the caller's included; 0: one per core */
    int32_t idle_spin_us; /* CPU: how long threads look for the next step before they sleep */
    bool without_scratch; /* no attention will be computed: spare its memory */
};

/* A good idle_spin_us: longer than the gap between two operations of a step, short enough that
 * an idle process costs nothing. */
#define FT_DEVICE_IDLE_SPIN_US 10

#define FT_DEVICE_TEXT_MAX 64
#define FT_DEVICE_UUID_MAX 48 /* "GPU-" and 36 characters, or "" */

/* Memory that other processes open, as they are told of it. */
struct ft_device_handle {
    unsigned char bytes[64];
};

/* What decides, beside device memory, what a sequence of operations does: shapes and addresses. */
struct ft_device_key {
    int64_t at[8];
};

/* More than eight functions: a device is memory and order of work, and neither half is of use
 * alone. */
struct ft_device_kind {
    const char *name; /* what stands before the first ':' of a device name */
    bool is_host;     /* its memory is the host's: operations may write where the host reads */
    int32_t n_programs_max; /* so many sequences of operations it notes; 0: none, ever */
    const struct ft_ops *ops;

    /* variant   what follows "name:", or "". fail FT_E_PROC_CONFIG: no such variant */
    enum ft_code (*check)(const char *variant, struct ft_err *err);
    /* fail FT_E_PROC_CONFIG as check; FT_E_PROC_OS: this machine has no such device */
    enum ft_code (*open)(struct ft_device **out, const char *variant,
                         const struct ft_device_opts *opts, struct ft_err *err);
    void (*close)(struct ft_device *device);
    /* One line for people: "cpu avx512, 2 threads". */
    void (*describe)(const struct ft_device *device, char text[FT_DEVICE_TEXT_MAX]);

    /* Zeroed device memory, aligned to 64; pages are taken when first written where the device
     * can. fail FT_E_PROC_MEMORY */
    enum ft_code (*alloc)(struct ft_device *device, size_t bytes, void **out, struct ft_err *err);
    /* Make host memory that never changes readable by the device: a copy, or the memory itself,
     * faulted in. It must stay as it is until close. fail FT_E_PROC_MEMORY */
    enum ft_code (*place)(struct ft_device *device, const void *host, size_t bytes,
                          const void **out, struct ft_err *err);
    /* Undo alloc; NULL is allowed. */
    void (*give_back)(struct ft_device *device, void *memory, size_t bytes);
    /* Copy host memory into device memory, in order with the operations. Host memory that is not
     * pinned may be written again, or given back, when copy returns: it has been taken over by
     * then. What is pinned is read when the device comes to it: it stays as it is until sync, or
     * until something is seen that operations behind the copy have written. */
    void (*copy)(struct ft_device *device, void *to, const void *host, size_t bytes);
    /* Copy device memory into host memory, in order with the operations; it is there after sync.
     */
    void (*fetch)(struct ft_device *device, void *host, const void *from, size_t bytes);
    /* Let operations write into host memory, and fetch be quick there, until unpin, which waits for
     * all operations so far and comes before the memory is freed. Whole pages, or copies out of
     * what shares a page with it may be taken for copies of pinned memory. false: the device
     * cannot; results for that memory are fetched. */
    bool (*pin)(struct ft_device *device, void *host, size_t bytes);
    void (*unpin)(struct ft_device *device, void *host);
    /* Around operations that follow from key and device memory alone, with no copy or sync among
     * them. true: the device has started all of them by itself, from what it noted the last time;
     * the caller leaves them out, and end as well.
     * end is false when the operations were noted to be started at once and could not be: none of
     * them was done, and the caller calls them again, with neither begin nor end. An operation that
     * failed is no such case: sync reports it. */
    bool (*begin)(struct ft_device *device, const struct ft_device_key *key);
    bool (*end)(struct ft_device *device);
    /* As begin, for later: what follows up to end is noted and not done, so that begin will start
     * it. Operations of its kind have been done before. false: it is noted already, or cannot be
     * now; the caller leaves operations and end out. What went wrong, sync says, and end is true;
     * the device goes on as if note had not been called. */
    bool (*note)(struct ft_device *device, const struct ft_device_key *key);
    /* Which one of all machines' devices it is; "" for the host's processors. */
    void (*uuid)(const struct ft_device *device, char text[FT_DEVICE_UUID_MAX]);
    /* Zeroed memory that other processes can open by its handle, until give_back; those that have
     * it open may read what was there until they close it.
     * fail FT_E_PROC_MEMORY; FT_E_PROC_OS: this device has no memory to share */
    enum ft_code (*share)(struct ft_device *device, size_t bytes, void **out,
                          struct ft_device_handle *handle, struct ft_err *err);
    /* Open what another process shares, bytes long as it says; unopen takes it back.
     * fail FT_E_PEER_PROTOCOL: no such memory: a stale handle, one whose owner is dead, of another
     *      GPU that this one cannot reach, or shorter than said */
    enum ft_code (*open_shared)(struct ft_device *device, const struct ft_device_handle *handle,
                                size_t bytes, void **out, struct ft_err *err);
    void (*close_shared)(struct ft_device *device, void *memory);
    /* Wait for all operations so far, and report what went wrong in any of them.
     * fail FT_E_PROC_INTERNAL: the device can no longer be used */
    enum ft_code (*sync)(struct ft_device *device, struct ft_err *err);
    /* Asked after a sync: whether a step was given up since one found no room on the device. What
     * came of all operations since the sync before is void; they have to be done again, and will
     * then not be given up. */
    bool (*gave_up)(struct ft_device *device);
};

/* That spec names a device which this build has. fail FT_E_PROC_CONFIG, as open */
enum ft_code ft_device_check(const char *spec, struct ft_err *err);
/* spec is "name" or "name:variant": "cpu", "cpu:avx512", "cpu:avx2", "cpu:portable"; "cuda",
 * "cuda:1" (the number of a GPU), "cuda:1,single" (steps of few rows by single kernels too, not as
 * one) where the build has it.
 * fail FT_E_PROC_CONFIG: no such device (names those there are), a variant that this machine
 * cannot run, a bad number of threads; FT_E_PROC_OS: no such device in this machine;
 * FT_E_PROC_MEMORY */
enum ft_code ft_device_open(struct ft_device **out, const char *spec,
                            const struct ft_device_opts *opts, struct ft_err *err);
void ft_device_close(struct ft_device **device);

/* Kinds that this build has, for tests that walk all of them; NULL past the last. */
const struct ft_device_kind *ft_device_kind_at(size_t idx);

#ifdef __cplusplus
}
#endif
#endif
