#include "foretokenctl/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODULE "batch"

static const char k_begin[] = "{\"line\":"; /* of every result */

static enum ft_code no_result(const struct ctl_resume *resume, const char *path,
                              struct ft_err *err) {
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                      "%s holds something that is no result of a batch, after %llu results", path,
                      (unsigned long long)resume->n_done);
}

/* One complete result: its "line" must come after those before it. */
static enum ft_code take_result(struct ctl_resume *resume, const char *text, size_t len,
                                const char *path, struct ft_err *err) {
    json_t *root = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    json_int_t line = json_integer_value(json_object_get(root, "line"));
    bool failed = json_object_get(root, "error") != NULL;
    json_decref(root);
    if (line <= 0 || (uint64_t)line <= resume->last_line)
        return no_result(resume, path, err);
    resume->last_line = (uint64_t)line;
    resume->n_done++;
    resume->n_failed += failed;
    return FT_OK;
}

/* What was written of a result when the run was broken off, and nothing else, may be cut off. */
static bool is_part(const char *text, size_t len) {
    size_t n = len < sizeof k_begin - 1 ? len : sizeof k_begin - 1;
    return memcmp(text, k_begin, n) == 0;
}

/* Walk the results; *end is where the last complete one ends. */
static enum ft_code read_results(struct ctl_resume *resume, const char *path, off_t *end,
                                 struct ft_err *err) {
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;
    enum ft_code code = FT_OK;
    *end = 0;
    while (code == FT_OK && (len = getline(&text, &cap, resume->file)) > 0) {
        if (text[len - 1] != '\n') {
            if (!is_part(text, (size_t)len))
                code = no_result(resume, path, err);
            break;
        }
        code = take_result(resume, text, (size_t)len, path, err);
        *end += len;
    }
    free(text);
    if (code == FT_OK && ferror(resume->file))
        code = ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "cannot read %s", path);
    return code;
}

enum ft_code ctl_resume_open(struct ctl_resume *resume, const char *path, struct ft_err *err) {
    off_t end;
    struct stat st;
    *resume = (struct ctl_resume){0};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0)
        return ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "cannot open %s", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "OUT must be a file, %s is none: a run is taken up from it", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%s is being written by another run",
                          path);
    }
    resume->file = fdopen(fd, "r+");
    if (resume->file == NULL) {
        close(fd);
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory to read %s", path);
    }
    enum ft_code code = read_results(resume, path, &end, err);
    if (code == FT_OK && (ftruncate(fd, end) != 0 || fseeko(resume->file, end, SEEK_SET) != 0))
        code = ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "cannot write %s", path);
    if (code != FT_OK) {
        fclose(resume->file);
        resume->file = NULL;
    }
    return code;
}

enum ft_code ctl_resume_close(struct ctl_resume *resume, struct ft_err *err) {
    if (resume->file == NULL)
        return FT_OK;
    bool lost = ferror(resume->file) != 0;
    lost = fclose(resume->file) != 0 || lost;
    resume->file = NULL;
    return lost ? ft_err_set_os(err, FT_E_PROC_OS, errno, MODULE, "cannot write the results")
                : FT_OK;
}
