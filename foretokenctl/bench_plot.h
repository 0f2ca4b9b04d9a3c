/* bench_plot (ctl): axes, marks and legends of the page's plots, as SVG.
 * Owns:    nothing.
 * Runs in: foretokenctl.
 * Never:   writes a colour: series are classes s0 .. s7 of the page's style, so that it can be read
 *          in light and in dark. */
#ifndef CTL_BENCH_PLOT_H
#define CTL_BENCH_PLOT_H

#include "common/base/buf.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLOT_SERIES = 8, PLOT_W = 760, PLOT_H = 360 };

struct plot_axes {
    double x_min, x_max, y_min, y_max;
    double x_step, y_step;
    const char *x_name, *y_name; /* with units */
    const char *y_format;        /* of one double */
};

/* A step of 1, 2 or 5 times a power of ten that cuts span into about n parts. */
double plot_step(double span, int n);

/* The svg element, its grid, ticks and names; end with plot_end. title is read out. */
void plot_begin(struct ft_buf *out, const struct plot_axes *axes, const char *title);
void plot_end(struct ft_buf *out);

double plot_x(const struct plot_axes *axes, double x);
double plot_y(const struct plot_axes *axes, double y);

/* A line across the plot at y, named at its right end. */
void plot_rule(struct ft_buf *out, const struct plot_axes *axes, double y, const char *name);

enum plot_shape { PLOT_DOT, PLOT_RING, PLOT_DIAMOND };
/* A mark and its interval; hint is shown under the pointer. */
struct plot_point {
    enum plot_shape shape;
    size_t series; /* modulo PLOT_SERIES, as everywhere here */
    double x, y, low, high;
    const char *hint;
};
void plot_mark(struct ft_buf *out, const struct plot_axes *axes, const struct plot_point *point);

/* A path through points, opened with its class; add points, then end. */
void plot_path_begin(struct ft_buf *out, size_t series, bool dashed);
void plot_path_add(struct ft_buf *out, const struct plot_axes *axes, bool first, double x,
                   double y);
void plot_path_end(struct ft_buf *out);

/* A list above a plot: what each mark stands for. kind: dot, ring, diamond, dash, line or a class
 * of bars. */
void plot_legend_begin(struct ft_buf *out);
void plot_legend_add(struct ft_buf *out, const char *kind, size_t series, const char *text);
void plot_legend_end(struct ft_buf *out);

#ifdef __cplusplus
}
#endif
#endif
