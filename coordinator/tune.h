/* tune: parameters that an operator changes while the service runs.
 * Owns:    nothing; the values are those of app->config.
 * Runs in: coordinator; loop thread only.
 * Never:   takes a part of what it was given; touches a round that is in flight. */
#ifndef CO_TUNE_H
#define CO_TUNE_H

#include "common/wire/operate.h"
#include "coordinator/app.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CO_TUNABLES_MAX 16
#define CO_TUNABLE_TEXT_MAX FT_PARAM_STR_MAX

/* All of the list or none: each by the rules of params.def, then together. The next round uses it.
 * fail FT_E_REQ_INVALID names what is wrong, or the parameters that can be set;
 *      FT_E_PEER_UNAVAILABLE while the service starts */
enum ft_code co_tune_set(struct co_app *app, const struct ft_wire_parameter *list, size_t n,
                         struct ft_err *err);

/* Values in force, as co_tune_set takes them. Returns how many.
 * out  names  [CO_TUNABLES_MAX] static; texts [CO_TUNABLES_MAX] */
size_t co_tune_show(const struct co_app *app, const char *names[CO_TUNABLES_MAX],
                    char texts[CO_TUNABLES_MAX][CO_TUNABLE_TEXT_MAX]);

/* Before a round: what was set since the last one reaches the requests. One whose prompt is being
 * tokenized follows when it is queued. */
void co_tune_follow(struct co_app *app);

#ifdef __cplusplus
}
#endif
#endif
