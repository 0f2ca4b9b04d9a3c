#include "support/promtext.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_LEN = 4096, FAMILIES_MAX = 512 };

struct family {
    char name[96], type[16];
    bool has_help;
};

struct parse {
    struct prom *prom;
    struct family families[FAMILIES_MAX];
    size_t n_families;
    int line;
};

static void problem(struct parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem(struct parse *p, const char *format, ...) {
    va_list args;
    if (p->prom->problem[0] != 0)
        return;
    int n = snprintf(p->prom->problem, sizeof p->prom->problem, "line %d: ", p->line);
    va_start(args, format);
    vsnprintf(p->prom->problem + n, sizeof p->prom->problem - (size_t)n, format, args);
    va_end(args);
}

static bool is_name_char(char c, bool first) {
    return isalpha((unsigned char)c) || c == '_' || c == ':' ||
           (!first && isdigit((unsigned char)c));
}

/* Copy a metric name; returns what follows, NULL when there is none. */
static const char *take_name(const char *at, char out[96]) {
    size_t n = 0;
    while (n < 95 && is_name_char(at[n], n == 0))
        n++;
    memcpy(out, at, n);
    out[n] = 0;
    return n > 0 ? at + n : NULL;
}

static void on_comment(struct parse *p, const char *line) {
    char name[96], type[16] = "";
    bool is_help = strncmp(line, "# HELP ", 7) == 0, is_type = strncmp(line, "# TYPE ", 7) == 0;
    const char *rest = is_help || is_type ? take_name(line + 7, name) : NULL;
    if (rest == NULL || *rest != ' ') {
        problem(p, "neither HELP nor TYPE: %.60s", line);
        return;
    }
    if (is_help) {
        for (size_t i = 0; i < p->n_families; i++)
            if (strcmp(p->families[i].name, name) == 0)
                problem(p, "%s is helped twice, or not in one group", name);
        if (p->n_families == FAMILIES_MAX || rest[1] == 0) {
            problem(p, "%s has no help, or there are too many", name);
            return;
        }
        struct family *family = &p->families[p->n_families++];
        snprintf(family->name, sizeof family->name, "%s", name);
        family->type[0] = 0;
        return;
    }
    struct family *family = p->n_families > 0 ? &p->families[p->n_families - 1] : NULL;
    if (family == NULL || strcmp(family->name, name) != 0 || family->type[0] != 0) {
        problem(p, "TYPE of %s without its HELP before it, or twice", name);
        return;
    }
    snprintf(type, sizeof type, "%.15s", rest + 1);
    if (strcmp(type, "counter") != 0 && strcmp(type, "gauge") != 0 &&
        strcmp(type, "histogram") != 0)
        problem(p, "%s has the type %s", name, type);
    snprintf(family->type, sizeof family->type, "%s", type);
}

/* {a="b",c="d"}; at stands behind the brace. Returns what follows the closing one. */
static const char *take_labels(struct parse *p, const char *at, struct prom_sample *sample) {
    const char *begin = at;
    while (*at != '}') {
        char name[96];
        const char *next = take_name(at, name);
        if (next == NULL || strchr(name, ':') != NULL || strncmp(next, "=\"", 2) != 0) {
            problem(p, "bad label at %.40s", at);
            return NULL;
        }
        const char *value = at = next + 2;
        for (; *at != '"'; at++) {
            if (*at == 0 || (*at == '\\' && strchr("\\\"n", at[1]) == NULL)) {
                problem(p, "bad label value of %s", name);
                return NULL;
            }
            at += *at == '\\';
        }
        if (strcmp(name, "le") == 0)
            snprintf(sample->le, sizeof sample->le, "%.*s", (int)(at - value), value);
        at++;
        if (*at == ',')
            at++;
        else if (*at != '}') {
            problem(p, "labels do not end at %.40s", at);
            return NULL;
        }
    }
    snprintf(sample->labels, sizeof sample->labels, "%.*s", (int)(at - begin), begin);
    return at + 1;
}

static bool belongs(const struct family *family, const char *name) {
    size_t len = strlen(family->name);
    if (strncmp(name, family->name, len) != 0)
        return false;
    if (strcmp(family->type, "histogram") != 0)
        return name[len] == 0;
    return strcmp(name + len, "_bucket") == 0 || strcmp(name + len, "_sum") == 0 ||
           strcmp(name + len, "_count") == 0;
}

static void check_sample(struct parse *p, const struct prom_sample *sample) {
    const struct family *family = p->n_families > 0 ? &p->families[p->n_families - 1] : NULL;
    size_t len = strlen(sample->name);
    if (family == NULL || family->type[0] == 0 || !belongs(family, sample->name)) {
        problem(p, "%s is not of the family before it", sample->name);
        return;
    }
    bool is_counter = strcmp(family->type, "counter") == 0;
    if (is_counter && (len < 6 || strcmp(sample->name + len - 6, "_total") != 0))
        problem(p, "the counter %s does not end in _total", sample->name);
    if (is_counter && !(sample->value >= 0))
        problem(p, "the counter %s is %g", sample->name, sample->value);
    for (size_t i = 0; i < p->prom->n; i++)
        if (strcmp(p->prom->samples[i].name, sample->name) == 0 &&
            strcmp(p->prom->samples[i].labels, sample->labels) == 0)
            problem(p, "%s{%s} comes twice", sample->name, sample->labels);
}

static void on_sample(struct parse *p, const char *line) {
    struct prom_sample sample = {.value = NAN};
    char *end;
    const char *at = take_name(line, sample.name);
    if (at == NULL) {
        problem(p, "no metric name: %.60s", line);
        return;
    }
    if (*at == '{')
        at = take_labels(p, at + 1, &sample);
    if (at == NULL)
        return;
    if (*at != ' ') {
        problem(p, "no value: %.60s", line);
        return;
    }
    sample.value = strtod(at + 1, &end);
    if (end == at + 1 || *end != 0)
        problem(p, "bad value: %.60s", line);
    check_sample(p, &sample);
    if (p->n_families > 0)
        snprintf(sample.family, sizeof sample.family, "%s", p->families[p->n_families - 1].name);
    p->prom->samples = realloc(p->prom->samples, (p->prom->n + 1) * sizeof sample);
    if (p->prom->samples != NULL)
        p->prom->samples[p->prom->n++] = sample;
}

static void check_histogram(struct parse *p, const struct family *family) {
    double last_le = -INFINITY, last = 0, inf = -1, count = -2;
    bool has_sum = false;
    char sum[128], total[128];
    snprintf(sum, sizeof sum, "%s_sum", family->name);
    snprintf(total, sizeof total, "%s_count", family->name);
    for (size_t i = 0; i < p->prom->n; i++) {
        const struct prom_sample *s = &p->prom->samples[i];
        if (strcmp(s->family, family->name) != 0)
            continue;
        has_sum = has_sum || strcmp(s->name, sum) == 0;
        if (strcmp(s->name, total) == 0)
            count = s->value;
        if (s->le[0] == 0)
            continue;
        double le = strcmp(s->le, "+Inf") == 0 ? INFINITY : atof(s->le);
        if (!(le > last_le) || s->value < last)
            problem(p, "buckets of %s fall, or do not ascend, at %s", family->name, s->le);
        last_le = le;
        last = s->value;
        inf = isinf(le) ? s->value : inf;
    }
    if (!has_sum || fabs(inf - count) > 0)
        problem(p, "%s: +Inf is %g, count %g, or no sum", family->name, inf, count);
}

void prom_parse(struct prom *prom, const char *text, size_t len) {
    static struct parse parse;
    memset(prom, 0, sizeof *prom);
    parse = (struct parse){.prom = prom};
    if (len == 0 || text[len - 1] != '\n')
        problem(&parse, "the text is empty or does not end with a line end");
    for (size_t at = 0; at < len && prom->problem[0] == 0;) {
        char line[LINE_MAX_LEN];
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - text) - at : len - at;
        parse.line++;
        if (n >= sizeof line) {
            problem(&parse, "longer than %d bytes", LINE_MAX_LEN);
            return;
        }
        memcpy(line, text + at, n);
        line[n] = 0;
        at += n + 1;
        if (line[0] == '#')
            on_comment(&parse, line);
        else if (line[0] != 0)
            on_sample(&parse, line);
    }
    for (size_t i = 0; i < parse.n_families && prom->problem[0] == 0; i++)
        if (strcmp(parse.families[i].type, "histogram") == 0)
            check_histogram(&parse, &parse.families[i]);
}

void prom_fini(struct prom *prom) {
    free(prom->samples);
    prom->samples = NULL;
}

double prom_value(const struct prom *prom, const char *name, const char *labels) {
    for (size_t i = 0; i < prom->n; i++)
        if (strcmp(prom->samples[i].name, name) == 0 &&
            (labels == NULL || strcmp(prom->samples[i].labels, labels) == 0))
            return prom->samples[i].value;
    return NAN;
}

bool prom_has(const struct prom *prom, const char *name) {
    for (size_t i = 0; i < prom->n; i++)
        if (strcmp(prom->samples[i].name, name) == 0)
            return true;
    return false;
}

bool prom_knows(const struct prom *prom, const char *expr, char missing[96]) {
    int n_found = 0;
    for (const char *at = expr; *at != 0;) {
        char name[96];
        const char *next = is_name_char(*at, true) ? take_name(at, name) : NULL;
        if (next == NULL) {
            at++;
            continue;
        }
        bool ours = strncmp(name, "foretoken:", 10) == 0 || strncmp(name, "process_", 8) == 0;
        if (ours && !prom_has(prom, name)) {
            snprintf(missing, 96, "%s", name);
            return false;
        }
        n_found += ours;
        at = next;
    }
    snprintf(missing, 96, "no metric of ours");
    return n_found > 0;
}
