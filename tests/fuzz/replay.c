/* Runs a fuzz target over files: seeds, and what fuzzing once found. A finding ends the process.
 * usage: replay_TARGET FOLDER... */
#include <dirent.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "fuzz/target.h"

#define INPUT_MAX ((size_t)16 << 20)

static int replay(const char *folder, int *n) {
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        perror(folder);
        return 1;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[1024];
        struct ft_buf bytes;
        struct ft_err err = {0};
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ft_buf_init(&bytes, 0);
        if (ft_file_read(path, INPUT_MAX, &bytes, &err) != FT_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        printf("%s\n", path);
        fflush(stdout); /* the last one named is the one that ended it */
        LLVMFuzzerTestOneInput((const uint8_t *)bytes.ptr, bytes.len);
        ft_buf_fini(&bytes);
        ++*n;
    }
    closedir(dir);
    return 0;
}

int main(int argc, char **argv) {
    int n = 0;
    for (int i = 1; i < argc; i++)
        if (replay(argv[i], &n) != 0)
            return 1;
    printf("%d inputs\n", n);
    return n > 0 ? 0 : 1;
}
