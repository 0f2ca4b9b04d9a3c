#include "foretokenctl/bench_plot.h"

#include <math.h>

enum { LEFT = 58, RIGHT = 18, TOP = 16, BOTTOM = 48 };

double plot_step(double span, int n) {
    double raw = span / n, power = pow(10, floor(log10(raw > 0 ? raw : 1)));
    double part = raw / power;
    return power * (part <= 1.0 ? 1 : part <= 2.0 ? 2 : part <= 5.0 ? 5 : 10);
}

double plot_x(const struct plot_axes *axes, double x) {
    return LEFT + (x - axes->x_min) / (axes->x_max - axes->x_min) * (PLOT_W - LEFT - RIGHT);
}

double plot_y(const struct plot_axes *axes, double y) {
    double part = (y - axes->y_min) / (axes->y_max - axes->y_min);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return PLOT_H - BOTTOM - part * (PLOT_H - BOTTOM - TOP);
}

void plot_begin(struct ft_buf *out, const struct plot_axes *axes, const char *title) {
    const double slack = 1e-9;
    ft_buf_addf(out,
                "<div class=\"plot\"><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
                PLOT_W, PLOT_H, title);
    for (double y = ceil(axes->y_min / axes->y_step - slack) * axes->y_step;
         y <= axes->y_max + slack; y += axes->y_step) {
        ft_buf_addf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, plot_y(axes, y),
                    PLOT_W - RIGHT);
        ft_buf_addf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 8,
                    plot_y(axes, y) + 4);
        ft_buf_addf(out, axes->y_format, fabs(y) < slack ? 0.0 : y);
        ft_buf_add_c(out, "</text>\n");
    }
    for (double x = ceil(axes->x_min / axes->x_step - slack) * axes->x_step;
         x <= axes->x_max + slack; x += axes->x_step)
        ft_buf_addf(out,
                    "<path class=\"notch\" d=\"M%.1f %dv5\"/><text class=\"tick\" x=\"%.1f\" "
                    "y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                    plot_x(axes, x), PLOT_H - BOTTOM, plot_x(axes, x), PLOT_H - BOTTOM + 19,
                    fabs(x) < slack ? 0.0 : x);
    ft_buf_addf(out, "<path class=\"axis\" d=\"M%d %dH%d\"/>", LEFT, PLOT_H - BOTTOM,
                PLOT_W - RIGHT);
    ft_buf_addf(out,
                "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>"
                "<text class=\"name\" transform=\"translate(15 %d) rotate(-90)\" "
                "text-anchor=\"middle\">%s</text>\n",
                LEFT + (PLOT_W - LEFT - RIGHT) / 2, PLOT_H - 8, axes->x_name,
                TOP + (PLOT_H - TOP - BOTTOM) / 2, axes->y_name);
}

void plot_end(struct ft_buf *out) {
    ft_buf_add_c(out, "</svg></div>\n");
}

void plot_rule(struct ft_buf *out, const struct plot_axes *axes, double y, const char *name) {
    ft_buf_addf(out,
                "<path class=\"rule\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%s</text>\n",
                LEFT, plot_y(axes, y), PLOT_W - RIGHT, PLOT_W - RIGHT - 4, plot_y(axes, y) - 5,
                name);
}

void plot_mark(struct ft_buf *out, const struct plot_axes *axes, const struct plot_point *point) {
    double x = plot_x(axes, point->x), y = plot_y(axes, point->y);
    double low = plot_y(axes, point->low), high = plot_y(axes, point->high);
    ft_buf_addf(out, "<g class=\"mark s%zu\"><title>%s</title>", point->series % PLOT_SERIES,
                point->hint);
    if (low > high)
        ft_buf_addf(out, "<path class=\"bar\" d=\"M%.1f %.1fV%.1fm-4 0h8M%.1f %.1fh8\"/>", x, low,
                    high, x - 4, low);
    if (point->shape == PLOT_DIAMOND)
        ft_buf_addf(out, "<path class=\"fill\" d=\"M%.1f %.1fl6 6l-6 6l-6 -6z\"/>", x, y - 6);
    else
        ft_buf_addf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>",
                    point->shape == PLOT_RING ? "open" : "fill", x, y,
                    point->shape == PLOT_RING ? 6 : 5);
    ft_buf_add_c(out, "</g>\n");
}

void plot_path_begin(struct ft_buf *out, size_t series, bool dashed) {
    ft_buf_addf(out, "<path class=\"mark line s%zu%s\" d=\"", series % PLOT_SERIES,
                dashed ? " dashed" : "");
}

void plot_path_add(struct ft_buf *out, const struct plot_axes *axes, bool first, double x,
                   double y) {
    ft_buf_addf(out, "%s%.1f %.1f", first ? "M" : "L", plot_x(axes, x), plot_y(axes, y));
}

void plot_path_end(struct ft_buf *out) {
    ft_buf_add_c(out, "\"/>\n");
}

void plot_legend_begin(struct ft_buf *out) {
    ft_buf_add_c(out, "<ul class=\"legend\">");
}

void plot_legend_add(struct ft_buf *out, const char *kind, size_t series, const char *text) {
    ft_buf_addf(out, "<li><i class=\"key %s s%zu\"></i>%s</li>", kind, series % PLOT_SERIES, text);
}

void plot_legend_end(struct ft_buf *out) {
    ft_buf_add_c(out, "</ul>\n");
}
