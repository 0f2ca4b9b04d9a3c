/* Requests before they run: what counts for those whose prompts are still tokenized, and how many
 * may come. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/tune.h"
#include "sim/net.h"
#include "sim/world.h"
#include "support/suite.h"

#define MS 1000000

static struct world g_world;

static void begin(const struct sim_opts *opts) {
    net_reset(1);
    world_start(&g_world, 1, opts);
}

static struct sim_client *add(int64_t in_ms, uint32_t family, int32_t n_prompt,
                              uint32_t max_tokens) {
    struct sim_client *c = world_client(&g_world, in_ms * MS);
    sim_client_prompt(c, family, n_prompt);
    c->params.max_tokens = max_tokens;
    c->params.ignore_eos = true;
    return c;
}

static struct co_request *request_of(const struct sim_client *c) {
    for (struct co_request *r = g_world.app->first; r != NULL; r = r->next)
        if (strcmp(r->id, c->id) == 0)
            return r;
    return NULL;
}

/* A client whose prompt a helper thread has got. */
static struct sim_client *add_tokenizing(void) {
    struct sim_client *c = add(0, 1, 20, 40);
    c->long_text = true;
    while (g_world.app->encoding.first == NULL)
        ck_assert(world_step(&g_world));
    return c;
}

static void set(const char *name, const char *value) {
    struct ft_wire_parameter parameter = {ft_str_c(name), ft_str_c(value)};
    struct ft_err err = {0};
    ck_assert_msg(co_tune_set(g_world.app, &parameter, 1, &err) == FT_OK, "%s", err.text);
}

/* ---- while a prompt is tokenized ------------------------------------------------------------- */

START_TEST(parameters_set_while_a_prompt_is_tokenized_count_for_it) {
    begin(&(struct sim_opts){.args = {"--num_speculative_tokens=5", "--tokenizer_threads=1"}});
    struct sim_client *running = add(0, 2, 20, 400); /* rounds go on meanwhile */
    while (running->n_got < 10)
        ck_assert(world_step(&g_world));
    struct sim_client *c = add_tokenizing();
    set("rejection_sample_method", "coupled");
    set("drafter", "ngram");
    set("num_speculative_tokens", "2");
    while (request_of(c) == NULL)
        ck_assert(world_step(&g_world));
    const struct co_request *r = request_of(c);
    ck_assert_str_eq(r->rule->name, "coupled");
    ck_assert(r->sampling.coupled && r->draft_sampling.coupled);
    ck_assert_str_eq(r->drafter->name, "ngram");
    ck_assert_int_eq(r->k, 2);
    ck_assert(!running->done);
    world_run(&g_world, 10000);
    set("num_speculative_tokens", "0");
    c = add_tokenizing();
    set("num_speculative_tokens", "4");
    while (request_of(c) == NULL)
        ck_assert(world_step(&g_world));
    ck_assert(request_of(c)->speculate);
    world_run(&g_world, 10000);
    world_stop(&g_world);
}
END_TEST

int main(void) {
    ft_log_init("sim", FT_LOG_ERROR);
    Suite *suite = suite_create("admission");
    TCase *tc = tcase_create("admission");
    tcase_add_test(tc, parameters_set_while_a_prompt_is_tokenized_count_for_it);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
