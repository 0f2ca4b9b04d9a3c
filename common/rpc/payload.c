#include "common/rpc/rpc_internal.h"

#include <stdlib.h>

/* Messages that may wait in one outbox, whatever their size: an empty one costs memory too. */
#define OUTBOX_MESSAGES_MAX ((size_t)65536)

grpc_byte_buffer *ft_rpc_payload_create(struct ft_str message) {
    grpc_slice slice = grpc_slice_from_copied_buffer(message.ptr, message.len);
    grpc_byte_buffer *payload = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return payload;
}

enum ft_code ft_rpc_view_open(struct ft_rpc_view *view, grpc_byte_buffer *payload) {
    view->slice = grpc_empty_slice();
    view->str = (struct ft_str){"", 0};
    if (payload->data.raw.compression != GRPC_COMPRESS_NONE)
        return FT_E_REQ_UNSUPPORTED;
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, payload))
        return FT_E_REQ_UNSUPPORTED;
    size_t len = grpc_byte_buffer_length(payload);
    grpc_slice *first = NULL;
    if (len == 0)
        ;
    else if (grpc_byte_buffer_reader_peek(&reader, &first) && GRPC_SLICE_LENGTH(*first) == len)
        view->slice = grpc_slice_ref(*first);
    else {
        grpc_byte_buffer_reader_destroy(&reader);
        grpc_byte_buffer_reader_init(&reader, payload);
        view->slice = grpc_byte_buffer_reader_readall(&reader);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    if (len > 0)
        view->str = (struct ft_str){(const char *)GRPC_SLICE_START_PTR(view->slice), len};
    return FT_OK;
}

void ft_rpc_view_close(struct ft_rpc_view *view) {
    grpc_slice_unref(view->slice);
}

static enum ft_code grow(struct ft_rpc_outbox *box) {
    size_t cap = box->cap == 0 ? 8 : box->cap * 2;
    if (cap > OUTBOX_MESSAGES_MAX)
        return FT_E_REQ_EXHAUSTED;
    grpc_byte_buffer **ring = malloc(cap * sizeof ring[0]);
    if (ring == NULL)
        return FT_E_PROC_MEMORY;
    for (size_t i = 0; i < box->n; i++)
        ring[i] = box->ring[(box->head + i) & (box->cap - 1)];
    free(box->ring);
    box->ring = ring;
    box->cap = cap;
    box->head = 0;
    return FT_OK;
}

enum ft_code ft_rpc_outbox_push(struct ft_rpc_outbox *box, struct ft_str message) {
    if (box->n > 0 && (box->bytes >= box->bytes_max || message.len > box->bytes_max - box->bytes))
        return FT_E_REQ_EXHAUSTED;
    if (box->n == box->cap) {
        enum ft_code code = grow(box);
        if (code != FT_OK)
            return code;
    }
    box->ring[(box->head + box->n) & (box->cap - 1)] = ft_rpc_payload_create(message);
    box->n++;
    box->bytes += message.len;
    return FT_OK;
}

grpc_byte_buffer *ft_rpc_outbox_pop(struct ft_rpc_outbox *box) {
    if (box->n == 0)
        return NULL;
    grpc_byte_buffer *payload = box->ring[box->head];
    box->head = (box->head + 1) & (box->cap - 1);
    box->n--;
    box->flight_bytes = grpc_byte_buffer_length(payload);
    return payload;
}

void ft_rpc_outbox_landed(struct ft_rpc_outbox *box) {
    box->bytes -= box->flight_bytes;
    box->flight_bytes = 0;
}

void ft_rpc_outbox_clear(struct ft_rpc_outbox *box) {
    while (box->n > 0) {
        grpc_byte_buffer_destroy(box->ring[box->head]);
        box->head = (box->head + 1) & (box->cap - 1);
        box->n--;
    }
    box->bytes = box->flight_bytes;
}

void ft_rpc_outbox_fini(struct ft_rpc_outbox *box) {
    ft_rpc_outbox_clear(box);
    free(box->ring);
    box->ring = NULL;
    box->cap = 0;
}
