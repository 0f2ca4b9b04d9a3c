/* channel: messages between the two processes of a region, one at a time each way, through its
 * shared memory. Who is awake finds a message by looking; who sleeps has to be rung by other means.
 * Owns:    nothing: a view of shared memory that its region maps.
 * Runs in: workers (one side) and the coordinator (the other); one thread a side.
 * Never:   waits; trusts what the other side wrote: a message is copied, and its length checked.
 *
 * A side that looks says so (AWAKE). Before it sleeps it says ASLEEP and looks once more; who puts
 * a message reads the other side's state after that. Both in sequentially consistent order, so that
 * either the sleeper has seen the message or the sender knows that it has to ring. */
#ifndef FT_IPC_CHANNEL_H
#define FT_IPC_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of shared memory, both ways; zeros are a channel that nobody listens to. A multiple of a page. */
#define FT_CHANNEL_BYTES ((size_t)131072)
#define FT_CHANNEL_MESSAGE_MAX ((size_t)65464) /* bytes */

enum ft_channel_side { FT_CHANNEL_WORKER, FT_CHANNEL_COORDINATOR };

enum ft_channel_state {
    FT_CHANNEL_CLOSED, /* nothing may be put */
    FT_CHANNEL_AWAKE,
    FT_CHANNEL_ASLEEP
};

enum ft_channel_put {
    FT_CHANNEL_REFUSED, /* closed, too long, or the last one is still there: send it otherwise */
    FT_CHANNEL_SEEN,    /* the other side looks */
    FT_CHANNEL_RING     /* it is there, and the other side has to be told */
};

struct ft_channel_slot;
struct ft_channel {
    struct ft_channel_slot *in, *out;
    uint32_t n_taken, n_put; /* what this side knows; the shared counts are checked against it */
};

/* shared: FT_CHANNEL_BYTES, aligned to a page, mapped to be written. */
void ft_channel_open(struct ft_channel *channel, void *shared, enum ft_channel_side side);
/* Tell the other side how this one listens. */
void ft_channel_listen(struct ft_channel *channel, enum ft_channel_state state);
enum ft_channel_put ft_channel_put(struct ft_channel *channel, struct ft_str message);
/* Copy the message that waits, if one does, into an emptied buffer, and make room for the next.
 * fail FT_E_PEER_PROTOCOL: its length cannot be; FT_E_PROC_MEMORY */
enum ft_code ft_channel_take(struct ft_channel *channel, struct ft_buf *message, bool *taken,
                             struct ft_err *err);

#ifdef __cplusplus
}
#endif
#endif
