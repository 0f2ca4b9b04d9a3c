#include "coordinator/length_cost.h"

#include <math.h>
#include <string.h>

/* A measurement counts for at most this ratio to the estimate: a process that lost its core for a
 * while says nothing of the step. */
#define RATIO_MAX 1.35
#define RATE_MIN 0.03   /* weight of a new measurement in the long run */
#define SCALE_RATE 0.05 /* the same of the common factor */
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

static int32_t cell_of(int32_t size) {
    if (size <= CO_COST_EXACT)
        return size < 0 ? 0 : size;
    int32_t at = CO_COST_EXACT + (int32_t)lrint(4 * log2((double)size / CO_COST_EXACT));
    return at < CO_COST_SIZES ? at : CO_COST_SIZES - 1;
}

void co_cost_add(struct co_cost *cost, int32_t batch, int32_t size, double ns) {
    if (!(ns > 0))
        return;
    struct co_cost_cell *cell = &cost->cells[co_cost_batch_class(batch)][cell_of(size)];
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
    double most = log(RATIO_MAX);
    off = off > most ? most : off < -most ? -most : off;
    double rate = 1.0 / (cell->n + 1.0);
    rate = rate > RATE_MIN ? rate : RATE_MIN;
    cell->log_ns += off * rate;
    cell->size += (size - cell->size) * rate;
    cost->log_scale += off * SCALE_RATE;
    cell->n += cell->n < UINT32_MAX;
}

static double value(const struct co_cost *cost, const struct co_cost_cell *row, int32_t cell) {
    return exp(row[cell].log_ns + cost->log_scale);
}

static bool row_known(const struct co_cost_cell *row) {
    for (int32_t i = 0; i < CO_COST_SIZES; i++)
        if (row[i].n != 0)
            return true;
    return false;
}

/* The class itself or the nearest with measurements, the smaller batch first; NULL: none. */
static const struct co_cost_cell *nearest_row(const struct co_cost *cost, int32_t class) {
    for (int32_t away = 0; away < CO_COST_BATCHES; away++) {
        if (class - away >= 0 && row_known(cost->cells[class - away]))
            return cost->cells[class - away];
        if (class + away < CO_COST_BATCHES && row_known(cost->cells[class + away]))
            return cost->cells[class + away];
    }
    return NULL;
}

/* The line through two measured cells at size, or by growth when there is one. */
static double beyond(const struct co_cost *cost, const struct co_cost_cell *row, int32_t nearest,
                     int32_t other, double size) {
    double at = value(cost, row, nearest), from = row[nearest].size;
    if (other < 0)
        return at * (1 + cost->growth * size) / (1 + cost->growth * from);
    double slope = (value(cost, row, other) - at) / (row[other].size - from);
    double estimate = at + (slope > 0 ? slope : 0) * (size - from);
    return estimate > FLOOR_RATIO * at ? estimate : FLOOR_RATIO * at;
}

/* Sizes rise with the cells. */
double co_cost_estimate(const struct co_cost *cost, int32_t batch, int32_t size) {
    const struct co_cost_cell *row = nearest_row(cost, co_cost_batch_class(batch));
    int32_t first = -1, below = -1, above = -1, behind = -1;
    if (row == NULL)
        return 0;
    for (int32_t i = 0; i < CO_COST_SIZES && behind < 0; i++) {
        if (row[i].n == 0)
            continue;
        first = first < 0 ? i : first;
        if (row[i].size <= size)
            below = i;
        else if (above < 0)
            above = i;
        else
            behind = i;
    }
    if (above < 0)
        return beyond(cost, row, below, first == below ? -1 : first, size);
    if (below < 0)
        return beyond(cost, row, above, behind, size);
    double low = value(cost, row, below), high = value(cost, row, above);
    double part = (size - row[below].size) / (row[above].size - row[below].size);
    return low + (high - low) * part;
}
