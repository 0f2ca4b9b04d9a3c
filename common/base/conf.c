#include "common/base/conf.h"

#include <ini.h>
#include <stdio.h>
#include <string.h>

#include "common/base/file.h"

#define MODULE "conf"

struct reading {
    struct ft_conf_reader *reader;
    struct ft_str rest;
    struct ft_err *err; /* of the first problem */
    enum ft_code code;
};

static bool is_over(const struct reading *reading) {
    return reading->code != FT_OK && reading->reader->on_problem == NULL;
}

static void problem(struct reading *reading, struct ft_err *err) {
    ft_err_prefix(err, "%s:%d", reading->reader->name, reading->reader->line);
    if (reading->code == FT_OK) {
        reading->code = err->code;
        if (reading->err != NULL)
            *reading->err = *err;
    }
    if (reading->reader->on_problem != NULL)
        reading->reader->on_problem(reading->reader->user, err);
}

/* What the library would read otherwise than its writer meant, or not at all. */
static enum ft_code check_line(struct ft_str line, size_t len_max, struct ft_err *err) {
    if (line.len > len_max)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "the line is %zu bytes long: must be at most %zu", line.len, len_max);
    for (size_t i = 0; i < line.len; i++)
        if (((unsigned char)line.ptr[i] < 0x20 && line.ptr[i] != '\t') || line.ptr[i] == 0x7F)
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                              "the line holds the control character %d", line.ptr[i]);
    if (ft_utf8_valid_prefix(line) != line.len)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "the line is not UTF-8");
    if (line.len == 0 || line.ptr[0] == ';' || line.ptr[0] == '#')
        return FT_OK;
    int shown = line.len < 80 ? (int)line.len : 80;
    if (line.ptr[0] == '[') {
        if (memchr(line.ptr, ']', line.len) == NULL)
            return ft_err_set(err, FT_E_PROC_CONFIG, MODULE, "'%.*s' has no ']'", shown, line.ptr);
        return FT_OK;
    }
    size_t key = 0;
    while (key < line.len && line.ptr[key] != '=' && line.ptr[key] != ':')
        key++;
    if (key == line.len || line.ptr[key] != '=' || key == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, MODULE,
                          "'%.*s' is neither key = value, [section] nor a comment", shown,
                          line.ptr);
    return FT_OK;
}

static enum ft_code take_section(struct ft_conf_reader *reader, struct ft_str line,
                                 struct ft_err *err) {
    char name[FT_CONF_LINE_MAX + 1];
    if (reader->on_section == NULL || line.len == 0 || line.ptr[0] != '[')
        return FT_OK;
    size_t len = (size_t)((const char *)memchr(line.ptr, ']', line.len) - line.ptr) - 1;
    memcpy(name, line.ptr + 1, len);
    name[len] = 0;
    return reader->on_section(reader->user, name, err);
}

/* The library's fgets. Blanks before a key go: to the library they make the line one more of the
 * value before. */
static char *next_line(char *out, int cap, void *user) {
    struct reading *reading = user;
    struct ft_str *rest = &reading->rest;
    if (rest->len == 0 || is_over(reading))
        return NULL;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    struct ft_str line = {rest->ptr, end == NULL ? rest->len : (size_t)(end - rest->ptr)};
    size_t taken = line.len + (end != NULL);
    *rest = (struct ft_str){rest->ptr + taken, rest->len - taken};
    reading->reader->line++;
    if (reading->reader->line == 1 && line.len >= 3 && memcmp(line.ptr, "\xEF\xBB\xBF", 3) == 0)
        line = (struct ft_str){line.ptr + 3, line.len - 3};
    while (line.len > 0 && (*line.ptr == ' ' || *line.ptr == '\t'))
        line = (struct ft_str){line.ptr + 1, line.len - 1};
    while (line.len > 0 && strchr(" \t\r", line.ptr[line.len - 1]) != NULL &&
           line.ptr[line.len - 1] != 0)
        line.len--;
    struct ft_err err = {0};
    if (check_line(line, (size_t)cap - 2, &err) != FT_OK) {
        problem(reading, &err);
        line.len = 0;
    } else if (take_section(reading->reader, line, &err) != FT_OK) {
        problem(reading, &err); /* its keys are nobody's, and are not looked at */
    }
    if (line.len > 0)
        memcpy(out, line.ptr, line.len);
    out[line.len] = '\n';
    out[line.len + 1] = 0;
    return out;
}

static int take_key(void *user, const char *section, const char *key, const char *value) {
    struct reading *reading = user;
    struct ft_conf_reader *reader = reading->reader;
    struct ft_err err = {0};
    if (is_over(reading))
        return 1;
    if (*section == 0)
        ft_err_set(&err, FT_E_PROC_CONFIG, MODULE, "%s stands before the first [section]", key);
    else if (strstr(value, " #") != NULL || *value == '#')
        ft_err_set(&err, FT_E_PROC_CONFIG, MODULE,
                   "%s is '%.80s': a comment stands on a line of its own, or behind ' ;'", key,
                   value);
    else
        err.code = reader->on_key(reader->user, section, key, value, &err);
    if (err.code != FT_OK)
        problem(reading, &err);
    return 1;
}

enum ft_code ft_conf_read_text(struct ft_conf_reader *reader, struct ft_str text,
                               struct ft_err *err) {
    struct reading reading = {.reader = reader, .rest = text, .err = err};
    reader->line = 0;
    int rc = ini_parse_stream(next_line, &reading, take_key, &reading);
    if (rc != 0 && reading.code == FT_OK) { /* our own look at each line is stricter */
        struct ft_err odd = {0};
        reader->line = rc > 0 ? rc : reader->line;
        ft_err_set(&odd, FT_E_PROC_CONFIG, MODULE, "cannot be read as an ini file");
        problem(&reading, &odd);
    }
    return reading.code;
}

enum ft_code ft_conf_read_file(struct ft_conf_reader *reader, struct ft_err *err) {
    struct ft_buf buf;
    struct ft_err own = {0};
    ft_buf_init(&buf, 0);
    enum ft_code code = ft_file_read(reader->name, FT_CONF_BYTES_MAX, &buf, &own);
    if (code == FT_OK) {
        code = ft_conf_read_text(reader, ft_buf_str(&buf), err);
    } else {
        code = own.code = FT_E_PROC_CONFIG;
        if (err != NULL)
            *err = own;
        if (reader->on_problem != NULL)
            reader->on_problem(reader->user, &own);
    }
    ft_buf_fini(&buf);
    return code;
}
