/* config check and config show: each process reads its section itself, so that what is checked is
 * what will run; here its values are looked at together. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "foretokenctl/commands.h"
#include "foretokenctl/exit.h"
#include "foretokenctl/print.h"
#include "foretokenctl/process.h"

#define SYSTEM_FILE "/etc/foretoken/foretoken.conf"
#define SOCKET_PATH_MAX 107  /* of sockaddr_un, its NUL apart */
#define OUTPUT_MAX (1 << 20) /* of a process that is asked for its settings */

enum section { COORDINATOR, DRAFT, TARGET, N_SECTIONS };
static const char *const names[N_SECTIONS] = {"coordinator", "draft", "target"};

struct check {
    const char *file;
    bool present[N_SECTIONS]; /* the file has keys of it */
    bool read[N_SECTIONS];    /* its process found it right, and values says what is in force */
    struct ft_buf values[N_SECTIONS];
    struct ft_buf text, json; /* the findings, as lines and as members of a list */
    int n_errors, n_warnings;
};

/* ---- findings ------------------------------------------------------------------------------- */

static void find_text(struct check *check, bool is_error, enum section section,
                      struct ft_str text) {
    const char *severity = is_error ? "error" : "warning";
    int *n = is_error ? &check->n_errors : &check->n_warnings;
    ft_buf_addf(&check->text, "%s: [%s] ", severity, names[section]);
    ctl_print_escape(&check->text, text, true);
    ft_buf_add_c(&check->text, "\n");
    ft_buf_addf(&check->json, "%s{\"severity\":\"%s\",\"section\":\"%s\",\"text\":",
                check->json.len > 0 ? "," : "", severity, names[section]);
    ft_buf_add_json(&check->json, text);
    ft_buf_add_c(&check->json, "}");
    ++*n;
}

static void __attribute__((format(printf, 4, 5)))
find(struct check *check, bool is_error, enum section section, const char *format, ...) {
    struct ft_err err = {0}; /* for its bound on a line */
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ft_err_set(&err, FT_E_PROC_CONFIG, "config", "%s", line);
    find_text(check, is_error, section, ft_str_c(err.text));
}

/* ---- values in force ------------------------------------------------------------------------ */

struct value {
    struct ft_str text, origin; /* "key = text ; origin" */
};

static bool value_of(const struct check *check, enum section section, const char *key,
                     struct value *out) {
    size_t key_len = strlen(key);
    for (struct ft_str rest = ft_buf_str(&check->values[section]); rest.len > 0;) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        struct ft_str line = {rest.ptr, end == NULL ? rest.len : (size_t)(end - rest.ptr)};
        rest = (struct ft_str){line.ptr + line.len, rest.len - line.len};
        rest = rest.len == 0 ? rest : (struct ft_str){rest.ptr + 1, rest.len - 1};
        if (line.len < key_len + 3 || memcmp(line.ptr, key, key_len) != 0 ||
            memcmp(line.ptr + key_len, " = ", 3) != 0)
            continue;
        const char *value = line.ptr + key_len + 3, *at = line.ptr + line.len - 1;
        while (at > value && memcmp(at - 1, " ; ", 3) != 0)
            at--;
        if (at <= value)
            continue;
        out->text = (struct ft_str){value, (size_t)(at - 1 - value)};
        out->origin = (struct ft_str){at + 2, (size_t)(line.ptr + line.len - at - 2)};
        return true;
    }
    return false;
}

static void copy_value(char *out, size_t cap, struct ft_str text) {
    snprintf(out, cap, "%.*s", (int)text.len, text.len == 0 ? "" : text.ptr);
}

/* ---- checks across sections ----------------------------------------------------------------- */

#define SHOW(s) (int)(s).len, (s).ptr

static void check_endpoint(struct check *check, const char *key, enum section worker) {
    struct value endpoint, listen;
    if (!check->read[COORDINATOR] || !check->read[worker] ||
        !value_of(check, COORDINATOR, key, &endpoint) ||
        !value_of(check, worker, "listen", &listen))
        return;
    if (endpoint.text.len == 0)
        find(check, false, worker, "the coordinator's %s is not set: the worker would not be used",
             key);
    else if (!ft_str_eq(endpoint.text, listen.text))
        find(check, true, COORDINATOR,
             "%s is '%.*s' (%.*s): must be where the %s worker listens, '%.*s' (%.*s)", key,
             SHOW(endpoint.text), SHOW(endpoint.origin), names[worker], SHOW(listen.text),
             SHOW(listen.origin));
}

/* The folder of a Unix socket is there, and the path fits. */
static void check_socket(struct check *check, enum section section) {
    struct value listen;
    struct stat st;
    char path[FT_CONF_LINE_MAX + 64];
    if (!check->read[section] || !value_of(check, section, "listen", &listen) ||
        listen.text.len < 5 || memcmp(listen.text.ptr, "unix:", 5) != 0)
        return;
    copy_value(path, sizeof path, (struct ft_str){listen.text.ptr + 5, listen.text.len - 5});
    if (strlen(path) > SOCKET_PATH_MAX)
        find(check, true, section,
             "listen is '%.*s' (%.*s): the path is %zu bytes long, must be at most %d",
             SHOW(listen.text), SHOW(listen.origin), strlen(path), SOCKET_PATH_MAX);
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return;
    *slash = 0;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        find(check, false, section, "listen is '%.*s' (%.*s): there is no folder %s yet",
             SHOW(listen.text), SHOW(listen.origin), path);
}

static void check_listens_differ(struct check *check) {
    for (enum section a = COORDINATOR; a < N_SECTIONS; a++)
        for (enum section b = a + 1; b < N_SECTIONS; b++) {
            struct value one, other;
            if (check->read[a] && check->read[b] && value_of(check, a, "listen", &one) &&
                value_of(check, b, "listen", &other) && ft_str_eq(one.text, other.text))
                find(check, true, b, "listen is '%.*s' (%.*s): the %s listens there (%.*s)",
                     SHOW(other.text), SHOW(other.origin), names[a], SHOW(one.origin));
        }
}

/* Each process says what its tokenizer means: files that differ may mean the same. The
 * coordinator's, where it has one of its own, stands for both. */
static void check_tokenizers(struct check *check) {
    static const char key[] = "# tokenizer_fingerprint";
    struct value target, other;
    if (!check->read[TARGET] || !value_of(check, TARGET, key, &target))
        return;
    if (check->read[COORDINATOR] && value_of(check, COORDINATOR, key, &other) &&
        !ft_str_eq(target.text, other.text))
        find(check, true, COORDINATOR,
             "tokenizer is another one than the target model's: the coordinator would end with "
             "status %d",
             CTL_EXIT_CONFIG);
    else if (check->read[DRAFT] && value_of(check, DRAFT, key, &other) &&
             !ft_str_eq(target.text, other.text))
        find(check, true, DRAFT,
             "the draft model has another tokenizer than the target model: the coordinator would "
             "end with status %d",
             CTL_EXIT_CONFIG);
}

static long number_of(const struct check *check, enum section section, const char *key) {
    struct value value;
    char text[64];
    if (!check->read[section] || !value_of(check, section, key, &value))
        return 0;
    copy_value(text, sizeof text, value.text);
    return strtol(text, NULL, 10);
}

/* What the coordinator would decode at once, a worker must be able to step at once. */
static void check_capacity(struct check *check, enum section worker) {
    long wanted = number_of(check, COORDINATOR, "max_num_seqs");
    long there = number_of(check, worker, "max_num_seqs");
    if (wanted > 0 && there > 0 && there < wanted)
        find(check, false, worker,
             "max_num_seqs is %ld: fewer than the coordinator's %ld, which will not be reached",
             there, wanted);
}

static void check_length(struct check *check) {
    long wanted = number_of(check, COORDINATOR, "max_model_len");
    long there = number_of(check, TARGET, "# longest_sequence");
    if (there > 0 && wanted > there)
        find(check, true, COORDINATOR, "max_model_len is %ld: the target worker serves at most %ld",
             wanted, there);
}

static void check_together(struct check *check) {
    check_endpoint(check, "target_endpoint", TARGET);
    check_endpoint(check, "draft_endpoint", DRAFT);
    for (enum section section = COORDINATOR; section < N_SECTIONS; section++)
        check_socket(check, section);
    check_listens_differ(check);
    check_tokenizers(check);
    check_length(check);
    check_capacity(check, TARGET);
    check_capacity(check, DRAFT);
}

/* ---- each section by its process ------------------------------------------------------------ */

static enum ft_code see_key(void *user, const char *section, const char *key, const char *value,
                            struct ft_err *err) {
    struct check *check = user;
    (void)key;
    (void)value;
    (void)err;
    for (enum section i = COORDINATOR; i < N_SECTIONS; i++)
        if (strcmp(section, names[i]) == 0)
            check->present[i] = true;
    return FT_OK;
}

static void ignore_problem(void *user, const struct ft_err *err) { /* each process tells its own */
    (void)user;
    (void)err;
}

/* Lines "foretoken-target: text" that a process wrote. A problem of the file's form, which names
 * the file, is found by each process, and told once; what is missing is missing in each section. */
static void take_problems(struct check *check, enum section section, struct ft_str rest) {
    while (rest.len > 0) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        struct ft_str line = {rest.ptr, end == NULL ? rest.len : (size_t)(end - rest.ptr)};
        size_t taken = line.len + (end != NULL);
        rest = (struct ft_str){rest.ptr + taken, rest.len - taken};
        const char *colon = memmem(line.ptr, line.len, ": ", 2);
        if (colon != NULL && strncmp(line.ptr, "foretoken-", 10) == 0)
            line = (struct ft_str){colon + 2, line.len - (size_t)(colon + 2 - line.ptr)};
        bool of_file = memmem(line.ptr, line.len, check->file, strlen(check->file)) != NULL;
        if (line.len == 0 || (of_file && check->text.len > 0 &&
                              memmem(check->text.ptr, check->text.len, line.ptr, line.len) != NULL))
            continue;
        find_text(check, true, section, line);
    }
}

static int check_section(struct check *check, enum section section) {
    struct ctl_process process = {.output_max = OUTPUT_MAX};
    struct ft_err err = {0};
    char program[64];
    snprintf(program, sizeof program, "foretoken-%s", names[section]);
    const char *argv[] = {program, "--config", check->file, "--check-config", NULL};
    if (ctl_process_run(&process, argv, &err) != FT_OK) {
        ctl_process_fini(&process);
        return ctl_exit_from_err(&err);
    }
    check->read[section] = process.status == 0;
    ft_buf_add_str(&check->values[section], ft_buf_str(&process.out));
    int n_before = check->n_errors;
    take_problems(check, section, ft_buf_str(&process.err));
    if (process.status != 0 && check->n_errors == n_before && n_before == 0)
        find(check, true, section, "%s ended with status %d", program, process.status);
    ctl_process_fini(&process);
    return CTL_EXIT_OK;
}

static int check_all(struct check *check) {
    struct ft_conf_reader reader = {
        .name = check->file, .on_key = see_key, .on_problem = ignore_problem, .user = check};
    struct ft_err err = {0};
    struct value endpoint;
    if (access(check->file, R_OK) != 0) {
        ctl_exit_unopened(&err, errno, check->file);
        return ctl_exit_from_err(&err);
    }
    ft_conf_read_file(&reader, &err);
    int status = check_section(check, COORDINATOR);
    if (status == CTL_EXIT_OK)
        status = check_section(check, TARGET);
    bool drafts = check->read[COORDINATOR] &&
                  value_of(check, COORDINATOR, "draft_endpoint", &endpoint) &&
                  endpoint.text.len > 0;
    if (status == CTL_EXIT_OK && (check->present[DRAFT] || drafts))
        status = check_section(check, DRAFT);
    if (status == CTL_EXIT_OK)
        check_together(check);
    return status;
}

/* ---- the command ---------------------------------------------------------------------------- */

static void add_settings_json(struct ft_buf *out, const struct check *check) {
    ft_buf_add_c(out, ",\"settings\":{");
    for (enum section i = COORDINATOR, first = N_SECTIONS; i < N_SECTIONS; i++) {
        if (!check->read[i])
            continue;
        ft_buf_addf(out, "%s\"%s\":", first == N_SECTIONS ? "" : ",", names[i]);
        ft_buf_add_json(out, ft_buf_str(&check->values[i]));
        first = i;
    }
    ft_buf_add_c(out, "}");
}

static int print(const struct check *check, bool show, bool json) {
    struct ft_buf out;
    bool ok = check->n_errors == 0;
    ft_buf_init(&out, 0);
    if (json) {
        ft_buf_add_c(&out, "{\"file\":");
        ft_buf_add_json(&out, ft_str_c(check->file));
        ft_buf_addf(&out, ",\"ok\":%s,\"errors\":%d,\"warnings\":%d,\"problems\":[",
                    ok ? "true" : "false", check->n_errors, check->n_warnings);
        ft_buf_add_str(&out, ft_buf_str(&check->json));
        ft_buf_add_c(&out, "]");
        if (show)
            add_settings_json(&out, check);
        ft_buf_add_c(&out, "}\n");
    } else {
        ft_buf_add_str(&out, ft_buf_str(&check->text));
        for (enum section i = COORDINATOR; show && i < N_SECTIONS; i++)
            ft_buf_add_str(&out, ft_buf_str(&check->values[i]));
        if (!show)
            ft_buf_addf(&out, "%s: %s, %d errors, %d warnings\n", check->file,
                        ok ? "can be used" : "cannot be used", check->n_errors, check->n_warnings);
    }
    int status = ctl_exit_with_output(&out);
    ft_buf_fini(&out);
    return status == CTL_EXIT_OK && !ok ? CTL_EXIT_CONFIG : status;
}

/* Of an installation elsewhere than in /usr: the file of its own prefix. */
static const char *default_file(void) {
    static char path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    for (int up = 0; n > 0 && up < 2; up++) { /* PREFIX/bin/foretokenctl */
        while (n > 0 && path[n - 1] != '/')
            n--;
        n--;
    }
    if (n <= 0)
        return SYSTEM_FILE;
    snprintf(path + n, sizeof path - (size_t)n, "%s", SYSTEM_FILE);
    return access(path, F_OK) == 0 ? path : SYSTEM_FILE;
}

int ctl_config_run(struct ctl_options *opts) {
    struct check check = {.file = default_file()};
    bool is_show = opts->n_words > 1 && ft_str_eq(opts->words[1], ft_str_c("show"));
    bool is_check = opts->n_words > 1 && ft_str_eq(opts->words[1], ft_str_c("check"));
    if ((!is_show && !is_check) || opts->n_words > 3)
        return ctl_exit_because(CTL_EXIT_USAGE, "usage: config check [FILE], config show [FILE]");
    if (opts->n_words > 2)
        check.file = opts->words[2].ptr;
    ft_buf_init(&check.text, 0);
    ft_buf_init(&check.json, 0);
    for (enum section i = COORDINATOR; i < N_SECTIONS; i++)
        ft_buf_init(&check.values[i], 0);
    int status = check_all(&check);
    if (status == CTL_EXIT_OK)
        status = print(&check, is_show, opts->json);
    for (enum section i = COORDINATOR; i < N_SECTIONS; i++)
        ft_buf_fini(&check.values[i]);
    ft_buf_fini(&check.json);
    ft_buf_fini(&check.text);
    return status;
}
