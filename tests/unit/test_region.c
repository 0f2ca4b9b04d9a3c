#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ipc/region.h"
#include "support/fake_gpu.h"
#include "support/suite.h"

static struct ft_region *make(int32_t n_rows, int32_t n_cols) {
    struct ft_region_layout layout = {0xE90C, n_rows, n_cols};
    struct ft_region *region = NULL;
    struct ft_err err;
    ck_assert_msg(ft_region_create(&region, &layout, &err) == FT_OK, "%s", err.text);
    return region;
}

START_TEST(create_makes_a_private_aligned_object) {
    struct ft_region *region = make(3, 100);
    ck_assert_int_eq(ft_region_row_stride(region), 112);
    ck_assert_uint_eq(ft_region_bytes(region), 4096 + FT_CHANNEL_BYTES + 2 * 3 * 112 * 4);
    int fd = shm_open(ft_region_name(region), O_RDONLY, 0);
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq((int)(st.st_mode & 0777), 0600);
    close(fd);
    for (uint32_t g = 0; g < 2; g++)
        for (int r = 0; r < 3; r++)
            ck_assert_uint_eq((uintptr_t)ft_region_row_mut(region, g, r) % 64, 0);
    ck_assert_ptr_null(ft_region_row_mut(region, 2, 0));
    ck_assert_ptr_null(ft_region_row_mut(region, 0, 3));
    ck_assert_ptr_null(ft_region_row_mut(region, 0, -1));
    struct ft_region *other = make(3, 100);
    ck_assert_str_ne(ft_region_name(region), ft_region_name(other));
    ft_region_close(&region);
    ck_assert_ptr_null(region);
    ft_region_close(&region);
    ft_region_close(&other);
}
END_TEST

START_TEST(create_past_the_limits_names_them) {
    static const int32_t rows[][2] = {{0, 10}, {65537, 10}, {1, 0}, {1, (1 << 24) + 1}, {-1, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ft_region_layout layout = {1, rows[i][0], rows[i][1]};
        struct ft_region *region = NULL;
        struct ft_err err;
        ck_assert_int_eq(ft_region_create(&region, &layout, &err), FT_E_PROC_CONFIG);
        ck_assert_ptr_nonnull(strstr(err.text, "65536"));
        ck_assert_ptr_null(region);
    }
}
END_TEST

START_TEST(close_and_unlink_remove_the_name) {
    struct ft_region *region = make(1, 16), *mapped = NULL, *late = NULL;
    char name[FT_REGION_NAME_MAX];
    strcpy(name, ft_region_name(region));
    ck_assert_int_eq(ft_region_map(&mapped, name, 0xE90C, NULL), FT_OK);
    ft_region_close(&mapped); /* a reader's close leaves the name alone */
    ck_assert_int_eq(ft_region_map(&mapped, name, 0xE90C, NULL), FT_OK);
    ft_region_unlink(region);
    struct ft_err err;
    ck_assert_int_eq(ft_region_map(&late, name, 0xE90C, &err), FT_E_PEER_UNAVAILABLE);
    ft_region_row_mut(region, 1, 0)[3] = 5.0f;
    ck_assert(ft_region_row(mapped, 1, 0)[3] == 5.0f);
    ft_region_close(&region);
    ck_assert(ft_region_row(mapped, 1, 0)[3] == 5.0f); /* the writer died: still readable */
    ft_region_close(&mapped);
    region = make(1, 16);
    strcpy(name, ft_region_name(region));
    ft_region_close(&region);
    ck_assert_int_lt(shm_open(name, O_RDONLY, 0), 0);
}
END_TEST

/* A process that makes a region and waits for its end. */
static pid_t start_maker(char name[FT_REGION_NAME_MAX]) {
    int to_parent[2];
    ck_assert_int_eq(pipe(to_parent), 0);
    pid_t child = fork();
    if (child == 0) {
        struct ft_region *region = make(4, 1000);
        if (write(to_parent[1], ft_region_name(region), FT_REGION_NAME_MAX) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(to_parent[1]);
    ck_assert_int_eq(read(to_parent[0], name, FT_REGION_NAME_MAX), FT_REGION_NAME_MAX);
    close(to_parent[0]);
    return child;
}

static void kill_maker(pid_t child) {
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

START_TEST(create_removes_names_whose_makers_were_killed_and_no_others) {
    char names[2][FT_REGION_NAME_MAX];
    pid_t killed = start_maker(names[0]), alive = start_maker(names[1]);
    struct ft_region *own = make(1, 16), *mapped = NULL;
    ck_assert_int_eq(ft_region_map(&mapped, names[0], 0xE90C, NULL), FT_OK);
    kill_maker(killed);
    struct ft_region *region = make(1, 16);
    ck_assert_int_lt(shm_open(names[0], O_RDONLY, 0), 0);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(ft_region_layout(mapped)->n_cols, 1000); /* who has it keeps it */
    ck_assert(ft_region_row(mapped, 1, 3)[999] == 0.0f);
    ft_region_close(&mapped);
    ck_assert_int_eq(ft_region_map(&mapped, names[1], 0xE90C, NULL), FT_OK);
    ft_region_close(&mapped);
    ck_assert_int_eq(ft_region_map(&mapped, ft_region_name(own), 0xE90C, NULL), FT_OK);
    ft_region_close(&mapped);
    ft_region_close(&own);
    kill_maker(alive);
    ft_region_close(&region);
    region = make(1, 16);
    ck_assert_int_lt(shm_open(names[1], O_RDONLY, 0), 0);
    ft_region_close(&region);
}
END_TEST

/* Offsets, not addresses, cross the boundary: every row of both generations is told apart. */
START_TEST(dev39_each_row_is_read_where_it_was_written) {
    int to_child[2], to_parent[2];
    ck_assert_int_eq(pipe(to_child), 0);
    ck_assert_int_eq(pipe(to_parent), 0);
    pid_t child = fork();
    if (child == 0) { /* the writer */
        struct ft_region_layout layout = {77, 5, 33};
        struct ft_region *region = NULL;
        if (ft_region_create(&region, &layout, NULL) != FT_OK)
            _exit(1);
        for (uint32_t g = 0; g < 2; g++)
            for (int r = 0; r < 5; r++)
                for (int c = 0; c < 33; c++)
                    ft_region_row_mut(region, g, r)[c] = (float)(g * 1000) + (float)(r * 100 + c);
        if (write(to_parent[1], ft_region_name(region), FT_REGION_NAME_MAX) < 0)
            _exit(2);
        char byte;
        if (read(to_child[0], &byte, 1) != 1)
            _exit(3);
        ft_region_unlink(region);
        ft_region_row_mut(region, 0, 2)[7] = -1.0f;
        if (write(to_parent[1], "x", 1) != 1)
            _exit(4);
        ft_region_close(&region);
        _exit(0);
    }
    char name[FT_REGION_NAME_MAX], byte;
    ck_assert_int_eq(read(to_parent[0], name, sizeof name), (int)sizeof name);
    struct ft_region *region = NULL;
    struct ft_err err;
    ck_assert_msg(ft_region_map(&region, name, 77, &err) == FT_OK, "%s", err.text);
    ck_assert_int_eq(ft_region_layout(region)->n_rows, 5);
    ck_assert_int_eq(ft_region_layout(region)->n_cols, 33);
    for (uint32_t g = 0; g < 2; g++)
        for (int r = 0; r < 5; r++)
            for (int c = 0; c < 33; c++)
                ck_assert(ft_region_row(region, g, r)[c] ==
                          (float)(g * 1000) + (float)(r * 100 + c));
    ck_assert_int_eq(write(to_child[1], "x", 1), 1);
    ck_assert_int_eq(read(to_parent[0], &byte, 1), 1);
    ck_assert(ft_region_row(region, 0, 2)[7] == -1.0f);
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ft_region_close(&region);
    ck_assert_int_lt(shm_open(name, O_RDONLY, 0), 0);
}
END_TEST

/* Overwrite bytes of a good object, and expect a refusal that names the field. */
static void expect_refused(size_t offset, const void *bytes, size_t n, const char *field) {
    struct ft_region *region = make(4, 40), *mapped = NULL;
    int fd = shm_open(ft_region_name(region), O_RDWR, 0);
    ck_assert_int_eq(pwrite(fd, bytes, n, (off_t)offset), (ssize_t)n);
    close(fd);
    struct ft_err err;
    ck_assert_int_eq(ft_region_map(&mapped, ft_region_name(region), 0xE90C, &err),
                     FT_E_PEER_PROTOCOL);
    ck_assert_msg(strstr(err.text, field) != NULL, "%s: %s", field, err.text);
    ck_assert_ptr_null(mapped);
    ft_region_close(&region);
}

START_TEST(map_of_a_corrupt_header_names_the_field) {
    uint64_t big = UINT64_MAX;
    uint32_t three = 3, two = 2, zero = 0, device = 1;
    int32_t rows = 65537, negative = -4, wide = 2000;
    int64_t stride = 64;
    expect_refused(0, &big, 8, "magic");
    expect_refused(8, &two, 4, "version");
    expect_refused(12, &zero, 4, "header_bytes");
    expect_refused(16, &big, 8, "total_bytes");
    expect_refused(24, &big, 8, "epoch");
    expect_refused(32, &rows, 4, "65537 rows");
    expect_refused(32, &negative, 4, "-4 rows");
    expect_refused(32, &wide, 4, "total_bytes");
    expect_refused(36, &wide, 4, "row_stride");
    expect_refused(36, &zero, 4, "0 floats");
    expect_refused(40, &stride, 8, "row_stride");
    expect_refused(48, &zero, 4, "n_generations");
    expect_refused(52, &three, 4, "where");
    expect_refused(52, &device, 4, "total_bytes"); /* rows of a GPU are not in the object */
}
END_TEST

START_TEST(map_of_a_wrong_size_mode_or_name_is_refused) {
    struct ft_region *region = make(4, 40), *mapped = NULL;
    struct ft_err err;
    const char *name = ft_region_name(region);
    int fd = shm_open(name, O_RDWR, 0);
    ck_assert_int_eq(fchmod(fd, 0644), 0);
    ck_assert_int_eq(ft_region_map(&mapped, name, 0xE90C, &err), FT_E_PEER_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(err.text, "mode"));
    ck_assert_int_eq(fchmod(fd, 0600), 0);
    static const off_t sizes[] = {0, 55, 4095, 4096, 5000, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ck_assert_int_eq(ftruncate(fd, sizes[i]), 0);
        ck_assert_int_eq(ft_region_map(&mapped, name, 0xE90C, &err), FT_E_PEER_PROTOCOL);
    }
    close(fd);
    ck_assert_int_eq(ft_region_map(&mapped, name, 1, &err), FT_E_PEER_PROTOCOL);
    static const char *const names[] = {"", "/other-1", "foretoken-1", "/foretoken-/../x"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_int_eq(ft_region_map(&mapped, names[i], 1, &err), FT_E_PEER_PROTOCOL);
    char longer[200] = "/foretoken-";
    memset(longer + 11, 'a', 150);
    ck_assert_int_eq(ft_region_map(&mapped, longer, 1, &err), FT_E_PEER_PROTOCOL);
    ck_assert_int_eq(ft_region_map(&mapped, "/foretoken-gone", 1, &err), FT_E_PEER_UNAVAILABLE);
    ck_assert_ptr_null(mapped);
    ft_region_close(&region);
}
END_TEST

/* A region whose rows lie on a GPU: memory of the worker's that is shared. */
static struct ft_region *make_on(struct fake_gpu *gpu, struct ft_region_memory *memory) {
    struct ft_region_layout layout = {0xE90C, 3, 100};
    struct ft_region *region = NULL;
    struct ft_err err;
    *memory =
        (struct ft_region_memory){.device = &gpu->device, .bytes = ft_region_rows_bytes(&layout)};
    ck_assert_int_eq(
        gpu->device.kind->share(&gpu->device, memory->bytes, &memory->at, &memory->handle, &err),
        FT_OK);
    ck_assert_msg(ft_region_create_on(&region, &layout, memory, &err) == FT_OK, "%s", err.text);
    return region;
}

START_TEST(rows_on_a_gpu_are_found_where_the_header_says) {
    struct fake_gpu gpu;
    struct ft_region_memory memory;
    struct ft_region *mapped = NULL;
    struct ft_err err;
    fake_gpu_init(&gpu, "GPU-1");
    struct ft_region *region = make_on(&gpu, &memory);
    ck_assert(!ft_region_is_host(region));
    ck_assert_uint_eq(ft_region_bytes(region), 4096 + FT_CHANNEL_BYTES);
    ck_assert_ptr_eq(ft_region_row_mut(region, 0, 0), memory.at);
    for (int again = 0; again < 2; again++) { /* opened by each mapping, and closed with it */
        ck_assert_msg(
            ft_region_map_on(&mapped, ft_region_name(region), 0xE90C, &gpu.device, &err) == FT_OK,
            "%s", err.text);
        ck_assert_int_eq(gpu.n_open, 1);
        ck_assert(!ft_region_is_host(mapped));
        for (uint32_t g = 0; g < 2; g++)
            for (int64_t r = 0; r < 3; r++)
                ck_assert_ptr_eq(ft_region_row(mapped, g, r), ft_region_row_mut(region, g, r));
        ck_assert_ptr_null(ft_region_row(mapped, 0, 3));
        ft_region_close(&mapped);
        ck_assert_int_eq(gpu.n_open, 0);
    }
    ft_region_close(&region);
    free(memory.at);
}
END_TEST

START_TEST(rows_on_a_gpu_that_cannot_be_read_are_refused) {
    struct fake_gpu gpu, second;
    struct ft_region_memory memory;
    struct ft_region *mapped = NULL;
    struct ft_err err;
    fake_gpu_init(&gpu, "GPU-1");
    fake_gpu_init(&second, "GPU-2");
    struct ft_region *region = make_on(&gpu, &memory);
    const char *name = ft_region_name(region);
    ck_assert_int_eq(ft_region_map(&mapped, name, 0xE90C, &err), FT_E_PEER_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(err.text, "GPU-1, this process reads no GPU"));
    ck_assert_int_eq(ft_region_map_on(&mapped, name, 0xE90C, &second.device, &err),
                     FT_E_PEER_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(err.text, "GPU-1, this process reads GPU-2"));
    gpu.is_stale = true;
    ck_assert_int_eq(ft_region_map_on(&mapped, name, 0xE90C, &gpu.device, &err),
                     FT_E_PEER_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(err.text, "stale handle"));
    ck_assert_ptr_null(mapped);
    int fd = shm_open(name, O_RDWR, 0);
    uint64_t bytes = 64;
    ck_assert_int_eq(pwrite(fd, &bytes, sizeof bytes, 56), (ssize_t)sizeof bytes);
    close(fd);
    gpu.is_stale = false;
    ck_assert_int_eq(ft_region_map_on(&mapped, name, 0xE90C, &gpu.device, &err),
                     FT_E_PEER_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(err.text, "device_bytes"));
    ck_assert_int_eq(gpu.n_open, 0);
    ft_region_close(&region);
    free(memory.at);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("region");
    TCase *tc = tcase_create("region");
    tcase_add_test(tc, create_makes_a_private_aligned_object);
    tcase_add_test(tc, create_past_the_limits_names_them);
    tcase_add_test(tc, close_and_unlink_remove_the_name);
    tcase_add_test(tc, create_removes_names_whose_makers_were_killed_and_no_others);
    tcase_add_test(tc, dev39_each_row_is_read_where_it_was_written);
    tcase_add_test(tc, map_of_a_corrupt_header_names_the_field);
    tcase_add_test(tc, map_of_a_wrong_size_mode_or_name_is_refused);
    tcase_add_test(tc, rows_on_a_gpu_are_found_where_the_header_says);
    tcase_add_test(tc, rows_on_a_gpu_that_cannot_be_read_are_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
