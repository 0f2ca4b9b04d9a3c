#include "common/ipc/channel.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#define MODULE "channel"
#define LINE_BYTES 64

/* One way. The sender writes the first line and the bytes, the receiver the last line: neither
 * takes a line from under the other but to hand something over. */
struct ft_channel_slot {
    alignas(LINE_BYTES) atomic_uint n_put; /* after the bytes */
    uint32_t n_bytes;
    unsigned char bytes[FT_CHANNEL_MESSAGE_MAX];
    alignas(LINE_BYTES) atomic_uint n_taken; /* after the copy */
    atomic_uint state;                       /* of the receiver: enum ft_channel_state */
};
static_assert(2 * sizeof(struct ft_channel_slot) == FT_CHANNEL_BYTES, "shared layout");
static_assert(sizeof(atomic_uint) == 4 && ATOMIC_INT_LOCK_FREE == 2, "works between processes");

void ft_channel_open(struct ft_channel *channel, void *shared, enum ft_channel_side side) {
    struct ft_channel_slot *slots = shared;
    *channel = (struct ft_channel){.in = &slots[side == FT_CHANNEL_COORDINATOR],
                                   .out = &slots[side == FT_CHANNEL_WORKER]};
}

void ft_channel_listen(struct ft_channel *channel, enum ft_channel_state state) {
    atomic_store(&channel->in->state, (unsigned)state);
}

enum ft_channel_put ft_channel_put(struct ft_channel *channel, struct ft_str message) {
    struct ft_channel_slot *slot = channel->out;
    if (atomic_load(&slot->state) == FT_CHANNEL_CLOSED || message.len > FT_CHANNEL_MESSAGE_MAX ||
        atomic_load(&slot->n_taken) != channel->n_put)
        return FT_CHANNEL_REFUSED;
    slot->n_bytes = (uint32_t)message.len;
    if (message.len > 0)
        memcpy(slot->bytes, message.ptr, message.len);
    atomic_store(&slot->n_put, ++channel->n_put);
    return atomic_load(&slot->state) == FT_CHANNEL_AWAKE ? FT_CHANNEL_SEEN : FT_CHANNEL_RING;
}

enum ft_code ft_channel_take(struct ft_channel *channel, struct ft_buf *message, bool *taken,
                             struct ft_err *err) {
    struct ft_channel_slot *slot = channel->in;
    uint32_t n_put = atomic_load(&slot->n_put);
    *taken = n_put != channel->n_taken;
    if (!*taken)
        return FT_OK;
    uint32_t n_bytes = *(volatile uint32_t *)&slot->n_bytes; /* read once */
    if (n_put != channel->n_taken + 1 || n_bytes > FT_CHANNEL_MESSAGE_MAX)
        return ft_err_set(err, FT_E_PEER_PROTOCOL, MODULE,
                          "message %u of %u bytes: expected message %u of at most %zu", n_put,
                          n_bytes, channel->n_taken + 1, FT_CHANNEL_MESSAGE_MAX);
    ft_buf_reset(message);
    ft_buf_add(message, slot->bytes, n_bytes);
    atomic_store(&slot->n_taken, ++channel->n_taken);
    if (message->failed)
        return ft_err_set(err, FT_E_PROC_MEMORY, MODULE, "no memory for %u bytes", n_bytes);
    return FT_OK;
}
