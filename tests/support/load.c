#include "support/load.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

static struct ft_wire_generate request_of(int i, bool speculates) {
    static char prompts[LOAD_STREAMS][32];
    snprintf(prompts[i], sizeof prompts[i], "load %d", i);
    struct ft_wire_generate request = gen_text(prompts[i], LOAD_TOKENS, 4);
    request.params.ignore_eos = true;
    request.has_spec_enabled = !speculates;
    if (i % 2 == 1) {
        request.params.temperature = 0.8f;
        request.params.has_seed = true;
        request.params.seed = 100 + (uint64_t)i;
        request.spec.rejection_sample_method = ft_str_c("coupled");
    }
    return request;
}

static void start(struct load *load, int i) {
    struct ft_wire_generate request = request_of(i, true);
    gen_start(load->cluster, &request, &load->gens[i]);
    load->running[i] = true;
}

static void note(struct load *load, int i, const char *what) {
    if (load->first_trouble[0] == 0)
        snprintf(load->first_trouble, sizeof load->first_trouble, "stream %d, %zu tokens: %.180s",
                 i, load->gens[i].n_ids, what);
}

static void look(struct load *load, int i) {
    struct gen *gen = &load->gens[i];
    size_t n = gen->n_ids < LOAD_TOKENS ? gen->n_ids : LOAD_TOKENS;
    load->n_double += gen->n_ids - n;
    if (load->drains && gen->status.code == 14 && gen->n_ids == 0) {
        load->n_refused++;
    } else if (gen->status.code != 0) {
        load->n_lost++;
        note(load, i, gen->status.text);
    } else if (gen->n_ids != LOAD_TOKENS || gen->bad_utf8 ||
               memcmp(gen->ids, load->texts[i], sizeof load->texts[i]) != 0) {
        load->n_wrong++;
        note(load, i, "another text");
    } else {
        load->n_done++;
    }
    gen_fini(gen);
    load->running[i] = false;
}

static void harvest(struct load *load) {
    for (int i = 0; i < LOAD_STREAMS; i++) {
        if (load->running[i] && load->gens[i].done)
            look(load, i);
        if (!load->running[i] && load->restarts)
            start(load, i);
    }
}

int load_in_flight(const struct load *load) {
    int n = 0;
    for (int i = 0; i < LOAD_STREAMS; i++)
        n += load->running[i];
    return n;
}

void load_start(struct load *load, struct cluster *cluster) {
    memset(load, 0, sizeof *load);
    load->cluster = cluster;
    for (int i = 0; i < LOAD_STREAMS; i++) {
        struct gen *gen = &load->gens[i];
        struct ft_wire_generate request = request_of(i, false);
        gen_run(cluster, &request, gen);
        ck_assert_msg(gen->status.code == 0, "%s", gen->status.text);
        ck_assert_uint_eq(gen->n_ids, LOAD_TOKENS);
        memcpy(load->texts[i], gen->ids, sizeof load->texts[i]);
        gen_fini(gen);
    }
    load->restarts = true;
    harvest(load);
}

void load_run(struct load *load, int ms) {
    int64_t begin_ns = ft_clock_now_ns(), until_ns = begin_ns + (int64_t)ms * 1000000;
    for (;;) {
        int64_t now_ns = ft_clock_now_ns();
        if (load->restarts ? now_ns >= until_ns : load_in_flight(load) == 0)
            return;
        ck_assert_msg(now_ns < begin_ns + (int64_t)ms * 1000000 + 120000000000,
                      "the streams do not end");
        ft_rpc_loop_step(load->cluster->loop, now_ns + 5000000);
        harvest(load);
    }
}

void load_end(struct load *load) {
    load->restarts = false;
    load_run(load, 0);
}
