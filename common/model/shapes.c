#include "common/model/shapes.h"

struct list {
    const struct ft_shapes_limits *limits;
    struct ft_shape *shapes;
    int32_t n, n_max;
};

static int32_t min32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* Tokens and rows of logits of its (first) forward pass. */
static int32_t tokens_of(const struct ft_shape *shape) {
    return shape->kind == FT_SHAPE_ROWS   ? shape->n_seqs * shape->n
           : shape->kind == FT_SHAPE_FEED ? shape->n
                                          : shape->n_seqs;
}

static int32_t rows_of(const struct ft_shape *shape) {
    return shape->kind == FT_SHAPE_ROWS ? shape->n_seqs * shape->n : shape->n_seqs;
}

/* Positions that a sequence must have for it. */
static int32_t len_min(const struct ft_shape *shape) {
    return shape->kind == FT_SHAPE_FEED ? (shape->n > shape->n_seqs ? 2 : 1) : shape->n;
}

static void add(struct list *list, struct ft_shape shape) {
    const struct ft_shapes_limits *limits = list->limits;
    if (list->n < list->n_max && tokens_of(&shape) <= limits->n_tokens_max &&
        rows_of(&shape) <= limits->n_rows_max && len_min(&shape) <= shape.len)
        list->shapes[list->n++] = shape;
}

/* All draft lengths of so many sequences whose length ends in a step of lengths. */
static void add_all(struct list *list, int32_t n_seqs, int32_t len, bool is_short) {
    int32_t n_drafts = min32(FT_SHAPES_DRAFTS_MAX, FT_SHAPES_ROWS_MAX / n_seqs - 1);
    if (!list->limits->is_drafting) {
        for (int32_t n = 1; n <= n_drafts + 1; n++)
            add(list, (struct ft_shape){FT_SHAPE_ROWS, n_seqs, n, len,
                                        is_short || (n_seqs == 1 && n == 1)});
        return;
    }
    for (int32_t n = n_seqs; n <= 2 * n_seqs; n++)
        add(list,
            (struct ft_shape){FT_SHAPE_FEED, n_seqs, n, len, is_short || (n_seqs == 1 && n == 1)});
    for (int32_t n = 1; n <= n_drafts; n++)
        add(list, (struct ft_shape){FT_SHAPE_DRAFTS, n_seqs, n, len, is_short});
}

/* The longest length of the step of lengths that ends at idx * len_step which n_seqs sequences can
 * have; 0: none. */
static int32_t longest(const struct ft_shapes_limits *limits, int32_t n_seqs, int32_t idx) {
    int64_t held = (int64_t)(limits->n_blocks / n_seqs) * limits->block_tokens;
    int64_t end = (int64_t)idx * limits->len_step;
    int64_t len = end < limits->len_max ? end : limits->len_max;
    len = len < held ? len : held;
    return len > end - limits->len_step ? (int32_t)len : 0;
}

int32_t ft_shapes_list(const struct ft_shapes_limits *limits, struct ft_shape *shapes,
                       int32_t n_max) {
    struct list list = {.limits = limits, .shapes = shapes, .n_max = n_max};
    int32_t n_seqs_max = min32(limits->n_seqs_max, FT_SHAPES_SEQS_MAX);
    int32_t n_steps = (limits->len_max - 1) / limits->len_step + 1;
    for (int32_t load = 1; load <= n_steps * n_seqs_max && list.n < n_max; load++)
        for (int32_t n_seqs = 1; n_seqs <= n_seqs_max; n_seqs++) {
            int32_t idx = load / n_seqs;
            if (load % n_seqs != 0 || idx > n_steps)
                continue;
            int32_t len = longest(limits, n_seqs, idx);
            if (len > 0)
                add_all(&list, n_seqs, len, idx == 1);
        }
    return list.n;
}
