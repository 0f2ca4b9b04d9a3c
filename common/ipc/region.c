#include "common/ipc/region.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/ipc/shm.h"

#define MODULE "region"
#define MAGIC UINT64_C(0x31776f725f744601) /* not text, and of one byte order */
#define VERSION 3u
#define HEADER_BYTES 4096u /* a page, so that rows start aligned and apart from it */
#define ROWS_OFFSET (HEADER_BYTES + FT_CHANNEL_BYTES)
#define ROW_FLOATS 16 /* rows are whole cache lines */
#define N_ROWS_MAX 65536
#define N_COLS_MAX (1 << 24)

/* The start of the shared object. Only the creator writes it, before anyone knows the name. */
struct header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t total_bytes;
    uint64_t epoch;
    int32_t n_rows;
    int32_t n_cols;
    int64_t row_stride; /* floats */
    uint32_t n_generations;
    uint32_t where; /* enum where */
    uint64_t device_bytes;
    char device_uuid[FT_DEVICE_UUID_MAX]; /* ends with 0 */
    struct ft_device_handle handle;
};
enum where { ON_HOST, ON_DEVICE };
static_assert(offsetof(struct header, total_bytes) == 16, "shared layout");
static_assert(offsetof(struct header, n_rows) == 32, "shared layout");
static_assert(offsetof(struct header, row_stride) == 40, "shared layout");
static_assert(sizeof(struct header) == 176, "shared layout");
static_assert(sizeof(struct header) <= HEADER_BYTES, "the header fits its page");
static_assert(sizeof(float) == 4, "rows are f32");

struct ft_region {
    char name[FT_REGION_NAME_MAX];
    struct ft_region_layout layout;
    int64_t row_stride;
    uint64_t bytes;
    unsigned char *base;
    unsigned char *rows;
    void *shared; /* the channel's memory, where it is mapped apart from the rest */
    struct ft_channel channel;
    struct ft_device *device; /* NULL: rows are the host's */
    void *opened;             /* of another process, on device */
    bool creator;
    int fd; /* of the creator, until the name is unlinked; else -1 */
};

static int64_t stride_of(int32_t n_cols) {
    return ((int64_t)n_cols + ROW_FLOATS - 1) / ROW_FLOATS * ROW_FLOATS;
}

size_t ft_region_rows_bytes(const struct ft_region_layout *layout) {
    return (size_t)FT_REGION_GENERATIONS * (size_t)layout->n_rows *
           (size_t)stride_of(layout->n_cols) * sizeof(float);
}

static uint64_t bytes_of(const struct ft_region_layout *layout, bool is_host) {
    return ROWS_OFFSET + (is_host ? ft_region_rows_bytes(layout) : 0);
}

static bool layout_ok(int32_t n_rows, int32_t n_cols) {
    return n_rows >= 1 && n_rows <= N_ROWS_MAX && n_cols >= 1 && n_cols <= N_COLS_MAX;
}

/* Size, reserve and map the object. Memory is reserved now: a full /dev/shm is an error here and
 * not a SIGBUS in the middle of a step. */
static enum ft_code fill(struct ft_region *region, const struct ft_region_memory *memory,
                         struct ft_err *err) {
    int os_errno = 0;
    if (fchmod(region->fd, 0600) != 0)
        os_errno = errno;
    else
        os_errno = posix_fallocate(region->fd, 0, (off_t)region->bytes);
    if (os_errno != 0)
        return ft_err_set_os(err, FT_E_PROC_OS, os_errno, MODULE,
                             "%" PRIu64 " bytes of shared memory for %d x %d rows of %d floats",
                             region->bytes, FT_REGION_GENERATIONS, region->layout.n_rows,
                             region->layout.n_cols);
    void *base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    if (base == MAP_FAILED)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "mapping %" PRIu64 " bytes of %s",
                             region->bytes, region->name);
    region->base = base;
    struct header header = {.magic = MAGIC,
                            .version = VERSION,
                            .header_bytes = HEADER_BYTES,
                            .total_bytes = region->bytes,
                            .epoch = region->layout.epoch,
                            .n_rows = region->layout.n_rows,
                            .n_cols = region->layout.n_cols,
                            .row_stride = region->row_stride,
                            .n_generations = FT_REGION_GENERATIONS};
    region->rows = region->base + ROWS_OFFSET;
    ft_channel_open(&region->channel, region->base + HEADER_BYTES, FT_CHANNEL_WORKER);
    if (memory != NULL) {
        header.where = ON_DEVICE;
        header.device_bytes = ft_region_rows_bytes(&region->layout);
        memory->device->kind->uuid(memory->device, header.device_uuid);
        header.handle = memory->handle;
        region->rows = memory->at;
        region->device = memory->device;
    }
    memcpy(region->base, &header, sizeof header);
    return FT_OK;
}

enum ft_code ft_region_create_on(struct ft_region **out, const struct ft_region_layout *layout,
                                 const struct ft_region_memory *memory, struct ft_err *err) {
    if (!layout_ok(layout->n_rows, layout->n_cols))
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "%d rows of %d floats: must be 1 to %d rows of 1 to %d floats",
                          layout->n_rows, layout->n_cols, N_ROWS_MAX, N_COLS_MAX);
    struct ft_region *region = calloc(1, sizeof *region);
    if (region == NULL)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    region->creator = true;
    region->layout = *layout;
    region->row_stride = stride_of(layout->n_cols);
    region->bytes = bytes_of(layout, memory == NULL);
    FT_ASSERT(memory == NULL || memory->bytes >= ft_region_rows_bytes(layout));
    ft_shm_sweep(); /* rows of a worker that was killed may be what fills the memory */
    region->fd = ft_shm_open_fresh(region->name);
    if (region->fd < 0) {
        int os_errno = errno;
        free(region);
        return ft_err_set_os(err, FT_E_PROC_OS, os_errno, MODULE, "shm_open");
    }
    enum ft_code code = fill(region, memory, err);
    if (code != FT_OK) {
        ft_region_close(&region);
        return code;
    }
    *out = region;
    return FT_OK;
}

static enum ft_code bad(const char *name, const char *field, uint64_t value, uint64_t expected,
                        struct ft_err *err) {
    return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                      "region %.60s: %s is %" PRIu64 ", expected %" PRIu64, name, field, value,
                      expected);
}

/* Every number of a header that another process wrote, against each other and the real size. */
static enum ft_code check_header(const char *name, const struct header *h, uint64_t file_bytes,
                                 uint64_t epoch, struct ft_err *err) {
    if (h->magic != MAGIC)
        return bad(name, "magic", h->magic, MAGIC, err);
    if (h->version != VERSION)
        return bad(name, "version", h->version, VERSION, err);
    if (h->header_bytes != HEADER_BYTES)
        return bad(name, "header_bytes", h->header_bytes, HEADER_BYTES, err);
    if (h->n_generations != FT_REGION_GENERATIONS)
        return bad(name, "n_generations", h->n_generations, FT_REGION_GENERATIONS, err);
    if (!layout_ok(h->n_rows, h->n_cols))
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "region %.60s: %d rows of %d floats: must be 1 to %d rows of 1 to %d "
                          "floats",
                          name, h->n_rows, h->n_cols, N_ROWS_MAX, N_COLS_MAX);
    if (h->row_stride != stride_of(h->n_cols))
        return bad(name, "row_stride", (uint64_t)h->row_stride, (uint64_t)stride_of(h->n_cols),
                   err);
    if (h->where != ON_HOST && h->where != ON_DEVICE)
        return bad(name, "where", h->where, ON_HOST, err);
    struct ft_region_layout layout = {h->epoch, h->n_rows, h->n_cols};
    uint64_t total_bytes = bytes_of(&layout, h->where == ON_HOST);
    if (h->total_bytes != total_bytes)
        return bad(name, "total_bytes", h->total_bytes, total_bytes, err);
    if (h->where == ON_DEVICE && h->device_bytes != ft_region_rows_bytes(&layout))
        return bad(name, "device_bytes", h->device_bytes, ft_region_rows_bytes(&layout), err);
    if (file_bytes != h->total_bytes)
        return bad(name, "size", file_bytes, h->total_bytes, err);
    if (h->epoch != epoch)
        return bad(name, "epoch", h->epoch, epoch, err);
    return FT_OK;
}

static enum ft_code check_name(const char *name, struct ft_err *err) {
    size_t len = strlen(name);
    if (len >= FT_REGION_NAME_MAX || strncmp(name, FT_SHM_PREFIX, sizeof FT_SHM_PREFIX - 1) != 0 ||
        strchr(name + 1, '/') != NULL)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "region name '%.60s': must be " FT_SHM_PREFIX
                          "... without another slash, at most %d bytes",
                          name, FT_REGION_NAME_MAX - 1);
    return FT_OK;
}

/* Rows that lie on a GPU, which has to be the one that this process reads. */
static enum ft_code open_rows(struct ft_region *region, const struct header *header,
                              struct ft_device *device, struct ft_err *err) {
    char uuid[FT_DEVICE_UUID_MAX] = "";
    if (device != NULL)
        device->kind->uuid(device, uuid);
    if (device == NULL || uuid[0] == 0 || memcmp(uuid, header->device_uuid, sizeof uuid) != 0)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "region %s: rows lie on %.47s, this process reads %s", region->name,
                          header->device_uuid, uuid[0] == 0 ? "no GPU" : uuid);
    enum ft_code code = device->kind->open_shared(device, &header->handle, header->device_bytes,
                                                  &region->opened, err);
    if (code != FT_OK)
        return ft_err_prefix(err, "region %s", region->name);
    region->device = device;
    region->rows = region->opened;
    return FT_OK;
}

/* Checks and maps an open object. The header is read once, into memory of our own, and the mapping
 * follows the copy: later changes of the shared bytes change nothing here. */
static enum ft_code map_checked(struct ft_region *region, int fd, uint64_t epoch,
                                struct ft_device *device, struct ft_err *err) {
    struct stat st;
    struct header header;
    if (fstat(fd, &st) != 0)
        return ft_err_set_os(err, FT_E_PEER_PROTOCOL, errno, MODULE, "region %s", region->name);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE, "region %s: mode is %o, expected 0600",
                          region->name, (unsigned)st.st_mode);
    if (st.st_size < (off_t)HEADER_BYTES ||
        pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "region %s: %lld bytes, too short for its header of %u", region->name,
                          (long long)st.st_size, HEADER_BYTES);
    enum ft_code code = check_header(region->name, &header, (uint64_t)st.st_size, epoch, err);
    if (code != FT_OK)
        return code;
    void *base = mmap(NULL, header.total_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "mapping %" PRIu64 " bytes of %s",
                             header.total_bytes, region->name);
    region->base = base;
    void *shared =
        mmap(NULL, FT_CHANNEL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)HEADER_BYTES);
    region->bytes = header.total_bytes;
    if (shared == MAP_FAILED)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "mapping the channel of %s",
                             region->name);
    region->shared = shared;
    ft_channel_open(&region->channel, shared, FT_CHANNEL_COORDINATOR);
    region->layout = (struct ft_region_layout){header.epoch, header.n_rows, header.n_cols};
    region->row_stride = header.row_stride;
    region->rows = region->base + ROWS_OFFSET;
    return header.where == ON_HOST ? FT_OK : open_rows(region, &header, device, err);
}

enum ft_code ft_region_map_on(struct ft_region **out, const char *name, uint64_t epoch,
                              struct ft_device *device, struct ft_err *err) {
    enum ft_code code = check_name(name, err);
    if (code != FT_OK)
        return code;
    int fd = shm_open(name, O_RDWR, 0);
    if (fd < 0)
        return ft_err_set_os(err, FT_E_PEER_UNAVAILABLE, errno, MODULE, "region %s", name);
    struct ft_region *region = calloc(1, sizeof *region);
    if (region == NULL) {
        close(fd);
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory");
    }
    region->fd = -1;
    snprintf(region->name, sizeof region->name, "%s", name);
    code = map_checked(region, fd, epoch, device, err);
    close(fd);
    if (code != FT_OK) {
        ft_region_close(&region);
        return code;
    }
    *out = region;
    return FT_OK;
}

void ft_region_unlink(struct ft_region *region) {
    if (region->fd < 0)
        return;
    shm_unlink(region->name);
    close(region->fd);
    region->fd = -1;
}

void ft_region_close(struct ft_region **region) {
    if (*region == NULL)
        return;
    ft_region_unlink(*region);
    if ((*region)->opened != NULL)
        (*region)->device->kind->close_shared((*region)->device, (*region)->opened);
    if ((*region)->shared != NULL)
        munmap((*region)->shared, FT_CHANNEL_BYTES);
    if ((*region)->base != NULL)
        munmap((*region)->base, (*region)->bytes);
    free(*region);
    *region = NULL;
}

const char *ft_region_name(const struct ft_region *region) {
    return region->name;
}

uint64_t ft_region_bytes(const struct ft_region *region) {
    return region->bytes;
}

const struct ft_region_layout *ft_region_layout(const struct ft_region *region) {
    return &region->layout;
}

int64_t ft_region_row_stride(const struct ft_region *region) {
    return region->row_stride;
}

struct ft_channel *ft_region_channel(struct ft_region *region) {
    return &region->channel;
}

bool ft_region_is_host(const struct ft_region *region) {
    return region->device == NULL;
}

static unsigned char *row_at(const struct ft_region *region, uint32_t generation, int64_t idx) {
    if (generation >= FT_REGION_GENERATIONS || idx < 0 || idx >= region->layout.n_rows)
        return NULL;
    uint64_t row = (uint64_t)generation * (uint64_t)region->layout.n_rows + (uint64_t)idx;
    return region->rows + row * (uint64_t)region->row_stride * sizeof(float);
}

float *ft_region_row_mut(struct ft_region *region, uint32_t generation, int64_t idx) {
    FT_ASSERT(region->creator);
    return (float *)(void *)row_at(region, generation, idx);
}

const float *ft_region_row(const struct ft_region *region, uint32_t generation, int64_t idx) {
    return (const float *)(const void *)row_at(region, generation, idx);
}
