/* Tokenizer throughput: MB/s on a text, and how the time of one long word grows with its length.
 * usage: bench_tokenizer MODEL_DIR [TEXT_FILE]
 * Without a file the text is a small story told again and again with other names. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/text/tokenizer.h"

#define TEXT_BYTES ((size_t)8 << 20)
#define REPEATS 5

static double seconds_of(struct ft_tokenizer *tokenizer, struct ft_str text, size_t *n_ids) {
    const struct ft_encode_opts opts = {0};
    double best = 1e30;
    for (int i = 0; i < REPEATS; i++) {
        struct ft_ids ids = {0};
        struct ft_err err = {0};
        int64_t start = ft_clock_now_ns();
        if (ft_tokenizer_encode(tokenizer, text, &opts, &ids, &err) != FT_OK) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
        double seconds = (double)(ft_clock_now_ns() - start) * 1e-9;
        *n_ids = ids.len;
        ft_ids_fini(&ids);
        if (seconds < best)
            best = seconds;
    }
    return best;
}

/* Words of many lengths; names are drawn so that pieces do not all repeat. */
static void write_story(struct ft_buf *out) {
    static const char *const parts[] = {"Once upon a time, ",
                                        "in a village by the sea, ",
                                        "there lived a child named ",
                                        "who wouldn't sleep.\n",
                                        "\"It's late,\" said the lighthouse keeper. ",
                                        "Nevertheless, 27 ships ",
                                        "sailed past the harbour; ",
                                        "nobody knew why.\n\n"};
    uint32_t random = 1;
    while (out->len < TEXT_BYTES) {
        random = random * 1664525u + 1013904223u;
        ft_buf_add_c(out, parts[random >> 29]);
        if (random >> 29 == 2)
            ft_buf_addf(out, "%c%c%c%c%c ", 'A' + (int)(random >> 8) % 26,
                        'a' + (int)(random >> 10) % 26, 'a' + (int)(random >> 12) % 26,
                        'a' + (int)(random >> 14) % 26, 'a' + (int)(random >> 16) % 26);
    }
}

static void bench_text(struct ft_tokenizer *tokenizer, struct ft_str text) {
    size_t n_ids;
    double seconds = seconds_of(tokenizer, text, &n_ids);
    printf("text         %8.1f MB/s  %zu bytes, %zu tokens\n", (double)text.len * 1e-6 / seconds,
           text.len, n_ids);
}

static void bench_word(struct ft_tokenizer *tokenizer, const char *name, const char *unit,
                       size_t n) {
    double seconds[2];
    size_t n_ids = 0;
    for (size_t twice = 0; twice < 2; twice++) {
        struct ft_buf word;
        ft_buf_init(&word, 0);
        for (size_t i = 0; i < n << twice; i++)
            ft_buf_add_c(&word, unit);
        seconds[twice] = seconds_of(tokenizer, ft_buf_str(&word), &n_ids);
        ft_buf_fini(&word);
    }
    printf("%-12s %8.3f s     x %zu; twice the length takes %.2f times as long\n", name, seconds[0],
           n, seconds[1] / seconds[0]);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3 || argv[1][0] == '-') {
        fprintf(stderr, "usage: %s MODEL_DIR [TEXT_FILE]\n", argv[0]);
        return 64;
    }
    struct ft_tokenizer *tokenizer = NULL;
    struct ft_err err = {0};
    struct ft_buf text;
    ft_buf_init(&text, 0);
    int64_t start = ft_clock_now_ns();
    enum ft_code code = ft_tokenizer_open(&tokenizer, argv[1], &err);
    if (code == FT_OK) {
        printf("open         %8.3f s\n", (double)(ft_clock_now_ns() - start) * 1e-9);
        if (argc == 3)
            code = ft_file_read(argv[2], (size_t)1 << 30, &text, &err);
        else
            write_story(&text);
    }
    if (code != FT_OK) {
        fprintf(stderr, "%s\n", err.text);
        return ft_code_exit_status(code);
    }
    bench_text(tokenizer, ft_buf_str(&text));
    bench_word(tokenizer, "letters", "a", 500000);
    bench_word(tokenizer, "underscores", "_", 100000);
    bench_word(tokenizer, "spaces", " ", 100000);
    bench_word(tokenizer, "CJK", "\xE4\xB8\xAD", 100000);
    ft_buf_fini(&text);
    ft_tokenizer_close(&tokenizer);
    return 0;
}
