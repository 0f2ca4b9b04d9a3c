/* select: the value at a cut of a set of floats, without sorting it.
 * Owns:    nothing; the caller lends scratch memory.
 * Runs in: coordinator, draft_worker; one thread per scratch.
 * Never:   splits ties; takes more than three passes; included outside common/spec and tests. */
#ifndef FT_SPEC_SELECT_H
#define FT_SPEC_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FT_SELECT_BUCKETS 2048u

/* Values weigh in whole units of 1 / scale, so that their sums are the same in any order: a GPU
 * adds them up as they come. 2^40 units leave room for 2^23 values of 1. */
#define FT_SELECT_SCALE 0x1p40

enum ft_select_by {
    FT_SELECT_COUNT, /* each value weighs 1 */
    FT_SELECT_VALUE  /* each value, which is then in (0, 1], weighs itself */
};

struct ft_select {
    uint64_t weights[FT_SELECT_BUCKETS];
};

/* The largest v in values such that the values >= v weigh at least aim together; the smallest of
 * all when they never do. A radix selection from the top, 11 + 11 + 10 bits.
 * in   values  [n], n > 0, no NaN; its order is lost */
float ft_select_cut(struct ft_select *scratch, float *values, size_t n, double aim,
                    enum ft_select_by by);

#ifdef __cplusplus
}
#endif
#endif
