#include "foretokenctl/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"

#define PROMPTS_BYTES_MAX ((size_t)4 << 20)

/* Beginnings of stories and of programs, and a text that repeats itself. */
static const char *const k_prompts[] = {
    "Once upon a time there was a little girl who lived at the edge of a wood.",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "The old lighthouse keeper climbed the stairs every evening, and",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "\"I do not believe in dragons,\" said the boy to his grandfather.",
    "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n",
    "one two three four five six one two three four five six one two three four five six one two",
    "In the morning the snow had covered the road, the fields and the river, and",
};
#define N_PROMPTS (sizeof k_prompts / sizeof k_prompts[0])

static int usage(const char *text) {
    return ctl_exit_because(CTL_EXIT_USAGE, text);
}

/* One prompt a line; \n in a line is a line end. */
static int read_prompts(struct bench *bench, struct ft_buf *text) {
    const struct ctl_options *opts = bench->opts;
    struct ft_err err = {0};
    if (opts->prompt_file.len == 0) {
        for (size_t i = 0; i < N_PROMPTS; i++)
            bench->prompts[bench->n_prompts++] = ft_str_c(k_prompts[i]);
        return CTL_EXIT_OK;
    }
    if (ft_file_read(opts->prompt_file.ptr, PROMPTS_BYTES_MAX, text, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    char *at = text->ptr, *end = text->ptr + text->len;
    while (at < end && bench->n_prompts < BENCH_PROMPTS_MAX) {
        char *out = at, *from = at;
        while (at < end && *at != '\n') {
            bool escape = at[0] == '\\' && at + 1 < end && at[1] == 'n';
            *out++ = escape ? '\n' : *at;
            at += escape ? 2 : 1;
        }
        at++;
        if (out > from)
            bench->prompts[bench->n_prompts++] = (struct ft_str){from, (size_t)(out - from)};
    }
    return bench->n_prompts > 0 ? CTL_EXIT_OK : usage("--prompt-file holds no prompt");
}

/* ---- rows ----------------------------------------------------------------------------------- */

static struct bench_row *add_row(struct bench *bench, int32_t together, size_t base) {
    if (bench->n_rows == BENCH_ROWS_MAX)
        return NULL;
    struct bench_row *row = &bench->rows[bench->n_rows++];
    *row = (struct bench_row){.together = together, .base = base, .k = -1, .speculates = true};
    return row;
}

/* Lower-case letters: what a drafter is called, and nothing that a page would read as markup. */
static bool is_name(struct ft_str name) {
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] < 'a' || name.ptr[i] > 'z')
            return false;
    return name.len > 0 && name.len < 30;
}

/* Plain, each K, the service's choice, each drafter: for one concurrency. */
static bool add_rows(struct bench *bench, int32_t together) {
    const struct ctl_options *opts = bench->opts;
    static const int32_t usual[] = {1, 2, 4, 8};
    const int32_t *ks = opts->n_bench_k > 0 ? opts->bench_k : usual;
    size_t n_ks = opts->n_bench_k > 0 ? opts->n_bench_k : 4, base = bench->n_rows;
    struct bench_row *row = add_row(bench, together, base);
    if (row == NULL)
        return false;
    snprintf(row->label, sizeof row->label, "off");
    row->speculates = false;
    row->k = 0;
    for (size_t i = 0; i < n_ks; i++) {
        row = add_row(bench, together, base);
        if (row == NULL)
            return false;
        row->k = ks[i];
        snprintf(row->label, sizeof row->label, "K = %d", ks[i]);
    }
    row = add_row(bench, together, base);
    if (row == NULL)
        return false;
    snprintf(row->label, sizeof row->label, "service");
    for (size_t i = 0; i < opts->n_bench_drafters; i++) {
        row = add_row(bench, together, base);
        if (row == NULL)
            return false;
        row->drafter = opts->bench_drafters[i];
        if (!is_name(row->drafter))
            return false;
        snprintf(row->label, sizeof row->label, "%.30s", row->drafter.ptr);
    }
    return true;
}

static int make_rows(struct bench *bench) {
    const struct ctl_options *opts = bench->opts;
    static const int32_t one = 1;
    const int32_t *together = opts->n_bench_together > 0 ? opts->bench_together : &one;
    size_t n = opts->n_bench_together > 0 ? opts->n_bench_together : 1;
    if (opts->request.params.has_max_tokens && opts->request.params.max_tokens < 2)
        return usage("--max-tokens must be at least 2: what is measured begins with the first");
    if (opts->has_bench_repeats && opts->bench_repeats < 1)
        return usage("--repeats must be at least 1");
    for (size_t i = 0; i < opts->n_bench_k; i++)
        if (opts->bench_k[i] < 1 || opts->bench_k[i] > FT_DRAFT_LEN_MAX)
            return usage("--bench-k must be 1 to 16, with commas between");
    for (size_t i = 0; i < n; i++) {
        if (together[i] < 1 || together[i] > BENCH_TOGETHER_MAX)
            return usage("--clients must be 1 to 64, with commas between");
        if (!add_rows(bench, together[i]))
            return usage("a --bench-drafter that is no name, or more than 64 rows in all");
    }
    return CTL_EXIT_OK;
}

/* ---- the run -------------------------------------------------------------------------------- */

/* On a terminal a bar, drawn before a sample (row NULL: taken away after the last). */
static void show_bar(size_t done, size_t all, const struct bench_row *row) {
    enum { WIDTH = 32 };
    char bar[WIDTH + 1];
    if (!isatty(STDERR_FILENO))
        return;
    for (size_t i = 0; i < WIDTH; i++)
        bar[i] = i < done * WIDTH / all ? '#' : '.';
    bar[WIDTH] = 0;
    if (row == NULL)
        fprintf(stderr, "\r%60s\r", "");
    else
        fprintf(stderr, "\r[%s] %zu/%zu %-12.12s", bar, done, all, row->label);
    fflush(stderr);
}

/* Elsewhere, as in a log, a line after each. */
static void say_sample(size_t done, size_t all, const struct bench_row *row, size_t prompt) {
    double speed;
    if (isatty(STDERR_FILENO))
        return;
    memcpy(&speed, row->speeds.ptr + row->speeds.len - sizeof speed, sizeof speed);
    fprintf(stderr, "%zu/%zu %s, clients %d, prompt %zu: %.1f tokens/s\n", done, all, row->label,
            row->together, prompt + 1, speed);
}

/* A row whose requests at once take several prompts has its turn only where a new handful begins,
 * so that one repeat is every prompt once for each row. */
static bool has_turn(const struct bench_row *row, size_t prompt) {
    return prompt % (size_t)row->together == 0;
}

static size_t count_turns(const struct bench *bench) {
    size_t n = 0;
    for (size_t prompt = 0; prompt < bench->n_prompts; prompt++)
        for (size_t i = 0; i < bench->n_rows; i++)
            n += has_turn(&bench->rows[i], prompt);
    return n;
}

/* Every row in turn on each prompt, again and again: what disturbs the machine disturbs all. */
static int run_rows(struct bench *bench) {
    size_t repeats = bench->opts->has_bench_repeats ? bench->opts->bench_repeats : 2;
    size_t all = repeats * count_turns(bench), done = 0;
    struct bench_row warm_up = {.together = 1, .k = -1, .speculates = true};
    int status = bench_sample(bench, &warm_up, 0);
    bench_row_fini(&warm_up);
    ft_buf_reset(&bench->requests);
    for (size_t repeat = 0; repeat < repeats; repeat++)
        for (size_t prompt = 0; prompt < bench->n_prompts; prompt++)
            for (size_t i = 0; i < bench->n_rows && status == CTL_EXIT_OK; i++) {
                /* Another row begins each time, so that none always follows the same one. */
                struct bench_row *row = &bench->rows[(i + prompt + repeat) % bench->n_rows];
                if (!has_turn(row, prompt))
                    continue;
                show_bar(done++, all, row);
                status = bench_sample(bench, row, prompt);
                if (status == CTL_EXIT_OK)
                    say_sample(done, all, row, prompt);
            }
    show_bar(0, 1, NULL);
    return status;
}

static int cannot_write(const char *path) {
    char text[256];
    snprintf(text, sizeof text, "cannot write %.150s: %s", path, strerror(errno));
    return ctl_exit_because(CTL_EXIT_OUTPUT, text);
}

/* Before anything is measured: a page that cannot be written would cost all of it. What is in the
 * file stays until the new page is there. */
static int open_page(struct ft_str path, FILE **out) {
    if (path.len == 0)
        return CTL_EXIT_OK;
    int fd = open(path.ptr, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    *out = fd < 0 ? NULL : fdopen(fd, "w");
    return *out != NULL ? CTL_EXIT_OK : cannot_write(path.ptr);
}

static int write_page(const struct bench *bench, FILE *out) {
    struct ft_buf page;
    struct stat st;
    ft_buf_init(&page, 0);
    bench_page(bench, &page);
    bool ok = !page.failed && fstat(fileno(out), &st) == 0 &&
              (!S_ISREG(st.st_mode) || ftruncate(fileno(out), 0) == 0) &&
              fwrite(page.ptr, 1, page.len, out) == page.len && fflush(out) == 0;
    int status = ok ? CTL_EXIT_OK : cannot_write(bench->opts->html.ptr);
    ft_buf_fini(&page);
    return status;
}

/* page NULL: none is wanted */
static int report(const struct bench *bench, FILE *page) {
    struct ft_buf out;
    int status = page != NULL ? write_page(bench, page) : CTL_EXIT_OK;
    ft_buf_init(&out, 0);
    if (bench->opts->json)
        bench_json(bench, &out);
    else
        bench_table(bench, &out);
    int printed = ctl_exit_with_output(&out);
    ft_buf_fini(&out);
    return status != CTL_EXIT_OK ? status : printed;
}

int ctl_bench_run(struct ctl_options *opts) {
    static struct bench bench; /* large, and zero */
    struct ctl_session session;
    struct ft_buf text;
    FILE *page = NULL;
    bench.opts = opts;
    bench.session = &session;
    ft_buf_init(&text, 0);
    ft_buf_init(&bench.requests, 0);
    int status = read_prompts(&bench, &text);
    if (status == CTL_EXIT_OK)
        status = make_rows(&bench);
    if (status == CTL_EXIT_OK)
        status = open_page(opts->html, &page);
    if (status == CTL_EXIT_OK) {
        status = ctl_session_open(&session, opts);
        if (status == CTL_EXIT_OK)
            status = run_rows(&bench);
        if (status == CTL_EXIT_OK)
            status = report(&bench, page);
        ctl_session_close(&session);
    }
    if (page != NULL)
        fclose(page);
    for (size_t i = 0; i < bench.n_rows; i++)
        bench_row_fini(&bench.rows[i]);
    ft_buf_fini(&bench.requests);
    ft_buf_fini(&text);
    return status;
}
