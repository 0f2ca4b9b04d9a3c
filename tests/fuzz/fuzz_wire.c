/* Mutated messages through every decoder, for a few seconds. A decoder may refuse; it may not
 * crash, read past its input, or accept what it then cannot write out. Each allocation has a chunk
 * of its own, so that a sanitizer sees a read past any of them. */
#include <check.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "support/suite.h"
#include "unit/test_wire_samples.h"

#define FUZZ_NS 250000000 /* of each message */
#define ARENA_MAX ((size_t)64 << 20)
#define WIRE_MAX 8192

static void mutate(struct sample_rng *rng, unsigned char *p, size_t *len) {
    static const unsigned char edges[] = {0, 1, 0x7F, 0x80, 0xFF};
    for (uint64_t n = 1 + sample_u64(rng) % 8; n > 0 && *len > 0; n--) {
        size_t at = sample_u64(rng) % *len;
        size_t from = sample_u64(rng) % *len;
        size_t some = 1 + sample_u64(rng) % 16;
        switch (sample_u64(rng) % 6) {
        case 0:
            p[at] ^= (unsigned char)(1u << sample_u64(rng) % 8);
            break;
        case 1:
            p[at] = edges[sample_u64(rng) % sizeof edges];
            break;
        case 2: /* cut short */
            *len = at;
            break;
        case 3: /* drop a few */
            some = some < *len - at ? some : *len - at;
            memmove(p + at, p + at + some, *len - at - some);
            *len -= some;
            break;
        case 4: /* copy a few over others */
            some = some < *len - at ? some : *len - at;
            some = some < *len - from ? some : *len - from;
            memmove(p + at, p + from, some);
            break;
        default: /* repeat a few */
            some = some < *len - at ? some : *len - at;
            if (*len + some > WIRE_MAX)
                break;
            memmove(p + at + some, p + at, *len - at);
            *len += some;
        }
    }
}

/* The bytes in a block of exactly their length. */
static void decode_mutant(const struct wire_sample *row, struct sample_rng *rng,
                          struct ft_str message, struct ft_arena *arena, struct ft_buf *text) {
    unsigned char mutant[WIRE_MAX];
    size_t len = message.len < WIRE_MAX ? message.len : WIRE_MAX;
    struct ft_err err = {0};
    if (len > 0)
        memcpy(mutant, message.ptr, len);
    mutate(rng, mutant, &len);
    char *exact = malloc(len > 0 ? len : 1);
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, mutant, len);
    enum ft_code code = row->read((struct ft_str){exact, len}, arena, text, &err);
    if (code != FT_OK) {
        ck_assert_int_eq(err.code, code);
        ck_assert(code == FT_E_REQ_INVALID || code == FT_E_REQ_TOO_LARGE ||
                  code == FT_E_REQ_EXHAUSTED || code == FT_E_REQ_UNSUPPORTED);
        ck_assert_uint_gt(strlen(err.text), 0);
    }
    free(exact);
}

START_TEST(decode_mutated_bytes_never_crashes) {
    const struct wire_sample *row = &wire_samples[_i];
    struct ft_buf wire, text;
    struct sample_rng rng = {(uint64_t)_i};
    ft_buf_init(&wire, 0);
    ft_buf_init(&text, 0);
    struct ft_arena *samples = ft_arena_create(65536, 0);
    int64_t until = ft_clock_now_ns() + FUZZ_NS;
    while (ft_clock_now_ns() < until) {
        ft_arena_reset(samples);
        ft_buf_reset(&wire);
        ft_buf_reset(&text);
        row->make(&rng, samples, &wire, &text);
        for (int i = 0; i < 50; i++) {
            struct ft_arena *arena = ft_arena_create(1, ARENA_MAX);
            ft_buf_reset(&text);
            decode_mutant(row, &rng, ft_buf_str(&wire), arena, &text);
            ft_arena_destroy(&arena);
        }
    }
    ft_arena_destroy(&samples);
    ft_buf_fini(&wire);
    ft_buf_fini(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fuzz_wire");
    TCase *tc = tcase_create("fuzz_wire");
    tcase_add_loop_test(tc, decode_mutated_bytes_never_crashes, 0, (int)n_wire_samples);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
