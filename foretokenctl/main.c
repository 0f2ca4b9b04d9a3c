#include <stdio.h>

#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/print.h"

struct command {
    const char *name;
    unsigned bit;
    const char *arguments;
    double timeout_s;
    const char *summary;
    int (*run)(struct ctl_options *opts);
};

static const struct command commands[] = {
#define X(name, bit, arguments, timeout_s, summary)                                                \
    {#name, bit, arguments, timeout_s, summary, ctl_##name##_run},
#include "foretokenctl/commands.def"
#undef X
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static const struct command *find(struct ft_str name) {
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].bit == ctl_flags_command(name))
            return &commands[i];
    return NULL;
}

static int unknown_command(struct ft_str name) {
    char text[256];
    snprintf(text, sizeof text, "unknown command '%.80s'; the nearest known one is '%s'", name.ptr,
             ctl_flags_nearest_command(name));
    return ctl_exit_because(CTL_EXIT_USAGE, text);
}

static void help_all(FILE *out) {
    fputs("usage: foretokenctl [FLAG...] COMMAND [FLAG...] [ARGUMENT...]\n\ncommands:\n", out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-28s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "  %-28s %s\n", "help [COMMAND]", "print this, or the flags of a command");
    fputs("\nflags of every command:\n", out);
    ctl_flags_print(out, CTL_GLOBAL);
    fprintf(out, "\n%s", ctl_exit_help);
}

static void help_command(const struct command *command) {
    printf("usage: foretokenctl %s [FLAG...] %s\n\n%s\n\nflags:\n", command->name,
           command->arguments, command->summary);
    ctl_flags_print(stdout, command->bit);
    printf("\nflags of every command:\n");
    ctl_flags_print(stdout, CTL_GLOBAL);
    printf("\n%s", ctl_exit_help);
}

/* help [COMMAND] and COMMAND --help */
static int help(const struct ctl_options *opts) {
    bool by_command = opts->n_words > 0 && ft_str_eq(opts->words[0], ft_str_c("help"));
    size_t at = by_command ? 1 : 0;
    if (opts->n_words <= at) {
        help_all(stdout);
        return CTL_EXIT_OK;
    }
    const struct command *command = find(opts->words[at]);
    if (command == NULL)
        return unknown_command(opts->words[at]);
    help_command(command);
    return CTL_EXIT_OK;
}

static int run(int argc, char **argv, struct ctl_options *opts) {
    struct ft_err err = {0};
    if (ctl_flags_parse(argc, argv, opts, &err) != FT_OK)
        return ctl_exit_from_err(&err);
    if (opts->version) {
        printf("foretokenctl %s\n", CTL_VERSION);
        return CTL_EXIT_OK;
    }
    bool no_command = opts->n_words == 0;
    if (opts->help || (!no_command && ft_str_eq(opts->words[0], ft_str_c("help"))))
        return help(opts);
    if (no_command) {
        help_all(stderr);
        return CTL_EXIT_USAGE;
    }
    const struct command *command = find(opts->words[0]);
    if (command == NULL)
        return unknown_command(opts->words[0]);
    if (*command->arguments == 0 && opts->n_words > 1) {
        char text[256];
        snprintf(text, sizeof text, "%s takes no argument, got '%.80s'", command->name,
                 opts->words[1].ptr);
        return ctl_exit_because(CTL_EXIT_USAGE, text);
    }
    if (!opts->has_timeout)
        opts->timeout_s = command->timeout_s;
    return command->run(opts);
}

int main(int argc, char **argv) {
    struct ctl_options opts = {.arena = ft_arena_create(16384, 0)};
    if (opts.arena == NULL)
        return ctl_exit_because(CTL_EXIT_OS, "no memory");
    int status = run(argc, argv, &opts);
    struct ft_err err = {0};
    if (status == CTL_EXIT_OK && ctl_print_flush(stdout, &err) != FT_OK)
        status = ctl_exit_because(CTL_EXIT_OUTPUT, err.text);
    ft_arena_destroy(&opts.arena);
    return status;
}
