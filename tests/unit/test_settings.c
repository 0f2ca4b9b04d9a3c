#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "common/base/settings.h"
#include "support/suite.h"

/* ---- the ini reader ------------------------------------------------------------------------- */

struct seen {
    char text[2048];
    char problems[4096];
};

static enum ft_code see_key(void *user, const char *section, const char *key, const char *value,
                            struct ft_err *err) {
    struct seen *seen = user;
    size_t len = strlen(seen->text);
    snprintf(seen->text + len, sizeof seen->text - len, "[%s]%s=<%s>;", section, key, value);
    if (strcmp(key, "bad") == 0)
        return ft_err_set(err, FT_E_PROC_CONFIG, "test", "bad is bad");
    return FT_OK;
}

static void see_problem(void *user, const struct ft_err *err) {
    struct seen *seen = user;
    size_t len = strlen(seen->problems);
    snprintf(seen->problems + len, sizeof seen->problems - len, "%s\n", err->text);
}

static enum ft_code read_text(struct seen *seen, struct ft_str text, bool all, struct ft_err *err) {
    struct ft_conf_reader reader = {
        .name = "f.conf",
        .on_key = see_key,
        .on_problem = all ? see_problem : NULL,
        .user = seen,
    };
    memset(seen, 0, sizeof *seen);
    return ft_conf_read_text(&reader, text, err);
}

START_TEST(read_keys_comments_and_blanks_gives_each_key) {
    struct seen seen;
    struct ft_err err = {0};
    struct ft_str text = ft_str_c("\xEF\xBB\xBF# one\r\n[a]\r\nx = 1 ; said\r\n\n  y=\tb c \n"
                                  "; z = 3\n[b]\nx =\n  w = a=b:c\nlast = 1");
    ck_assert_int_eq(read_text(&seen, text, false, &err), FT_OK);
    ck_assert_str_eq(seen.text, "[a]x=<1>;[a]y=<b c>;[b]x=<>;[b]w=<a=b:c>;[b]last=<1>;");
}
END_TEST

/* An indented line is one more key, and not more of the value before it. */
START_TEST(read_indented_keys_are_keys) {
    struct seen seen;
    struct ft_err err = {0};
    ck_assert_int_eq(read_text(&seen, ft_str_c("[a]\n  x = 1\n\ty = 2\n"), false, &err), FT_OK);
    ck_assert_str_eq(seen.text, "[a]x=<1>;[a]y=<2>;");
}
END_TEST

static const struct {
    const char *text, *says;
} k_bad_texts[] = {
    {"[a]\nx\n", "f.conf:2: 'x' is neither key = value"},
    {"[a]\nx: 1\n", "f.conf:2: 'x: 1' is neither key = value"},
    {"[a]\n= 1\n", "f.conf:2: '= 1' is neither"},
    {"x = 1\n", "f.conf:1: x stands before the first [section]"},
    {"[a\nx = 1\n", "f.conf:1: '[a' has no ']'"},
    {"[a]\nx = 1 # no\n", "f.conf:2: x is '1 # no': a comment stands on a line of its own"},
    {"[a]\nx = \x01\n", "f.conf:2: the line holds the control character 1"},
    {"[a]\nx = \xff\n", "f.conf:2: the line is not UTF-8"},
    {"[a]\n\n\nbad = 1\n", "f.conf:4: bad is bad"},
};

START_TEST(read_what_it_cannot_fails_naming_the_line) {
    struct seen seen;
    struct ft_err err = {0};
    struct ft_str text = ft_str_c(k_bad_texts[_i].text);
    ck_assert_int_eq(read_text(&seen, text, false, &err), FT_E_PROC_CONFIG);
    ck_assert_msg(strncmp(err.text, k_bad_texts[_i].says, strlen(k_bad_texts[_i].says)) == 0, "%s",
                  err.text);
}
END_TEST

START_TEST(read_nul_byte_fails) {
    struct seen seen;
    struct ft_err err = {0};
    struct ft_str text = {"[a]\nx = 1\0002\n", 12};
    ck_assert_int_eq(read_text(&seen, text, false, &err), FT_E_PROC_CONFIG);
    ck_assert_str_eq(err.text, "f.conf:2: the line holds the control character 0");
}
END_TEST

START_TEST(read_line_at_the_limit_passes_and_past_it_fails) {
    struct seen seen;
    struct ft_err err = {0};
    char text[FT_CONF_LINE_MAX + 16];
    for (size_t over = 0; over < 2; over++) {
        size_t len = FT_CONF_LINE_MAX + over;
        memcpy(text, "[a]\nx = ", 8);
        memset(text + 8, 'v', len - 4);
        enum ft_code code = read_text(&seen, (struct ft_str){text, len + 4}, false, &err);
        ck_assert_int_eq(code, over ? FT_E_PROC_CONFIG : FT_OK);
        ck_assert_uint_eq(strlen(seen.text), over ? 0 : FT_CONF_LINE_MAX - 4 + 8);
    }
    ck_assert_str_eq(err.text, "f.conf:2: the line is 199 bytes long: must be at most 198");
}
END_TEST

START_TEST(read_with_a_listener_tells_every_problem) {
    struct seen seen;
    struct ft_err err = {0};
    struct ft_str text = ft_str_c("y\n[a]\nbad = 1\nx = 1\nz\n");
    ck_assert_int_eq(read_text(&seen, text, true, &err), FT_E_PROC_CONFIG);
    ck_assert_str_eq(seen.problems,
                     "f.conf:1: 'y' is neither key = value, [section] nor a comment\n"
                     "f.conf:3: bad is bad\n"
                     "f.conf:5: 'z' is neither key = value, [section] nor a comment\n");
    ck_assert_str_eq(seen.text, "[a]bad=<1>;[a]x=<1>;");
    ck_assert_ptr_nonnull(strstr(err.text, "f.conf:1:"));
}
END_TEST

START_TEST(read_file_that_is_not_there_is_a_config_error) {
    struct seen seen = {.text = ""};
    struct ft_err err = {0};
    struct ft_conf_reader reader = {
        .name = "/nonexistent/x.conf", .on_key = see_key, .user = &seen};
    ck_assert_int_eq(ft_conf_read_file(&reader, &err), FT_E_PROC_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/x.conf"));
    reader.name = "/";
    ck_assert_int_eq(ft_conf_read_file(&reader, &err), FT_E_PROC_CONFIG);
}
END_TEST

/* ---- sources of a parameter ----------------------------------------------------------------- */

struct values {
    int32_t count;
    double ratio;
    int64_t bytes;
    bool flag;
    char word[FT_PARAM_STR_MAX];
    int32_t fd;
};
#define AT(member) offsetof(struct values, member)
#define FIXED FT_PARAM_FIXED
#define LIVE FT_PARAM_LIVE
static const struct ft_param k_rows[] = {
    {"count", FT_PARAM_I32, "things", 1, 10, "3", NULL, LIVE, AT(count), "how many"},
    {"ratio", FT_PARAM_F64, "", 0, 1, "0.1", NULL, LIVE, AT(ratio), "a part"},
    {"bytes", FT_PARAM_SIZE, "bytes", 0, 1e12, "1Ki", NULL, FIXED, AT(bytes), "room"},
    {"flag", FT_PARAM_BOOL, "", 0, 0, "false", NULL, FIXED, AT(flag), "whether"},
    {"word", FT_PARAM_STR, "", 0, 0, "b", "a|b|c", LIVE, AT(word), "which"},
    {"fd", FT_PARAM_I32, "", -1, 9, "-1", NULL, FT_PARAM_ARGV, AT(fd), "of this start"},
};
static const struct ft_param_table k_table = {k_rows, sizeof k_rows / sizeof k_rows[0]};

struct rig {
    struct values values;
    struct ft_settings settings;
    char path[64];
    char *argv[8], *envp[8];
    struct ft_err err;
    struct seen seen;
};

/* A file of text (NULL: none), environment and command line, each ended by NULL. */
static enum ft_code settle(struct rig *rig, const char *text, const char *const *env,
                           const char *const *args) {
    int argc = 1;
    memset(rig, 0, sizeof *rig);
    rig->argv[0] = (char *)(uintptr_t) "test";
    if (text != NULL) {
        snprintf(rig->path, sizeof rig->path, "/tmp/ft_settings.%d.conf", (int)getpid());
        FILE *file = fopen(rig->path, "w");
        fputs(text, file);
        fclose(file);
        rig->argv[argc++] = (char *)(uintptr_t) "--config";
        rig->argv[argc++] = rig->path;
    }
    for (int i = 0; args != NULL && args[i] != NULL; i++)
        rig->argv[argc++] = (char *)(uintptr_t)args[i];
    for (int i = 0; env != NULL && env[i] != NULL; i++)
        rig->envp[i] = (char *)(uintptr_t)env[i];
    rig->settings = (struct ft_settings){
        .table = &k_table,
        .values = &rig->values,
        .section = "target",
        .usage = "test",
        .argc = argc,
        .argv = rig->argv,
        .envp = rig->envp,
    };
    if (ft_settings_wants_check(argc, rig->argv)) {
        rig->settings.on_problem = see_problem;
        rig->settings.user = &rig->seen;
    }
    enum ft_code code = ft_settings_read(&rig->settings, &rig->err);
    if (text != NULL)
        unlink(rig->path);
    return code;
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(sources_later_ones_overrule_earlier_ones) {
    struct rig rig;
    const char *file = "[coordinator]\ncount = 9\n[target]\ncount = 4\nword = c\nbytes = 2Ki\n";
    ck_assert_int_eq(settle(&rig, file,
                            WORDS("FORETOKEN_TARGET_WORD=a", "FORETOKEN_TARGET_RATIO=0.5",
                                  "FORETOKEN_DRAFT_COUNT=x", "FORETOKEN_ENDPOINT=y"),
                            WORDS("--ratio=0.25", "--flag", "--fd=2")),
                     FT_OK);
    ck_assert_int_eq(rig.values.count, 4);
    ck_assert_str_eq(rig.values.word, "a");
    ck_assert_double_eq(rig.values.ratio, 0.25);
    ck_assert_int_eq(rig.values.bytes, 2048);
    ck_assert(rig.values.flag);
    ck_assert_int_eq(rig.values.fd, 2);
    static const enum ft_setting_source sources[] = {FT_SET_BY_FILE, FT_SET_BY_ARGV,
                                                     FT_SET_BY_FILE, FT_SET_BY_ARGV,
                                                     FT_SET_BY_ENV,  FT_SET_BY_ARGV};
    for (size_t i = 0; i < k_table.n_rows; i++)
        ck_assert_int_eq(rig.settings.origins[i].source, sources[i]);
    ck_assert_int_eq(rig.settings.origins[0].line, 4);
}
END_TEST

static const struct {
    const char *file;
    const char *env[2], *args[3];
    const char *says; /* %s: the file */
} k_bad[] = {
    {"[target]\ncuont = 4\n",
     {0},
     {0},
     "%s:2: unknown parameter 'cuont'; the nearest known one is "
     "'count'"},
    {"[target]\ncount = 11\n", {0}, {0}, "%s:2: count is '11': must be 1 to 10 things"},
    {"[target]\n\nword = d\n", {0}, {0}, "%s:3: word is 'd': must be one of a|b|c"},
    {"[target]\ncount = 2\ncount = 3\n", {0}, {0}, "%s:3: count is '3': is set in line 2 already"},
    {"[target]\nfd = 2\n", {0}, {0}, "%s:2: fd is '2': can be set on the command line only"},
    {"[tarket]\ncount = 2\n",
     {0},
     {0},
     "%s:1: unknown section 'tarket'; the nearest known one is "
     "'target'"},
    {"[target]\ncount = 2\n[drafft]\n",
     {0},
     {0},
     "%s:3: unknown section 'drafft'; the nearest known one is 'draft'"},
    {NULL,
     {"FORETOKEN_TARGET_COUNT=0"},
     {0},
     "environment FORETOKEN_TARGET_COUNT: count is '0': "
     "must be 1 to 10 things"},
    {NULL,
     {"FORETOKEN_TARGET_COUNTS=2"},
     {0},
     "environment FORETOKEN_TARGET_COUNTS: unknown "
     "parameter 'counts'; the nearest known one is "
     "'count'"},
    {NULL, {0}, {"--config"}, "--config needs a value"},
    {NULL, {0}, {"--config=/nonexistent/x"}, "/nonexistent/x"},
};

START_TEST(sources_a_bad_value_fails_naming_where_it_stands) {
    struct rig rig;
    char want[256];
    ck_assert_int_eq(settle(&rig, k_bad[_i].file, k_bad[_i].env, k_bad[_i].args), FT_E_PROC_CONFIG);
    if (k_bad[_i].file == NULL) {
        ck_assert_msg(strstr(rig.err.text, k_bad[_i].says) != NULL, "%s", rig.err.text);
        return;
    }
    snprintf(want, sizeof want, "%s%s", rig.path, k_bad[_i].says + 2);
    ck_assert_str_eq(rig.err.text, want);
}
END_TEST

START_TEST(sources_a_check_tells_the_problems_of_all_of_them) {
    struct rig rig;
    ck_assert_int_eq(settle(&rig, "[target]\ncount = 0\nratio = x\n",
                            WORDS("FORETOKEN_TARGET_WORD=z"),
                            WORDS("--check-config", "--bytes=-1")),
                     FT_E_PROC_CONFIG);
    ck_assert_ptr_nonnull(strstr(rig.seen.problems, ":2: count is '0'"));
    ck_assert_ptr_nonnull(strstr(rig.seen.problems, ":3: ratio is 'x'"));
    ck_assert_ptr_nonnull(strstr(rig.seen.problems, "FORETOKEN_TARGET_WORD: word is 'z'"));
    ck_assert_ptr_nonnull(strstr(rig.seen.problems, "bytes is '-1'"));
    ck_assert_ptr_nonnull(strstr(rig.err.text, "count is '0'"));
}
END_TEST

START_TEST(sources_blame_puts_the_line_before_a_late_problem) {
    struct rig rig;
    char want[160];
    ck_assert_int_eq(
        settle(&rig, "[target]\ncount = 4\n", WORDS("FORETOKEN_TARGET_RATIO=0.5"), NULL), FT_OK);
    ft_err_set(&rig.err, FT_E_PROC_CONFIG, "test", "count is 4: must be odd");
    ft_settings_blame(&rig.settings, &rig.err);
    snprintf(want, sizeof want, "%s:2: count is 4: must be odd", rig.path);
    ck_assert_str_eq(rig.err.text, want);
    ft_err_set(&rig.err, FT_E_PROC_CONFIG, "test", "ratio is 0.5: must not be");
    ft_settings_blame(&rig.settings, &rig.err);
    ck_assert_str_eq(rig.err.text, "environment FORETOKEN_TARGET_*: ratio is 0.5: must not be");
    ft_err_set(&rig.err, FT_E_PROC_CONFIG, "test", "bytes is 1024: must not be");
    ft_settings_blame(&rig.settings, &rig.err);
    ck_assert_str_eq(rig.err.text, "bytes is 1024: must not be");
}
END_TEST

/* What is printed as in force, read again, is in force again. */
START_TEST(print_reads_back_as_the_same_values) {
    struct rig first, second;
    char *text = NULL;
    size_t len = 0;
    ck_assert_int_eq(settle(&first, "[target]\nratio = 0.3333333333333333\nword=c\n", NULL,
                            WORDS("--bytes=3Mi", "--flag", "--fd=4")),
                     FT_OK);
    FILE *out = open_memstream(&text, &len);
    ft_settings_print(&first.settings, out);
    fclose(out);
    ck_assert_int_eq(settle(&second, text, NULL, WORDS("--fd=4")), FT_OK);
    ck_assert_mem_eq(&first.values, &second.values, sizeof first.values);
    ck_assert_ptr_null(strstr(text, "fd ="));
    free(text);
}
END_TEST

static void see_change(void *user, const struct ft_param *row, const char *now, const char *fresh) {
    struct seen *seen = user;
    size_t len = strlen(seen->text);
    snprintf(seen->text + len, sizeof seen->text - len, "%s %s>%s;", row->name, now, fresh);
}

START_TEST(reload_takes_what_is_reloadable_and_names_the_rest) {
    struct rig now, fresh;
    struct seen seen = {.text = ""};
    ck_assert_int_eq(settle(&now, NULL, NULL, NULL), FT_OK);
    ck_assert_int_eq(
        settle(&fresh, NULL, NULL, WORDS("--count=5", "--bytes=7", "--word=a", "--ratio=0.1")),
        FT_OK);
    ck_assert_int_eq(ft_param_reload(&k_table, &now.values, &fresh.values, see_change, &seen), 1);
    ck_assert_str_eq(seen.text, "count 3>5;bytes 1024>7;word b>a;");
    ck_assert_int_eq(now.values.count, 5);
    ck_assert_str_eq(now.values.word, "a");
    ck_assert_int_eq(now.values.bytes, 1024);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("settings");
    TCase *conf = tcase_create("conf");
    tcase_add_test(conf, read_keys_comments_and_blanks_gives_each_key);
    tcase_add_test(conf, read_indented_keys_are_keys);
    tcase_add_loop_test(conf, read_what_it_cannot_fails_naming_the_line, 0,
                        sizeof k_bad_texts / sizeof k_bad_texts[0]);
    tcase_add_test(conf, read_nul_byte_fails);
    tcase_add_test(conf, read_line_at_the_limit_passes_and_past_it_fails);
    tcase_add_test(conf, read_with_a_listener_tells_every_problem);
    tcase_add_test(conf, read_file_that_is_not_there_is_a_config_error);
    suite_add_tcase(suite, conf);
    TCase *sources = tcase_create("sources");
    tcase_add_test(sources, sources_later_ones_overrule_earlier_ones);
    tcase_add_loop_test(sources, sources_a_bad_value_fails_naming_where_it_stands, 0,
                        sizeof k_bad / sizeof k_bad[0]);
    tcase_add_test(sources, sources_a_check_tells_the_problems_of_all_of_them);
    tcase_add_test(sources, sources_blame_puts_the_line_before_a_late_problem);
    tcase_add_test(sources, print_reads_back_as_the_same_values);
    tcase_add_test(sources, reload_takes_what_is_reloadable_and_names_the_rest);
    suite_add_tcase(suite, sources);
    return suite_run(suite);
}
