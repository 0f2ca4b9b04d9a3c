/* The stop-string matcher against one that looks at all bytes so far after every push.
 * Input: number of stops and whether they stay; then stops and pushes, a length byte and so many
 * bytes each. */
#include "common/text/detok.h"
#include "fuzz/target.h"

#define PUSHES_MAX 64
#define PIECE_MAX 31

static size_t g_n;
static const uint8_t *g_at;

static struct ft_str next_piece(void) {
    size_t n = g_n > 0 ? *g_at & PIECE_MAX : 0;
    if (g_n > 0)
        g_at++, g_n--;
    n = n < g_n ? n : g_n;
    struct ft_str piece = {(const char *)g_at, n};
    g_at += n;
    g_n -= n;
    return piece;
}

/* Earliest start, then the longest, then the first listed; -1: none. */
static int find_stop(const struct ft_str *stops, size_t n_stops, struct ft_str text,
                     size_t *start) {
    for (*start = 0; *start < text.len; ++*start) {
        int best = -1;
        for (size_t i = 0; i < n_stops; i++)
            if (stops[i].len > 0 && stops[i].len <= text.len - *start &&
                memcmp(text.ptr + *start, stops[i].ptr, stops[i].len) == 0 &&
                (best < 0 || stops[i].len > stops[best].len))
                best = (int)i;
        if (best >= 0)
            return best;
    }
    return -1;
}

/* Whatever is no UTF-8 becomes U+FFFD, one for each maximal bad part. */
static void sanitize(struct ft_str s, struct ft_buf *out) {
    while (s.len > 0) {
        int step = ft_utf8_step(s);
        size_t n = step > 0 ? (size_t)step : 1;
        while (step <= 0 && n < s.len && ft_utf8_step((struct ft_str){s.ptr, n + 1}) == 0)
            n++;
        ft_buf_add(out, step > 0 ? s.ptr : "\xEF\xBF\xBD", step > 0 ? n : 3);
        s = (struct ft_str){s.ptr + n, s.len - n};
    }
}

static void run(const struct ft_str *stops, size_t n_stops, bool include) {
    struct ft_detok detok;
    struct ft_buf all, out, want;
    int stop = -1;
    size_t start = 0;
    ft_buf_init(&all, 0);
    ft_buf_init(&out, 0);
    ft_buf_init(&want, 0);
    ft_detok_init(&detok, stops, n_stops, include);
    for (int i = 0; i < PUSHES_MAX && g_n > 0 && stop < 0; i++) {
        struct ft_str piece = next_piece();
        ft_buf_add_str(&all, piece);
        stop = find_stop(stops, n_stops, ft_buf_str(&all), &start);
        MUST(ft_detok_push(&detok, piece, &out) == stop);
        MUST(ft_utf8_valid_prefix(ft_buf_str(&out)) == out.len);
    }
    ft_detok_finish(&detok, &out);
    size_t len = stop < 0 ? all.len : start + (include ? stops[stop].len : 0);
    sanitize((struct ft_str){all.ptr, len}, &want);
    MUST(ft_str_eq(ft_buf_str(&want), ft_buf_str(&out)));
    ft_detok_fini(&detok);
    ft_buf_fini(&all);
    ft_buf_fini(&out);
    ft_buf_fini(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ft_str stops[FT_DETOK_STOPS_MAX];
    if (size == 0)
        return 0;
    size_t n_stops = data[0] % (FT_DETOK_STOPS_MAX + 1);
    bool include = (data[0] & 0x80) != 0;
    g_at = data + 1;
    g_n = size - 1;
    for (size_t i = 0; i < n_stops; i++)
        stops[i] = next_piece();
    run(stops, n_stops, include);
    return 0;
}
