/* flags (ctl): the command line, by the rows of flags.def.
 * Owns:    nothing; lists live in the arena of struct ctl_options, texts are those of argv.
 * Runs in: foretokenctl, at start.
 * Never:   checks ranges that the service checks; prints but for ctl_flags_print. */
#ifndef CTL_FLAGS_H
#define CTL_FLAGS_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/wire/inference.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Commands as bits, so that a flag can name those that take it. */
enum ctl_command {
    CTL_GENERATE = 1,
    CTL_TOKENIZE = 2,
    CTL_DETOKENIZE = 4,
    CTL_MODEL = 8,
    CTL_STATS = 16,
    CTL_BATCH = 32,
    CTL_INPUT = CTL_GENERATE | CTL_TOKENIZE,
    CTL_REQUEST = CTL_GENERATE | CTL_BATCH,
    CTL_BENCH = 64,
    CTL_TRACE = 128,
    CTL_HEALTH = 1 << 8,
    CTL_REQUESTS = 1 << 9,
    CTL_CANCEL = 1 << 10,
    CTL_DRAIN = 1 << 11,
    CTL_RESUME = 1 << 12,
    CTL_SET = 1 << 13,
    CTL_DRAFT = 1 << 14,
    CTL_CONFIG = 1 << 20,
    CTL_ALL = (1 << 24) - 1,
    /* to ctl_flags_print: the flags of CTL_ALL, which it leaves out elsewhere */
    CTL_GLOBAL = 1 << 24
};

struct ctl_options {
    struct ft_arena *arena; /* set by the caller */
    /* the words that are no flags: the command, then its arguments */
    struct ft_str *words;
    size_t n_words;
    /* what flags.def names; texts are empty when not given */
    struct ft_str endpoint, prompt, prompt_file, chat_file, request_id;
    struct ft_str cacert, cert, key, tls_name, token, token_file;
    bool tls, has_tls;
    bool has_prompt, has_prompt_file, has_chat_file, has_timeout, has_concurrency, has_progress;
    bool progress;
    uint32_t concurrency;
    double timeout_s; /* not given: the caller sets the command's own */
    bool json, help, version, stats, pieces;
    struct ft_str *chat;
    size_t n_chat;
    int32_t *ids;
    size_t n_ids;
    /* bench */
    int32_t *bench_k, *bench_together;
    size_t n_bench_k, n_bench_together;
    struct ft_str *bench_drafters;
    size_t n_bench_drafters;
    uint32_t bench_repeats;
    bool has_bench_repeats;
    /* operating */
    bool watch;
    double interval_s;
    bool has_interval;
    struct ft_str reason, model_dir;
    struct ft_str html;
    uint32_t rounds;                 /* of a trace; 0: all */
    struct ft_wire_generate request; /* all but its input and request_id */
};

/* Read argv[1..argc-1]: --name value, --name=value; '-' and '_' in names are the same; a switch
 * is --name, --no-name or --name=true|false; "--" ends the flags.
 * fail FT_E_REQ_INVALID: an unknown flag (names the nearest one), no value, a value of another
 *      type, a flag that the command does not take. FT_E_PROC_MEMORY. */
enum ft_code ctl_flags_parse(int argc, char **argv, struct ctl_options *opts, struct ft_err *err);

/* "1,2, 3" appended to the list at *ids, which lives in the arena. name is for the error. */
enum ft_code ctl_flags_add_ids(struct ft_arena *arena, const char *name, struct ft_str text,
                               int32_t **ids, size_t *n_ids, struct ft_err *err);

/* The bit of a command's name, 0 when there is none; and the name that is most like it. */
unsigned ctl_flags_command(struct ft_str name);
const char *ctl_flags_nearest_command(struct ft_str name);

/* The flags that a command takes, a line or two each. */
void ctl_flags_print(FILE *out, unsigned command);

#ifdef __cplusplus
}
#endif
#endif
