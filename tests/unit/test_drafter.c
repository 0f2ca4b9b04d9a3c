/* What each drafter proposes, on texts small enough to see it. Letters stand for token ids. */
#include <check.h>
#include <stdlib.h>

#include "support/suite.h"
#include "unit/drafter_rig.h"

enum { VOCAB = 256, TEXT_MAX = 4096 };

static struct drafter_rig g_rig;
static int32_t g_tokens[TEXT_MAX];

static struct co_draft_context context_of(const char *text, int32_t k) {
    int32_t n = (int32_t)strlen(text);
    for (int32_t i = 0; i < n; i++)
        g_tokens[i] = (unsigned char)text[i];
    return (struct co_draft_context){
        .tokens = g_tokens, .n = n, .n_prompt = n, .n_vocab = VOCAB, .k_max = k};
}

static void require_proposal(const char *expected, const char *what) {
    const struct co_proposal *p = &g_rig.proposal;
    char got[FT_DRAFT_LEN_MAX + 1] = "";
    for (int32_t i = 0; i < p->n; i++)
        got[i] = (char)p->tokens[i];
    ck_assert_msg(strcmp(got, expected) == 0, "%s: '%s', expected '%s'", what, got, expected);
}

/* A new request of drafter that sees text at once. */
static void check(const char *drafter, const struct co_drafter_opts *opts, const char *text,
                  int32_t k, const char *expected) {
    drafter_rig_open(&g_rig, drafter, opts, TEXT_MAX);
    struct co_draft_context context = context_of(text, k);
    drafter_rig_propose(&g_rig, &context);
    require_proposal(expected, text);
    drafter_rig_close(&g_rig);
}

START_TEST(dev44_lookup_copies_what_followed_its_match) {
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    check("lookup", &opts, "123912371231", 0, "");
    check("lookup", &opts, "12391237123", 4, "7123");        /* the most recent of equals */
    check("lookup", &opts, "x123y4123z123y4123", 4, "z123"); /* the longest: y4123 */
    check("lookup", &opts, "555", 4, "5");                   /* a copy ends where the text does */
    check("lookup", &opts, "1", 4, "");
    check("lookup", &opts, "12", 4, "");
    check("lookup", &opts, "abcdefg", 4, "");
    check("lookup", &opts, "abxb", 4, ""); /* a match of one is too short */
    opts.lookup_min = 1;
    check("lookup", &opts, "abxb", 4, "xb");
    opts.lookup_min = 3;
    check("lookup", &opts, "12", 4, "");
    check("lookup", &opts, "1239123", 4, "9123");
    opts.ngram_window = 4; /* what lies further back does not count */
    check("lookup", &opts, "1239123", 4, "9123");
    check("lookup", &opts, "12391234567123", 4, "");
}
END_TEST

START_TEST(lookup_of_the_input_drafts_it_while_it_is_repeated) {
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    opts.lookup_input = true;
    drafter_rig_open(&g_rig, "lookup", &opts, TEXT_MAX);
    struct co_draft_context context = context_of("a sentence.a ", 6);
    context.n_prompt = 11;
    drafter_rig_propose(&g_rig, &context);
    require_proposal("senten", "repeated so far");
    context = context_of("a sentence.a sentenc", 16);
    context.n_prompt = 11;
    drafter_rig_propose(&g_rig, &context);
    require_proposal("e.", "the input ends");
    context = context_of("a sentence.my sent", 4);
    context.n_prompt = 11;
    drafter_rig_propose(&g_rig, &context);
    require_proposal("ence", "by suffix after a change");
    drafter_rig_close(&g_rig);
}
END_TEST

START_TEST(dev44_ngram_takes_the_longest_context_then_the_most_frequent) {
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    check("ngram", &opts, "12391237123", 4, "7123");     /* 9 and 7 once each: the most recent */
    check("ngram", &opts, "1239123912371 123", 2, "91"); /* 9 twice */
    check("ngram", &opts, "abxzbyzbyqabx", 1, "z");
    check("ngram", &opts, "ax bx cx dy ey fx gx", 1, " ");
    check("ngram", &opts, "qab qab rab rab rab qab", 2, " r"); /* then the longest: "ab " > r */
    check("ngram", &opts, "5", 4, "");
    check("ngram", &opts, "", 0, "");
    check("ngram", &opts, "abcd", 4, "");
    check("ngram", &opts, "abcda", 16, "bcdabcdabcdabcda"); /* predictions are context */
    opts.ngram_window = 6;
    check("ngram", &opts, "abcxyzuvwabc", 4, "");
    opts.ngram_window = 10;
    check("ngram", &opts, "abcxyzuvwabc", 2, "xy");
}
END_TEST

START_TEST(ngram_learns_as_the_text_grows_and_only_once) {
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    struct drafter_rig once;
    const char *text = "the cat sat on the mat, the cat sat on the hat, the cat ran on the mat";
    int32_t n = (int32_t)strlen(text);
    struct co_draft_context context = context_of(text, 8);
    drafter_rig_open(&g_rig, "ngram", &opts, TEXT_MAX);
    for (int32_t i = 1; i <= n; i++) {
        context.n = i;
        drafter_rig_propose(&g_rig, &context);
        drafter_rig_propose(&g_rig, &context);
        drafter_rig_open(&once, "ngram", &opts, TEXT_MAX);
        drafter_rig_propose(&once, &context);
        ck_assert_int_eq(once.proposal.n, g_rig.proposal.n);
        ck_assert_mem_eq(once.proposal.tokens, g_rig.proposal.tokens, sizeof once.proposal.tokens);
        drafter_rig_close(&once);
    }
    drafter_rig_close(&g_rig);
}
END_TEST

START_TEST(ngram_tables_are_bounded_and_count_what_they_drop) {
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    opts.ngram_entries = 64;
    drafter_rig_open(&g_rig, "ngram", &opts, TEXT_MAX);
    size_t bytes = g_rig.drafter->usage(g_rig.state).bytes;
    for (int32_t i = 0; i < TEXT_MAX; i++)
        g_tokens[i] = (i * i * 7 + i / 3) % VOCAB;
    for (int32_t n = 1; n <= TEXT_MAX; n += 97) {
        struct co_draft_context context = {
            .tokens = g_tokens, .n = n, .n_prompt = 1, .n_vocab = VOCAB, .k_max = 16};
        drafter_rig_propose(&g_rig, &context);
    }
    ck_assert_uint_eq(g_rig.drafter->usage(g_rig.state).bytes, bytes);
    ck_assert_uint_lt(bytes, 64 * 128);
    ck_assert_uint_gt(g_rig.drafter->usage(g_rig.state).evicted, 1000);
    /* What was seen last is still there. */
    for (int32_t i = 0; i < TEXT_MAX; i++)
        g_tokens[i] = i % 3;
    drafter_rig_close(&g_rig);
    drafter_rig_open(&g_rig, "ngram", &opts, TEXT_MAX);
    struct co_draft_context context = {
        .tokens = g_tokens, .n = TEXT_MAX, .n_prompt = 1, .n_vocab = VOCAB, .k_max = 3};
    drafter_rig_propose(&g_rig, &context);
    ck_assert_int_eq(g_rig.proposal.n, 3);
    for (int32_t i = 0; i < 3; i++)
        ck_assert_int_eq(g_rig.proposal.tokens[i], (TEXT_MAX + i) % 3);
    drafter_rig_close(&g_rig);
}
END_TEST

START_TEST(tables_learn_from_a_text) {
    static const int32_t text[] = {'a', 'b', 'a', 'b', 'a', 'c', 'd', 'a', 'b', 'z', 'b', 999};
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    opts.text = text;
    opts.n_text = sizeof text / sizeof text[0];
    check("unigram", &opts, "q", 3, "aaa"); /* a and b four times each: the lowest id */
    check("bigram", &opts, "a", 4, "baba");
    check("bigram", &opts, "c", 2, "da");
    check("bigram", &opts, "q", 2, "ab"); /* not in the text: the most frequent of all */
    opts.n_text = 0;
    struct ft_err err = {0};
    void *shared = NULL;
    ck_assert_int_eq(co_drafter_find("bigram")->open(&shared, &opts, &err), FT_E_PROC_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "drafter_text"));
    ck_assert_ptr_null(shared);
}
END_TEST

START_TEST(chain_asks_the_model_when_no_context_is_long_enough) {
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    drafter_rig_open(&g_rig, "chain", &opts, TEXT_MAX);
    struct co_draft_context context = context_of("abcdeabc", 4);
    context.model = true;
    drafter_rig_propose(&g_rig, &context);
    ck_assert(!g_rig.proposal.ask_model);
    require_proposal("deab", "three tokens of context");
    ck_assert_str_eq(g_rig.proposal.source, "ngram");
    drafter_rig_close(&g_rig);

    drafter_rig_open(&g_rig, "chain", &opts, TEXT_MAX);
    context = context_of("abcdexbc", 8);
    context.model = true;
    drafter_rig_propose(&g_rig, &context);
    ck_assert(g_rig.proposal.ask_model);
    ck_assert_int_eq(g_rig.proposal.n, 0);
    ck_assert_str_eq(g_rig.proposal.source, "model");
    /* The model's tokens bring back a context that is known. */
    g_rig.proposal.n = g_rig.proposal.n_model = 3;
    memcpy(g_rig.proposal.tokens, (int32_t[]){'a', 'b', 'c'}, 3 * sizeof(int32_t));
    g_rig.drafter->extend(g_rig.shared, g_rig.state, &context, &g_rig.proposal);
    require_proposal("abcdexbc", "extended");
    /* And tokens that do not are left as they are. */
    g_rig.proposal.n = 3;
    memcpy(g_rig.proposal.tokens, (int32_t[]){'q', 'r', 's'}, 3 * sizeof(int32_t));
    g_rig.drafter->extend(g_rig.shared, g_rig.state, &context, &g_rig.proposal);
    require_proposal("qrs", "not extended");
    /* Without a model a short context is better than nothing. */
    context.model = false;
    drafter_rig_propose(&g_rig, &context);
    ck_assert(!g_rig.proposal.ask_model);
    require_proposal("dexbcdex", "two tokens of context");
    drafter_rig_close(&g_rig);
}
END_TEST

START_TEST(chain_refuses_members_that_it_cannot_hold) {
    struct co_drafter_opts opts = drafter_rig_opts(VOCAB);
    struct ft_err err = {0};
    void *shared = NULL;
    opts.chain[1] = "nosuch";
    ck_assert_int_eq(co_drafter_find("chain")->open(&shared, &opts, &err), FT_E_PROC_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "nosuch"));
    opts.chain[1] = "chain";
    ck_assert_int_eq(co_drafter_find("chain")->open(&shared, &opts, &err), FT_E_PROC_CONFIG);
    ck_assert_ptr_null(shared);
    ck_assert_ptr_null(co_drafter_find("nosuch"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("drafter");
    TCase *tc = tcase_create("drafter");
    tcase_add_test(tc, dev44_lookup_copies_what_followed_its_match);
    tcase_add_test(tc, lookup_of_the_input_drafts_it_while_it_is_repeated);
    tcase_add_test(tc, dev44_ngram_takes_the_longest_context_then_the_most_frequent);
    tcase_add_test(tc, ngram_learns_as_the_text_grows_and_only_once);
    tcase_add_test(tc, ngram_tables_are_bounded_and_count_what_they_drop);
    tcase_add_test(tc, tables_learn_from_a_text);
    tcase_add_test(tc, chain_asks_the_model_when_no_context_is_long_enough);
    tcase_add_test(tc, chain_refuses_members_that_it_cannot_hold);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
