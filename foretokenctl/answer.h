/* answer (ctl): what a Generate call has said so far, and the whole of it as JSON.
 * Owns:    copies of ids, texts and log-probabilities, from init to fini.
 * Runs in: foretokenctl; one thread.
 * Never:   prints. */
#ifndef CTL_ANSWER_H
#define CTL_ANSWER_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/wire/inference.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CTL_CHOICES_MAX 64 /* n of a request is at most that */

struct ctl_choice {                    /* one continuation */
    struct ft_buf ids, text, logprobs; /* int32_t; bytes; struct ft_logprobs */
    struct ft_wire_generated last;     /* the message with a finish reason, once it has come */
};

struct ctl_answer {
    struct ft_arena *arena; /* of the last messages */
    struct ft_buf request_id, prompt_ids, prompt_logprobs;
    struct ctl_choice *choices; /* [n_choices] */
    size_t n_choices;
};

/* For n continuations; 0 is 1. false: no memory, or more than CTL_CHOICES_MAX. Either way fini. */
bool ctl_answer_init(struct ctl_answer *answer, uint32_t n);
void ctl_answer_fini(struct ctl_answer *answer);

/* Take a message. out is decoded and lives until the next one, or until fini when it is a last one.
 * keep_text: false leaves ids, text and log-probabilities to the caller.
 * fail FT_E_PEER_PROTOCOL: no such message, or an index that was not asked for */
enum ft_code ctl_answer_take(struct ctl_answer *answer, struct ft_str message, bool keep_text,
                             struct ft_wire_generated *out, struct ft_err *err);

/* Every continuation has its finish reason. */
bool ctl_answer_complete(const struct ctl_answer *answer);
/* Memory ran out on the way. */
bool ctl_answer_failed(const struct ctl_answer *answer);

/* "name":value,... without braces: one continuation's fields are the object's own, several are a
 * list "choices". */
void ctl_answer_json(const struct ctl_answer *answer, struct ft_buf *out);

/* Accepted by drafted; mean tokens of a round that drafted, the target's own included; 0 when
 * nothing was drafted. */
double ctl_answer_acceptance_rate(const struct ft_wire_spec_stats *stats);
double ctl_answer_mean_acceptance_length(const struct ft_wire_spec_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
