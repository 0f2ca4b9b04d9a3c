/* Random bytes with random stops through detok, against a plain model that looks at all bytes so
 * far after every push. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/text/detok.h"
#include "support/suite.h"

#define FUZZ_NS 2000000000
#define STOPS_MAX 4
#define STOP_BYTES_MAX 4
#define PUSHES_MAX 24
#define PUSH_BYTES_MAX 5

static uint64_t s_random = 88172645463325252u;

static uint64_t below(uint64_t n) { /* xorshift64 */
    s_random ^= s_random << 13;
    s_random ^= s_random >> 7;
    s_random ^= s_random << 17;
    return s_random % n;
}

/* Bytes of a small alphabet, so that stops and characters meet often. */
static size_t random_bytes(char *out, size_t n_max) {
    static const char alphabet[] = "ab\0\xF0\x9F\x98\x80\xC3\xA9\xE4\xB8\xAD\xFF\xED\xA0";
    size_t n = (size_t)below(n_max + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = alphabet[below(sizeof alphabet - 1)];
    return n;
}

/* Bytes of a character or bad part at the start of s, and whether it is a character. */
static size_t part_length(struct ft_str s, bool *good) {
    int step = ft_utf8_step(s);
    *good = step > 0;
    if (step > 0)
        return (size_t)step;
    size_t n = 1;
    while (n < s.len && ft_utf8_step((struct ft_str){s.ptr, n + 1}) == 0)
        n++;
    return n;
}

static void sanitize(struct ft_str s, struct ft_buf *out) {
    for (size_t at = 0; at < s.len;) {
        bool good;
        size_t n = part_length((struct ft_str){s.ptr + at, s.len - at}, &good);
        ft_buf_add(out, good ? s.ptr + at : "\xEF\xBF\xBD", good ? n : 3);
        at += n;
    }
}

struct script {
    char stop_bytes[STOPS_MAX][STOP_BYTES_MAX];
    struct ft_str stops[STOPS_MAX];
    size_t n_stops;
    bool include;
    char bytes[PUSHES_MAX * PUSH_BYTES_MAX];
    size_t ends[PUSHES_MAX]; /* of the pushes */
    size_t n_pushes;
};

static void make_script(struct script *s) {
    s->n_stops = (size_t)below(STOPS_MAX + 1);
    for (size_t i = 0; i < s->n_stops; i++)
        s->stops[i] =
            (struct ft_str){s->stop_bytes[i], random_bytes(s->stop_bytes[i], STOP_BYTES_MAX)};
    s->include = below(2) == 0;
    s->n_pushes = (size_t)below(PUSHES_MAX + 1);
    for (size_t i = 0, at = 0; i < s->n_pushes; i++)
        s->ends[i] = at += random_bytes(s->bytes + at, PUSH_BYTES_MAX);
}

/* The model's match in the first len bytes: earliest start, then longest, then first. */
static int find_stop(const struct script *s, size_t len, size_t *start) {
    int best = -1;
    for (*start = 0; *start < len; ++*start) {
        for (size_t i = 0; i < s->n_stops; i++) {
            struct ft_str stop = s->stops[i];
            if (stop.len > 0 && stop.len <= len - *start &&
                memcmp(s->bytes + *start, stop.ptr, stop.len) == 0 &&
                (best < 0 || stop.len > s->stops[best].len))
                best = (int)i;
        }
        if (best >= 0)
            return best;
    }
    return -1;
}

/* What should come out in the end, and the push (or -1) and stop that end it. */
static void expect(const struct script *s, struct ft_buf *out, int *at_push, int *stop) {
    size_t len = s->n_pushes == 0 ? 0 : s->ends[s->n_pushes - 1];
    *at_push = *stop = -1;
    for (size_t i = 0; i < s->n_pushes && *stop < 0; i++) {
        size_t start;
        *stop = find_stop(s, s->ends[i], &start);
        if (*stop >= 0) {
            *at_push = (int)i;
            len = start + (s->include ? s->stops[*stop].len : 0);
        }
    }
    sanitize((struct ft_str){s->bytes, len}, out);
}

static void run_script(const struct script *s, struct ft_buf *want, struct ft_buf *out) {
    int at_push, want_stop;
    ft_buf_reset(want);
    ft_buf_reset(out);
    expect(s, want, &at_push, &want_stop);
    struct ft_detok detok;
    ft_detok_init(&detok, s->stops, s->n_stops, s->include);
    for (size_t i = 0, at = 0; i < s->n_pushes; at = s->ends[i++]) {
        struct ft_str bytes = {s->bytes + at, s->ends[i] - at};
        int stop = ft_detok_push(&detok, bytes, out);
        ck_assert_int_eq(stop, (int)i == at_push ? want_stop : -1);
        /* What was sent so far is whole characters and the start of what should come. */
        ck_assert_uint_eq(ft_utf8_valid_prefix(ft_buf_str(out)), out->len);
        ck_assert(out->len <= want->len &&
                  (out->len == 0 || memcmp(out->ptr, want->ptr, out->len) == 0));
    }
    ft_detok_finish(&detok, out);
    ck_assert(ft_str_eq(ft_buf_str(out), ft_buf_str(want)));
    ft_detok_fini(&detok);
}

START_TEST(dev22_random_streams_match_the_model) {
    struct ft_buf want, out;
    ft_buf_init(&want, 0);
    ft_buf_init(&out, 0);
    size_t n = 0;
    for (int64_t end = ft_clock_now_ns() + FUZZ_NS; ft_clock_now_ns() < end; n++) {
        struct script script;
        make_script(&script);
        run_script(&script, &want, &out);
    }
    printf("%zu streams\n", n);
    ck_assert_uint_gt(n, 1000);
    ft_buf_fini(&want);
    ft_buf_fini(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fuzz_detok");
    TCase *tc = tcase_create("fuzz");
    tcase_add_test(tc, dev22_random_streams_match_the_model);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
