/* rules: the rows of the registry in rule.c.
 * Owns:    nothing.
 * Runs in: coordinator.
 * Never:   included outside common/spec. */
#ifndef FT_SPEC_RULES_H
#define FT_SPEC_RULES_H

#include "common/spec/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ft_rule ft_rule_standard;

#ifdef __cplusplus
}
#endif
#endif
