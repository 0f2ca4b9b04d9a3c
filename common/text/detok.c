#include "common/text/detok.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

void ft_detok_init(struct ft_detok *detok, const struct ft_str *stops, size_t n_stops,
                   bool include_stop) {
    *detok = (struct ft_detok){.stops = stops, .n_stops = n_stops, .include_stop = include_stop};
    ft_buf_init(&detok->held, 0);
}

void ft_detok_fini(struct ft_detok *detok) {
    ft_buf_fini(&detok->held);
    *detok = (struct ft_detok){0};
}

static struct ft_str tail(struct ft_str s, size_t from) {
    return (struct ft_str){s.ptr + from, s.len - from};
}

/* Length of the bad part at the start of s: the bytes that could have begun a character, else one
 * byte (Unicode 15, section 3.9, "maximal subpart"). */
static size_t bad_part(struct ft_str s) {
    size_t n = s.len < 3 ? s.len : 3;
    while (n > 1 && ft_utf8_step((struct ft_str){s.ptr, n}) != 0)
        n--;
    return n;
}

/* Append the characters of s that lie whole before end; a bad part is one U+FFFD. Unless `last`,
 * a character that s cuts short stays. Returns how many bytes are dealt with. */
static size_t emit(struct ft_str s, size_t end, bool last, struct ft_buf *out) {
    size_t at = 0, good = 0; /* s[good .. at) is valid and not yet appended */
    if (end == 0)
        return 0; /* s.ptr may be NULL */
    while (at < end) {
        int step = ft_utf8_step(tail(s, at));
        size_t n = step > 0 ? (size_t)step : bad_part(tail(s, at));
        if ((step == 0 && !last) || at + n > end)
            break;
        if (step <= 0) {
            ft_buf_add(out, s.ptr + good, at - good);
            ft_buf_add(out, replacement, sizeof replacement - 1);
            good = at + n;
        }
        at += n;
    }
    ft_buf_add(out, s.ptr + good, at - good);
    return at;
}

static bool starts_with(struct ft_str s, struct ft_str prefix) {
    return s.len >= prefix.len && memcmp(s.ptr, prefix.ptr, prefix.len) == 0;
}

/* The longest stop that begins where s does and ends behind its first n_old bytes, -1 when there is
 * none: one that ends before was complete when it did not count. */
static int stop_at(const struct ft_detok *detok, struct ft_str s, size_t n_old) {
    int best = -1;
    for (size_t i = 0; i < detok->n_stops; i++) {
        struct ft_str stop = detok->stops[i];
        if (stop.len > n_old && starts_with(s, stop) &&
            (best < 0 || stop.len > detok->stops[best].len))
            best = (int)i;
    }
    return best;
}

/* s is the beginning of some stop, and not all of it. */
static bool may_become_stop(const struct ft_detok *detok, struct ft_str s) {
    for (size_t i = 0; i < detok->n_stops; i++)
        if (detok->stops[i].len > s.len && starts_with(detok->stops[i], s))
            return true;
    return false;
}

static size_t longest_stop(const struct ft_detok *detok) {
    size_t longest = 0;
    for (size_t i = 0; i < detok->n_stops; i++)
        if (detok->stops[i].len > longest)
            longest = detok->stops[i].len;
    return longest;
}

/* Where the text that is certain ends: at the first byte from which a stop may yet begin. */
static size_t certain_end(const struct ft_detok *detok, struct ft_str held) {
    size_t longest = longest_stop(detok);
    size_t at = held.len >= longest && longest > 0 ? held.len - longest + 1 : 0;
    for (; longest > 0 && at < held.len; at++)
        if (may_become_stop(detok, tail(held, at)))
            return at;
    return held.len;
}

static int finish_at(struct ft_detok *detok, size_t at, int stop, struct ft_buf *out) {
    struct ft_str text = ft_buf_str(&detok->held);
    text.len = at + (detok->include_stop ? detok->stops[stop].len : 0);
    emit(text, text.len, true, out);
    ft_buf_reset(&detok->held);
    detok->done = true;
    return stop;
}

int ft_detok_push(struct ft_detok *detok, struct ft_str bytes, struct ft_buf *out) {
    if (detok->done)
        return -1;
    size_t n_old = detok->held.len;
    ft_buf_add_str(&detok->held, bytes);
    struct ft_str held = ft_buf_str(&detok->held);
    for (size_t at = 0; !detok->is_early && detok->n_stops > 0 && at < held.len; at++) {
        int stop = stop_at(detok, tail(held, at), at < n_old ? n_old - at : 0);
        if (stop >= 0)
            return finish_at(detok, at, stop, out);
    }
    ft_buf_drop(&detok->held, emit(held, certain_end(detok, held), false, out));
    return -1;
}

void ft_detok_finish(struct ft_detok *detok, struct ft_buf *out) {
    if (detok->done)
        return;
    struct ft_str held = ft_buf_str(&detok->held);
    emit(held, held.len, true, out);
    ft_buf_reset(&detok->held);
    detok->done = true;
}
