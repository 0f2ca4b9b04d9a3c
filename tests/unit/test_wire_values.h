/* test_wire_values: random values of every type that messages have, and how they are written out.
 * Owns:    nothing.
 * Runs in: tests.
 * Never:   included outside test_wire_samples.c. */
#ifndef FT_TEST_WIRE_VALUES_H
#define FT_TEST_WIRE_VALUES_H

#include "common/base/sampling.h"
#include "unit/test_wire_samples.h"

static inline size_t below(struct sample_rng *rng, size_t n) {
    return sample_u64(rng) % n;
}

static inline bool coin(struct sample_rng *rng) {
    return sample_u64(rng) >> 63;
}

/* Of random width, so that every varint length and 0 come up. */
static inline uint64_t any_u64(struct sample_rng *rng) {
    return coin(rng) && coin(rng) ? 0 : sample_u64(rng) >> below(rng, 64);
}

static inline uint32_t any_u32(struct sample_rng *rng) {
    return (uint32_t)any_u64(rng);
}

static inline int32_t any_i32(struct sample_rng *rng) {
    return (int32_t)any_u32(rng);
}

static inline float between(struct sample_rng *rng, float low, float high) {
    return low + (high - low) * (float)(sample_u64(rng) >> 40) / 16777216.0f;
}

static inline double any_seconds(struct sample_rng *rng) {
    return coin(rng) ? 0.0 : (double)(sample_u64(rng) >> 11) / 1e9;
}

/* UTF-8, as proto3 wants of a string, with NUL and line ends in it. */
static inline struct ft_str any_str(struct sample_rng *rng, struct ft_arena *arena) {
    static const char *const pieces[] = {"a", "\xC3\xA9", "\xE4\xB8\x96", "\xF0\x9F\x98\x80", "\n"};
    struct ft_buf buf;
    ft_buf_init(&buf, 0);
    for (size_t n = below(rng, 20); n > 0; n--) {
        size_t which = below(rng, 6);
        if (which == 5)
            ft_buf_add(&buf, "", 1);
        else
            ft_buf_add_c(&buf, pieces[which]);
    }
    struct ft_str s = ft_arena_str(arena, ft_buf_str(&buf));
    ft_buf_fini(&buf);
    return s;
}

static inline size_t any_count(struct sample_rng *rng, size_t max) {
    return coin(rng) ? below(rng, 3) % (max + 1) : below(rng, max + 1);
}

static inline const int32_t *random_ids(struct sample_rng *rng, struct ft_arena *arena, size_t n) {
    int32_t *ids = ft_arena_calloc(arena, n, sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = any_i32(rng);
    return ids;
}

/* ---- writing out ---------------------------------------------------------------------------- */

#define NUM(field) ft_buf_addf(text, #field " %lld\n", (long long)in->field)
#define REAL(field) ft_buf_addf(text, #field " %a\n", (double)in->field)
#define STR(field) show_str(text, #field, in->field)
#define IDS(field, n) show_id_array(text, #field, in->field, in->n)

static inline void show_str(struct ft_buf *text, const char *name, struct ft_str s) {
    ft_buf_addf(text, "%s %zu:", name, s.len);
    ft_buf_add_str(text, s);
    ft_buf_add_c(text, "\n");
}

static inline void show_id_array(struct ft_buf *text, const char *name, const int32_t *ids,
                                 size_t n) {
    ft_buf_addf(text, "%s [%zu]", name, n);
    for (size_t i = 0; i < n; i++)
        ft_buf_addf(text, " %d", ids[i]);
    ft_buf_add_c(text, "\n");
}

static inline void show_u64s(struct ft_buf *text, const char *name, const uint64_t *v, size_t n) {
    ft_buf_addf(text, "%s [%zu]", name, n);
    for (size_t i = 0; i < n; i++)
        ft_buf_addf(text, " %llu", (unsigned long long)v[i]);
    ft_buf_add_c(text, "\n");
}

static inline void show_bias(struct ft_buf *text, const struct ft_bias *bias, size_t n) {
    for (size_t i = 0; i < n; i++)
        ft_buf_addf(text, "bias %d %a\n", bias[i].id, (double)bias[i].value);
}

#endif
