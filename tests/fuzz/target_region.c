/* The header of the shared rows, as another process could have left it. Input: two bytes of size
 * past a page, in units of 4 bytes, then the start of the object. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/ipc/region.h"
#include "fuzz/target.h"

#define PAGE 4096

static char g_name[FT_REGION_NAME_MAX];

static void remove_object(void) {
    shm_unlink(g_name);
}

static int open_object(void) {
    bool first = g_name[0] == 0;
    snprintf(g_name, sizeof g_name, "/foretoken-fuzz%d", (int)getpid());
    if (first)
        atexit(remove_object);
    int fd = shm_open(g_name, O_CREAT | O_RDWR | O_TRUNC, 0600);
    MUST(fd >= 0);
    return fd;
}

/* Every row that the layout promises can be read, and none beyond. */
static void read_rows(const struct ft_region *region) {
    const struct ft_region_layout *layout = ft_region_layout(region);
    volatile float sum = 0;
    for (uint32_t g = 0; g < FT_REGION_GENERATIONS; g++) {
        for (int32_t i = 0; i < layout->n_rows; i++) {
            const float *row = ft_region_row(region, g, i);
            MUST(row != NULL && ((uintptr_t)row & 63) == 0);
            sum = sum + row[0] + row[ft_region_row_stride(region) - 1];
        }
        MUST(ft_region_row(region, g, layout->n_rows) == NULL);
        MUST(ft_region_row(region, g, -1) == NULL);
    }
    MUST(ft_region_row(region, FT_REGION_GENERATIONS, 0) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > PAGE)
        return 0;
    off_t extra = (off_t)(data[0] | data[1] << 8) * 4;
    struct ft_region *region = NULL;
    struct ft_err err = {0};
    uint64_t epoch = 0;
    int fd = open_object();
    MUST(ftruncate(fd, PAGE + extra) == 0);
    MUST(pwrite(fd, data + 2, size - 2, 0) == (ssize_t)(size - 2));
    if (size >= 2 + 32)
        memcpy(&epoch, data + 2 + 24, sizeof epoch); /* the one that is expected */
    enum ft_code code = ft_region_map(&region, g_name, epoch, &err);
    if (code == FT_OK)
        read_rows(region);
    else
        must_refuse_well(code, &err);
    ft_region_close(&region);
    close(fd);
    return 0;
}
