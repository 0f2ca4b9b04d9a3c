/* conf: an ini file, key by key, with the line that each stands on.
 * Owns:    nothing; keys and values live during the callback.
 * Runs in: every process, at start and on reload; one thread at a time.
 * Never:   guesses: a line that is neither key = value, [section] nor a comment is a problem. */
#ifndef FT_BASE_CONF_H
#define FT_BASE_CONF_H

#include "common/base/err.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library that splits a line takes no longer ones. */
#define FT_CONF_LINE_MAX 198
#define FT_CONF_BYTES_MAX ((size_t)1 << 20) /* of a file: thousands of keys, comments and all */

struct ft_conf_reader {
    const char *name; /* of the file, for messages */
    /* A key, in order. What it returns but FT_OK is a problem at this line. */
    enum ft_code (*on_key)(void *user, const char *section, const char *key, const char *value,
                           struct ft_err *err);
    /* A [section] line, or NULL. What it returns but FT_OK is a problem at this line. */
    enum ft_code (*on_section)(void *user, const char *section, struct ft_err *err);
    /* A problem, "NAME:LINE: ..."; reading goes on. NULL: the first problem ends the reading. */
    void (*on_problem)(void *user, const struct ft_err *err);
    void *user;
    int line; /* out, during on_key and on_section: from 1 */
};

/* fail the first problem: FT_E_PROC_CONFIG, or what on_key returned */
enum ft_code ft_conf_read_text(struct ft_conf_reader *reader, struct ft_str text,
                               struct ft_err *err);
/* The same of the file reader->name.
 * fail also FT_E_PROC_CONFIG: the file is not there, is too large or cannot be read */
enum ft_code ft_conf_read_file(struct ft_conf_reader *reader, struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
