/* length_cost: what a phase of a round takes, learnt from measurements, as a function of its size
 * (rows of a verification, steps of a draft) for classes of batch sizes.
 * Owns:    nothing; embedded by value.
 * Runs in: coordinator; loop thread only.
 * Never:   forgets the shape of the curve when the machine slows down as a whole: a common factor
 *          follows that. */
#ifndef CO_LENGTH_COST_H
#define CO_LENGTH_COST_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CO_COST_BATCHES 8 /* 1, 2-3, 4-7, ... 128 and more */
/* Sizes to 32 have a cell of their own; then four cells for each doubling, to 4096. In batches of
 * four and more, whose sizes vary by a few from round to round, the doublings begin at 8. */
#define CO_COST_EXACT 32
#define CO_COST_EXACT_BATCH 8
#define CO_COST_SIZES (CO_COST_EXACT + 4 * 7 + 1)

struct co_cost_cell {
    double log_ns;  /* less log_scale */
    double size;    /* mean of the sizes that were measured */
    uint32_t n;     /* measurements, 0: unknown */
    uint32_t n_far; /* in a row that were far off */
};

struct co_cost {
    double log_scale;
    double growth; /* of a curve of which one size is known: cost ~ 1 + growth * size */
    struct co_cost_cell cells[CO_COST_BATCHES][CO_COST_SIZES];
};

void co_cost_init(struct co_cost *cost, double growth);

/* One measurement. A single one far off moves the estimate by little. */
void co_cost_add(struct co_cost *cost, int32_t batch, int32_t size, double ns);

/* What is known for one class of batches, ready to be asked often. */
struct co_cost_curve {
    struct co_cost_points {
        int32_t n; /* sizes rise */
        double size[CO_COST_SIZES], ns[CO_COST_SIZES];
    } own, other; /* other: the nearest class that knows two sizes */
    double growth;
};
void co_cost_curve(const struct co_cost *cost, int32_t batch, struct co_cost_curve *curve);

/* Between measured sizes a straight line. Beyond them, as far as they lie apart, the line goes on;
 * further out the cost grows as that of another class of batches does, and without one by growth.
 * A class without measurements borrows from the nearest one that has some. 0: nothing known. */
double co_cost_at(const struct co_cost_curve *curve, double size);
/* Both at once. */
double co_cost_estimate(const struct co_cost *cost, int32_t batch, int32_t size);

/* Class of a batch size. */
int32_t co_cost_batch_class(int32_t batch);

#ifdef __cplusplus
}
#endif
#endif
