/* ft_region_* in plain memory, so that a seed decides everything and a simulation costs little. */
#include "common/ipc/region.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/net.h"

enum { ROW_FLOATS = 16 };

struct memory {
    struct memory *next;
    char name[FT_REGION_NAME_MAX];
    struct ft_region_layout layout;
    int refs; /* creator and mappings */
    bool linked;
    float *rows;
    void *shared[2]; /* a channel's memory; the second of those who share none */
};

struct ft_region {
    struct memory *memory;
    struct ft_channel channel;
    bool creator;
};

static struct memory *g_memories;
static uint64_t g_serial;

static int64_t stride_of(const struct memory *memory) {
    return (memory->layout.n_cols + (int64_t)ROW_FLOATS - 1) / ROW_FLOATS * ROW_FLOATS;
}

static struct ft_region *region_of(struct memory *memory, bool creator) {
    struct ft_region *region = calloc(1, sizeof *region);
    *region = (struct ft_region){.memory = memory, .creator = creator};
    memory->refs++;
    ft_channel_open(&region->channel, memory->shared[!creator && !net_shares_channels()],
                    creator ? FT_CHANNEL_WORKER : FT_CHANNEL_COORDINATOR);
    return region;
}

enum ft_code ft_region_create_on(struct ft_region **out, const struct ft_region_layout *layout,
                                 const struct ft_region_memory *on, struct ft_err *err) {
    (void)err;
    FT_ASSERT(on == NULL);
    struct memory *memory = calloc(1, sizeof *memory);
    memory->layout = *layout;
    memory->linked = true;
    memory->next = g_memories;
    g_memories = memory;
    snprintf(memory->name, sizeof memory->name, "/sim-%llu", (unsigned long long)++g_serial);
    size_t n = (size_t)FT_REGION_GENERATIONS * (size_t)layout->n_rows * (size_t)stride_of(memory);
    memory->rows = aligned_alloc(64, n * sizeof(float));
    for (int i = 0; i < 2; i++)
        memory->shared[i] = memset(aligned_alloc(64, FT_CHANNEL_BYTES), 0, FT_CHANNEL_BYTES);
    *out = region_of(memory, true);
    return FT_OK;
}

enum ft_code ft_region_map_on(struct ft_region **out, const char *name, uint64_t epoch,
                              struct ft_device *device, struct ft_err *err) {
    (void)device;
    for (struct memory *m = g_memories; m != NULL; m = m->next)
        if (m->linked && strcmp(m->name, name) == 0 && m->layout.epoch == epoch) {
            *out = region_of(m, false);
            return FT_OK;
        }
    return ft_err_set(err, FT_E_PEER_UNAVAILABLE, "region", "no region %s", name);
}

void ft_region_close(struct ft_region **region) {
    if (*region == NULL)
        return;
    struct memory *memory = (*region)->memory;
    if ((*region)->creator)
        memory->linked = false;
    free(*region);
    *region = NULL;
    if (--memory->refs > 0)
        return;
    struct memory **link = &g_memories;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    free(memory->rows);
    free(memory->shared[0]);
    free(memory->shared[1]);
    free(memory);
}

void ft_region_unlink(struct ft_region *region) {
    region->memory->linked = false;
}

const char *ft_region_name(const struct ft_region *region) {
    return region->memory->name;
}

uint64_t ft_region_bytes(const struct ft_region *region) {
    return (uint64_t)FT_REGION_GENERATIONS * (uint64_t)region->memory->layout.n_rows *
           (uint64_t)stride_of(region->memory) * sizeof(float);
}

size_t ft_region_rows_bytes(const struct ft_region_layout *layout) {
    return (size_t)layout->n_rows * (size_t)layout->n_cols * sizeof(float);
}

struct ft_channel *ft_region_channel(struct ft_region *region) {
    return &region->channel;
}

bool ft_region_is_host(const struct ft_region *region) {
    (void)region;
    return true;
}

const struct ft_region_layout *ft_region_layout(const struct ft_region *region) {
    return &region->memory->layout;
}

int64_t ft_region_row_stride(const struct ft_region *region) {
    return stride_of(region->memory);
}

float *ft_region_row_mut(struct ft_region *region, uint32_t generation, int64_t idx) {
    const struct memory *m = region->memory;
    if (generation >= FT_REGION_GENERATIONS || idx < 0 || idx >= m->layout.n_rows)
        return NULL;
    return m->rows + ((int64_t)generation * m->layout.n_rows + idx) * stride_of(m);
}

const float *ft_region_row(const struct ft_region *region, uint32_t generation, int64_t idx) {
    struct ft_region writable = *region;
    return ft_region_row_mut(&writable, generation, idx);
}
