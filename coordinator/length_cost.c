#include "coordinator/length_cost.h"

#include <math.h>
#include <string.h>

/* A measurement counts for at most this ratio to the estimate. */
#define RATIO_MAX 1.35
/* One further off than this ratio says nothing of the step, but of a process that lost its core for
 * a while: let into the common factor, such ones would raise it for all the sizes that are not
 * measured of late, again and again. So many in a row of one size are another machine. */
#define RATIO_FAR 1.25
#define FAR_MAX 3
#define RATE_MIN 0.03   /* weight of a new measurement in the long run */
#define SCALE_RATE 0.05 /* the same of the common factor */
#define WELL_KNOWN 32   /* measurements */
/* What a slope says of a size far below all that were measured is no less than this part of the
 * nearest one. */
#define FLOOR_RATIO 0.3

void co_cost_init(struct co_cost *cost, double growth) {
    memset(cost, 0, sizeof *cost);
    cost->growth = growth;
}

int32_t co_cost_batch_class(int32_t batch) {
    int32_t at = 0;
    while (batch > 1 && at < CO_COST_BATCHES - 1) {
        batch /= 2;
        at++;
    }
    return at;
}

static int32_t cell_of(int32_t class, int32_t size) {
    int32_t exact = class < 2 ? CO_COST_EXACT : CO_COST_EXACT_BATCH;
    if (size <= exact)
        return size < 0 ? 0 : size;
    int32_t at = exact + (int32_t)lrint(4 * log2((double)size / exact));
    return at < CO_COST_SIZES ? at : CO_COST_SIZES - 1;
}

void co_cost_add(struct co_cost *cost, int32_t batch, int32_t size, double ns) {
    if (!(ns > 0))
        return;
    int32_t class = co_cost_batch_class(batch);
    struct co_cost_cell *cell = &cost->cells[class][cell_of(class, size)];
    double off = log(ns) - cost->log_scale - cell->log_ns;
    if (cell->n == 0) {
        cell->log_ns += off;
        cell->size = size;
        cell->n = 1;
        return;
    }
    /* The least of the first few: what disturbs a step makes it longer, never shorter. */
    if (cell->n < 3 && off < 0) {
        cell->log_ns += off;
        cell->n++;
        return;
    }
    bool is_far = fabs(off) > log(RATIO_FAR);
    cell->n_far = is_far ? cell->n_far + 1 : 0;
    if (is_far && cell->n_far < FAR_MAX)
        return;
    double most = log(RATIO_MAX);
    off = off > most ? most : off < -most ? -most : off;
    double rate = 1.0 / (cell->n + 1.0);
    rate = rate > RATE_MIN ? rate : RATE_MIN;
    cell->log_ns += off * rate;
    cell->size += (size - cell->size) * rate;
    /* Of a cell that is hardly known, what is off is the cell and not the machine. */
    double known = cell->n < WELL_KNOWN ? (double)cell->n / WELL_KNOWN : 1;
    cost->log_scale += off * SCALE_RATE * known;
    cell->n += cell->n < UINT32_MAX;
}

/* ---- estimates ------------------------------------------------------------------------------ */

static int32_t count_known(const struct co_cost_cell *row) {
    int32_t n = 0;
    for (int32_t i = 0; i < CO_COST_SIZES; i++)
        n += row[i].n != 0;
    return n;
}

/* The class itself or the nearest that knows at least so many sizes, the smaller batch first, but
 * not `not`; NULL: none. */
static const struct co_cost_cell *nearest(const struct co_cost *cost, int32_t class, int32_t known,
                                          const struct co_cost_cell * not ) {
    for (int32_t away = 0; away < CO_COST_BATCHES; away++) {
        const struct co_cost_cell *down = class - away >= 0 ? cost->cells[class - away] : NULL;
        const struct co_cost_cell *up =
            class + away < CO_COST_BATCHES ? cost->cells[class + away] : NULL;
        if (down != NULL && down != not &&count_known(down) >= known)
            return down;
        if (up != NULL && up != not &&count_known(up) >= known)
            return up;
    }
    return NULL;
}

static void fill(const struct co_cost *cost, const struct co_cost_cell *row,
                 struct co_cost_points *points) {
    points->n = 0;
    for (int32_t i = 0; row != NULL && i < CO_COST_SIZES; i++) {
        if (row[i].n == 0)
            continue;
        points->size[points->n] = row[i].size;
        points->ns[points->n++] = exp(row[i].log_ns + cost->log_scale);
    }
}

void co_cost_curve(const struct co_cost *cost, int32_t batch, struct co_cost_curve *curve) {
    int32_t class = co_cost_batch_class(batch);
    const struct co_cost_cell *own = nearest(cost, class, 1, NULL);
    const struct co_cost_cell *other = own != NULL ? nearest(cost, class, 2, own) : NULL;
    curve->growth = cost->growth;
    fill(cost, own, &curve->own);
    fill(cost, other, &curve->other);
}

/* The line through two points at size; what it says of a size far below is bounded. */
static double line(const struct co_cost_points *points, int32_t nearer, int32_t farther,
                   double size) {
    double at = points->ns[nearer];
    double slope = (points->ns[farther] - at) / (points->size[farther] - points->size[nearer]);
    double estimate = at + (slope > 0 ? slope : 0) * (size - points->size[nearer]);
    return estimate > FLOOR_RATIO * at ? estimate : FLOOR_RATIO * at;
}

/* Of two points and more: between them; above by the line from the first to the last, below by that
 * through the lowest two. */
static double by_points(const struct co_cost_points *points, double size) {
    int32_t above = 0, n = points->n;
    while (above < n && points->size[above] <= size)
        above++;
    if (above == 0)
        return line(points, 0, 1, size);
    if (above == n)
        return line(points, n - 1, 0, size);
    double part =
        (size - points->size[above - 1]) / (points->size[above] - points->size[above - 1]);
    return points->ns[above - 1] + (points->ns[above] - points->ns[above - 1]) * part;
}

/* The points lie as far apart as size lies beyond them: two that are close say little of a third.
 */
static bool reach(const struct co_cost_points *points, double size) {
    double low = points->size[0], high = points->size[points->n - 1];
    return size <= high + (high - low) && size >= low - (high - low);
}

double co_cost_at(const struct co_cost_curve *curve, double size) {
    const struct co_cost_points *own = &curve->own;
    if (own->n == 0)
        return 0;
    if (own->n > 1 && (curve->other.n == 0 || reach(own, size)))
        return by_points(own, size);
    int32_t end = size < own->size[0] ? 0 : own->n - 1;
    double from = own->size[end];
    if (curve->other.n > 1)
        return own->ns[end] * by_points(&curve->other, size) / by_points(&curve->other, from);
    return own->ns[end] * (1 + curve->growth * size) / (1 + curve->growth * from);
}

double co_cost_estimate(const struct co_cost *cost, int32_t batch, int32_t size) {
    struct co_cost_curve curve;
    co_cost_curve(cost, batch, &curve);
    return co_cost_at(&curve, size);
}
