/* promtext: reads and checks the text that Prometheus scrapes, as strictly as its own tools.
 * Owns:    the samples, from parse to fini; names and labels point into the text.
 * Runs in: tests.
 * Never:   accepts what a scraper would drop or misread. */
#ifndef TEST_PROMTEXT_H
#define TEST_PROMTEXT_H

#include <stdbool.h>
#include <stddef.h>

struct prom_sample {
    char name[96];    /* with _bucket, _sum or _count */
    char family[96];  /* of its TYPE line */
    char labels[512]; /* as written, without braces */
    char le[32];      /* of a bucket */
    double value;
};

struct prom {
    struct prom_sample *samples;
    size_t n;
    char problem[256]; /* "" when all is well */
};

/* Format: every sample follows the HELP and TYPE of its family, which come once; names and labels
 * are legal; no sample twice; counters are not negative; buckets ascend, end with +Inf, never fall,
 * and +Inf is the count. */
void prom_parse(struct prom *prom, const char *text, size_t len);
void prom_fini(struct prom *prom);

/* The value of the sample; labels NULL: the only one of that name. NAN when there is none. */
double prom_value(const struct prom *prom, const char *name, const char *labels);
bool prom_has(const struct prom *prom, const char *name);

/* Every metric name of a PromQL expression is one that prom has; the first that is not into
 * missing. At least one must be there. */
bool prom_knows(const struct prom *prom, const char *expr, char missing[96]);

#endif
