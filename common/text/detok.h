/* detok: bytes of tokens become text that is never cut inside a character or a stop string.
 * Owns:    the bytes that are held back, from init to fini.
 * Runs in: coordinator; one stream each.
 * Never:   emits a byte that a later stop match would have to take back. */
#ifndef FT_TEXT_DETOK_H
#define FT_TEXT_DETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FT_DETOK_STOPS_MAX 16
#define FT_DETOK_STOP_BYTES_MAX 512

struct ft_detok {
    const struct ft_str *stops; /* borrowed, [n_stops] */
    size_t n_stops;
    bool include_stop; /* keep the matched stop string in the text */
    bool is_early;     /* set by the caller: stops that the next bytes complete do not count */
    struct ft_buf held;
    bool done; /* a stop matched, or finish was called: nothing more comes out */
};

void ft_detok_init(struct ft_detok *detok, const struct ft_str *stops, size_t n_stops,
                   bool include_stop);
void ft_detok_fini(struct ft_detok *detok);

/* Feed the bytes of one token; append to out what is certain. Returns the index of the stop string
 * that is now complete (the earliest match by its start; on one start the longest, listed first),
 * or -1. After a match out has the text up to it (and the stop itself with include_stop) and later
 * pushes add nothing. Bytes that cannot be UTF-8 become U+FFFD, one for each maximal bad part as
 * Unicode recommends. Stop strings match on raw bytes; an empty one never does. When memory is out
 * (held.failed, out->failed) text is missing. */
int ft_detok_push(struct ft_detok *detok, struct ft_str bytes, struct ft_buf *out);

/* End without a match: append what is held; a character cut short becomes one U+FFFD. */
void ft_detok_finish(struct ft_detok *detok, struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
