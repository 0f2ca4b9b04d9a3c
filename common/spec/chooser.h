/* chooser: decides rounds whose rows lie on a device, there: one launch for all of a step.
 * Owns:    the batch, its copy on the device, pinned memory for both ways; create to destroy.
 * Runs in: coordinator; loop thread only.
 * Never:   allocates after create; decides for the rule: see choice.h. */
#ifndef FT_SPEC_CHOOSER_H
#define FT_SPEC_CHOOSER_H

#include "common/gpu/device.h"
#include "common/spec/choice.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ft_chooser;

/* device is borrowed; its memory is not the host's. fail FT_E_PROC_MEMORY, FT_E_PROC_OS */
enum ft_code ft_chooser_create(struct ft_chooser **out, struct ft_device *device, int32_t rows_max,
                               struct ft_err *err);
void ft_chooser_destroy(struct ft_chooser **chooser);

/* Forget the rounds of the last step. */
void ft_chooser_reset(struct ft_chooser *chooser);
/* As ft_choice_add_round; the drafts are copied. */
bool ft_chooser_add(struct ft_chooser *chooser, const struct ft_rule *rule,
                    const struct ft_round *round, struct ft_choice_round *at);
/* Decide what was added, and wait for it. fail FT_E_PROC_INTERNAL: the device can no longer be used
 */
enum ft_code ft_chooser_run(struct ft_chooser *chooser, struct ft_err *err);
/* As ft_choice_verdict, after run. */
bool ft_chooser_verdict(const struct ft_chooser *chooser, const struct ft_rule *rule,
                        const struct ft_round *round, const struct ft_choice_round *at,
                        struct ft_verdict *out);

#ifdef __cplusplus
}
#endif
#endif
