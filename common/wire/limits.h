/* limits (wire): bounds that every decoder holds, before anybody reads the message.
 * Owns:    nothing.
 * Runs in: every process.
 * Never:   stands for a limit of the interface: those are lower, and the coordinator's to name. */
#ifndef FT_WIRE_LIMITS_H
#define FT_WIRE_LIMITS_H

#ifdef __cplusplus
extern "C" {
#endif

#define FT_WIRE_TOKENS_MAX (1 << 20) /* tokens of a list: the longest context of a known model */
#define FT_WIRE_STEP_SEQS_MAX 4096   /* sequences of a step: past any max_num_seqs */
#define FT_WIRE_LIST_MAX 65536       /* entries of any other list */
#define FT_WIRE_FINGERPRINT_BYTES 32 /* SHA-256 */

#ifdef __cplusplus
}
#endif
#endif
