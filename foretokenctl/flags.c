#include "foretokenctl/flag_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#define MODULE "flags"
#define NAME_BYTES 64
#define NO_MARK CTL_FLAG_NO_MARK

#define MEMBER(member) offsetof(struct ctl_options, member)
static const struct ctl_flag flags[] = {
#define PLAIN(name, kind, member, commands, value, help)                                           \
    {#name, CTL_FLAG_##kind, MEMBER(member), NO_MARK, commands, value, help},
#define MARKED(name, kind, member, mark, commands, value, help)                                    \
    {#name, CTL_FLAG_##kind, MEMBER(member), MEMBER(mark), commands, value, help},
#include "foretokenctl/flags.def"
#undef PLAIN
#undef MARKED
};
#define N_FLAGS (sizeof flags / sizeof flags[0])

static const struct {
    const char *name;
    unsigned bit;
} commands[] = {
#define X(name, bit, arguments, timeout_s, summary) {#name, bit},
#include "foretokenctl/commands.def"
#undef X
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

/* ---- names ---------------------------------------------------------------------------------- */

static void spell(char out[NAME_BYTES], struct ft_str name, char from, char to) {
    size_t len = name.len < NAME_BYTES - 1 ? name.len : NAME_BYTES - 1;
    for (size_t i = 0; i < len; i++)
        out[i] = name.ptr[i] == from ? to : name.ptr[i];
    out[len] = 0;
}

const struct ctl_flag *ctl_flag_find(const char *name) {
    for (size_t i = 0; i < N_FLAGS; i++)
        if (strcmp(flags[i].name, name) == 0)
            return &flags[i];
    return NULL;
}

static enum ft_code unknown(const char *name, struct ft_err *err) {
    const struct ctl_flag *nearest = &flags[0];
    char given[NAME_BYTES], known[NAME_BYTES];
    for (size_t i = 1; i < N_FLAGS; i++)
        if (ft_str_distance(name, flags[i].name) < ft_str_distance(name, nearest->name))
            nearest = &flags[i];
    spell(given, ft_str_c(name), '_', '-');
    spell(known, ft_str_c(nearest->name), '_', '-');
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                      "unknown flag '--%s'; the nearest known one is '--%s'", given, known);
}

unsigned ctl_flags_command(struct ft_str name) {
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (ft_str_eq(name, ft_str_c(commands[i].name)))
            return commands[i].bit;
    return 0;
}

const char *ctl_flags_nearest_command(struct ft_str name) {
    size_t nearest = 0;
    char given[NAME_BYTES];
    spell(given, name, 0, 0);
    for (size_t i = 1; i < N_COMMANDS; i++)
        if (ft_str_distance(given, commands[i].name) <
            ft_str_distance(given, commands[nearest].name))
            nearest = i;
    return commands[nearest].name;
}

/* ---- values --------------------------------------------------------------------------------- */

static enum ft_code bad_value(const char *name, struct ft_str text, const char *want,
                              struct ft_err *err) {
    char spelled[NAME_BYTES];
    int shown = text.len < 80 ? (int)text.len : 80;
    spell(spelled, ft_str_c(name), '_', '-');
    return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "--%s is '%.*s': must be %s", spelled, shown,
                      shown == 0 ? "" : text.ptr, want);
}

/* Room for one item more in the list whose address lies at slot. It doubles at powers of two. */
static void *append(struct ft_arena *arena, void *slot, size_t *n, size_t item_bytes) {
    char *list;
    memcpy(&list, slot, sizeof list);
    if ((*n & (*n - 1)) == 0) {
        char *larger = ft_arena_calloc(arena, *n == 0 ? 1 : 2 * *n, item_bytes);
        if (larger == NULL)
            return NULL;
        if (*n > 0)
            memcpy(larger, list, *n * item_bytes);
        list = larger;
        memcpy(slot, &list, sizeof list);
    }
    return list + (*n)++ * item_bytes;
}

static enum ft_code no_memory(struct ft_err *err) {
    return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for the command line");
}

/* A whole number that fills its text but for blanks around it. */
static bool parse_integer(struct ft_str text, int64_t min, int64_t max, int64_t *out) {
    char copy[32];
    char *end;
    while (text.len > 0 && *text.ptr == ' ')
        text = (struct ft_str){text.ptr + 1, text.len - 1};
    while (text.len > 0 && text.ptr[text.len - 1] == ' ')
        text.len--;
    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = 0;
    errno = 0;
    long long value = strtoll(copy, &end, 10);
    if (*end != 0 || errno != 0 || value < min || value > max)
        return false;
    *out = value;
    return true;
}

static bool parse_u64(const char *text, uint64_t *out) {
    char *end;
    if (*text < '0' || *text > '9') /* strtoull takes a sign */
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == 0 && errno == 0;
}

static bool parse_real(struct ft_str text, double *out) {
    char copy[64];
    char *end;
    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = 0;
    *out = strtod(copy, &end);
    return *end == 0;
}

/* Cut the text before the next comma off *rest. */
static struct ft_str next_item(struct ft_str *rest) {
    const char *comma = rest->len == 0 ? NULL : memchr(rest->ptr, ',', rest->len);
    size_t len = comma == NULL ? rest->len : (size_t)(comma - rest->ptr);
    struct ft_str item = {rest->ptr, len};
    *rest =
        comma == NULL ? (struct ft_str){NULL, 0} : (struct ft_str){comma + 1, rest->len - len - 1};
    return item;
}

enum ft_code ctl_flags_add_ids(struct ft_arena *arena, const char *name, struct ft_str text,
                               int32_t **ids, size_t *n_ids, struct ft_err *err) {
    do {
        struct ft_str item = next_item(&text);
        int64_t id;
        if (!parse_integer(item, INT32_MIN, INT32_MAX, &id))
            return bad_value(name, item, "whole numbers with commas between", err);
        int32_t *slot = append(arena, ids, n_ids, sizeof *slot);
        if (slot == NULL)
            return no_memory(err);
        *slot = (int32_t)id;
    } while (text.ptr != NULL);
    return FT_OK;
}

static enum ft_code add_reals(struct ft_arena *arena, const char *name, struct ft_str text,
                              void *slot, size_t *n, struct ft_err *err) {
    do {
        struct ft_str item = next_item(&text);
        double value;
        if (!parse_real(item, &value))
            return bad_value(name, item, "numbers with commas between", err);
        float *real = append(arena, slot, n, sizeof *real);
        if (real == NULL)
            return no_memory(err);
        *real = (float)value;
    } while (text.ptr != NULL);
    return FT_OK;
}

static enum ft_code add_biases(struct ft_arena *arena, const char *name, struct ft_str text,
                               void *slot, size_t *n, struct ft_err *err) {
    do {
        struct ft_str item = next_item(&text);
        const char *colon = item.len == 0 ? NULL : memchr(item.ptr, ':', item.len);
        size_t id_len = colon == NULL ? 0 : (size_t)(colon - item.ptr);
        int64_t id;
        double value;
        if (colon == NULL ||
            !parse_integer((struct ft_str){item.ptr, id_len}, INT32_MIN, INT32_MAX, &id) ||
            !parse_real((struct ft_str){colon + 1, item.len - id_len - 1}, &value))
            return bad_value(name, item, "ID:NUMBER with commas between", err);
        struct ft_bias *bias = append(arena, slot, n, sizeof *bias);
        if (bias == NULL)
            return no_memory(err);
        *bias = (struct ft_bias){(int32_t)id, (float)value};
    } while (text.ptr != NULL);
    return FT_OK;
}

static enum ft_code set_number(const struct ctl_flag *flag, void *slot, const char *text,
                               struct ft_err *err) {
    int64_t integer;
    double real;
    switch (flag->kind) {
    case CTL_FLAG_F32:
    case CTL_FLAG_F64:
        if (!parse_real(ft_str_c(text), &real))
            return bad_value(flag->name, ft_str_c(text), "a number", err);
        if (flag->kind == CTL_FLAG_F32)
            *(float *)slot = (float)real;
        else
            *(double *)slot = real;
        return FT_OK;
    case CTL_FLAG_I32:
        if (!parse_integer(ft_str_c(text), INT32_MIN, INT32_MAX, &integer))
            return bad_value(flag->name, ft_str_c(text), "a whole number of 32 bits", err);
        *(int32_t *)slot = (int32_t)integer;
        return FT_OK;
    case CTL_FLAG_U32:
        if (!parse_integer(ft_str_c(text), 0, UINT32_MAX, &integer))
            return bad_value(flag->name, ft_str_c(text), "a whole number, 0 to 4294967295", err);
        *(uint32_t *)slot = (uint32_t)integer;
        return FT_OK;
    default:
        if (!parse_u64(text, slot))
            return bad_value(flag->name, ft_str_c(text), "a whole number of 64 bits, at least 0",
                             err);
        return FT_OK;
    }
}

enum ft_code ctl_flag_set(const struct ctl_flag *flag, struct ctl_options *opts, const char *text,
                          struct ft_err *err) {
    void *slot = (char *)opts + flag->offset;
    void *mark = flag->mark == NO_MARK ? NULL : (char *)opts + flag->mark;
    struct ft_str *item;
    enum ft_code code;
    switch (flag->kind) {
    case CTL_FLAG_STRS:
        item = append(opts->arena, slot, mark, sizeof *item);
        if (item == NULL)
            return no_memory(err);
        *item = ft_str_c(text);
        return FT_OK;
    case CTL_FLAG_IDS:
        return ctl_flags_add_ids(opts->arena, flag->name, ft_str_c(text), slot, mark, err);
    case CTL_FLAG_REALS:
        return add_reals(opts->arena, flag->name, ft_str_c(text), slot, mark, err);
    case CTL_FLAG_BIASES:
        return add_biases(opts->arena, flag->name, ft_str_c(text), slot, mark, err);
    case CTL_FLAG_STR:
        *(struct ft_str *)slot = ft_str_c(text);
        break;
    case CTL_FLAG_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return bad_value(flag->name, ft_str_c(text), "true or false", err);
        *(bool *)slot = *text == 't';
        break;
    default:
        code = set_number(flag, slot, text, err);
        if (code != FT_OK)
            return code;
    }
    if (mark != NULL)
        *(bool *)mark = true;
    return FT_OK;
}

/* ---- command line --------------------------------------------------------------------------- */

struct parser {
    int argc, next;
    char **argv;
    bool given[N_FLAGS];
};

/* One flag at parser->next, and its value when that is the next argument. */
static enum ft_code parse_flag(struct parser *parser, struct ctl_options *opts,
                               struct ft_err *err) {
    const char *text = parser->argv[parser->next++] + 2;
    const char *equals = strchr(text, '=');
    const char *value = equals == NULL ? NULL : equals + 1;
    char name[NAME_BYTES];
    spell(name, (struct ft_str){text, equals == NULL ? strlen(text) : (size_t)(equals - text)}, '-',
          '_');
    const struct ctl_flag *flag = ctl_flag_find(name);
    if (flag == NULL && value == NULL && strncmp(name, "no_", 3) == 0) {
        flag = ctl_flag_find(name + 3);
        if (flag != NULL && flag->kind != CTL_FLAG_BOOL)
            flag = NULL;
        value = "false";
    }
    if (flag == NULL)
        return unknown(name, err);
    if (value == NULL && flag->kind == CTL_FLAG_BOOL)
        value = "true";
    if (value == NULL && parser->next == parser->argc)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "--%s needs a value: %s", text,
                          flag->value);
    if (value == NULL)
        value = parser->argv[parser->next++];
    parser->given[flag - flags] = true;
    return ctl_flag_set(flag, opts, value, err);
}

static enum ft_code check_command_takes(const struct parser *parser, const struct ctl_options *opts,
                                        struct ft_err *err) {
    unsigned command = opts->n_words == 0 ? 0 : ctl_flags_command(opts->words[0]);
    for (size_t i = 0; command != 0 && i < N_FLAGS; i++) {
        char name[NAME_BYTES];
        if (!parser->given[i] || (flags[i].commands & command) != 0)
            continue;
        spell(name, ft_str_c(flags[i].name), '_', '-');
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE, "%s takes no flag '--%s'",
                          opts->words[0].ptr, name);
    }
    return FT_OK;
}

enum ft_code ctl_flags_parse(int argc, char **argv, struct ctl_options *opts, struct ft_err *err) {
    struct parser parser = {.argc = argc, .next = 1, .argv = argv};
    bool flags_end = false;
    opts->request.stream = true;
    while (parser.next < argc) {
        const char *word = argv[parser.next];
        if (!flags_end && strcmp(word, "--") == 0) {
            flags_end = true;
            parser.next++;
        } else if (!flags_end && strcmp(word, "-h") == 0) {
            opts->help = true;
            parser.next++;
        } else if (!flags_end && strncmp(word, "--", 2) == 0) {
            enum ft_code code = parse_flag(&parser, opts, err);
            if (code != FT_OK)
                return code;
        } else {
            struct ft_str *item = append(opts->arena, &opts->words, &opts->n_words, sizeof *item);
            if (item == NULL)
                return no_memory(err);
            *item = ft_str_c(word);
            parser.next++;
        }
    }
    return check_command_takes(&parser, opts, err);
}

void ctl_flags_print(FILE *out, unsigned command) {
    for (size_t i = 0; i < N_FLAGS; i++) {
        const struct ctl_flag *flag = &flags[i];
        char name[NAME_BYTES], usage[2 * NAME_BYTES];
        bool global = flag->commands == CTL_ALL;
        if (command == CTL_GLOBAL ? !global : global || (flag->commands & command) == 0)
            continue;
        spell(name, ft_str_c(flag->name), '_', '-');
        snprintf(usage, sizeof usage, "--%s%s%s%s",
                 flag->kind == CTL_FLAG_BOOL && !global ? "[no-]" : "", name,
                 flag->value[0] == 0 ? "" : " ", flag->value);
        if (strlen(usage) > 28)
            fprintf(out, "  %s\n  %-28s %s\n", usage, "", flag->help);
        else
            fprintf(out, "  %-28s %s\n", usage, flag->help);
    }
}
