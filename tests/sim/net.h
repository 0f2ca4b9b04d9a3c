/* net: rpc.h and clock.h over a simulated network with a clock of its own. Linked in place of
 * common/rpc, so that the real coordinator and the real worker services talk through it.
 * Owns:    simulated time, messages on their way, calls, timers.
 * Runs in: tests/sim; one thread.
 * Never:   does anything that the seed does not decide.
 *
 * A loop is a process. Messages of one call and direction arrive in order, others may overtake
 * them; a process handles one event at a time and the time that it spends delays its next one. */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "common/rpc/rpc.h"

/* Forget everything (all loops must be destroyed) and start at time 1 s. */
void net_reset(uint64_t seed);
/* Handle the next event or timer; false when there is none. */
bool net_step(void);
int64_t net_now_ns(void);
/* 0 .. n - 1, the one source of chance of a simulation. */
uint32_t net_below(uint32_t n);
bool net_chance(uint32_t percent);

/* The handler that runs now computes for so long. */
void net_spend_ns(int64_t ns);
/* The process ends at once: its peers notice, it does not. What is left of it can be freed. */
void net_kill(struct ft_rpc_loop *loop);
/* The process handles nothing before until_ns. */
void net_stall(struct ft_rpc_loop *loop, int64_t until_ns);
/* So many percent of the messages of bidirectional streams arrive a second time, some much later.
 */
void net_set_duplicates(uint32_t percent);
/* Whether processes that share memory use it for messages; of this seed. */
bool net_shares_channels(void);
/* Whether the client reads: messages that it does not read keep the server's call unwritable. */
void net_stream_read(struct ft_rpc_stream *stream, bool on);
/* What ft_rpc_call_peer says of this client's calls; static. */
void net_client_set_peer(struct ft_rpc_client *client, const char *peer);
/* Trailing metadata of a call that ended, NULL when it has no such key. */
const char *net_stream_trailer(const struct ft_rpc_stream *stream, const char *key);

#endif
