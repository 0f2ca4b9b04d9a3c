#include "common/wire/operate.h"

#include "common/wire/limits.h"
#include "common/wire/pb.h"
#include "foretoken/v1/admin.pb-c.h"

void ft_wire_encode_service_health(const struct ft_wire_service_health *in, struct ft_buf *out) {
    Foretoken__V1__Health m = FORETOKEN__V1__HEALTH__INIT;
    m.state = FT_PB_BYTES(in->state);
    m.reason = FT_PB_BYTES(in->reason);
    m.state_seconds = in->state_seconds;
    m.num_requests_running = in->num_requests_running;
    m.num_requests_waiting = in->num_requests_waiting;
    m.target_up = in->target_up;
    m.target_trouble = FT_PB_BYTES(in->target_trouble);
    m.has_draft = in->has_draft;
    m.draft_up = in->draft_up;
    m.draft_trouble = FT_PB_BYTES(in->draft_trouble);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_service_health(struct ft_str in, struct ft_arena *arena,
                                           struct ft_wire_service_health *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code = ft_pb_unpack(&foretoken__v1__health__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__Health *m = raw;
    *out = (struct ft_wire_service_health){
        .state = FT_PB_STR(m->state),
        .reason = FT_PB_STR(m->reason),
        .state_seconds = m->state_seconds,
        .num_requests_running = m->num_requests_running,
        .num_requests_waiting = m->num_requests_waiting,
        .target_up = m->target_up != 0,
        .target_trouble = FT_PB_STR(m->target_trouble),
        .has_draft = m->has_draft != 0,
        .draft_up = m->draft_up != 0,
        .draft_trouble = FT_PB_STR(m->draft_trouble),
    };
    return FT_OK;
}

void ft_wire_encode_listed_request(const struct ft_wire_request_info *in, struct ft_buf *out) {
    Foretoken__V1__RequestInfo m = FORETOKEN__V1__REQUEST_INFO__INIT;
    m.request_id = FT_PB_BYTES(in->request_id);
    m.index = in->index;
    m.state = FT_PB_BYTES(in->state);
    m.age_seconds = in->age_seconds;
    m.prompt_tokens = in->prompt_tokens;
    m.output_tokens = in->output_tokens;
    m.max_tokens = in->max_tokens;
    m.num_speculative_tokens = in->num_speculative_tokens;
    m.drafter = FT_PB_BYTES(in->drafter);
    m.rejection_sample_method = FT_PB_BYTES(in->rejection_sample_method);
    m.num_draft_tokens = in->num_draft_tokens;
    m.num_accepted_tokens = in->num_accepted_tokens;
    m.priority = in->priority;
    m.client = FT_PB_BYTES(in->client);
    m.fallback_reason = FT_PB_BYTES(in->fallback_reason);
    ft_pb_pack_message(&foretoken__v1__list_requests_response__descriptor, "requests", &m.base,
                       out);
}

static struct ft_wire_request_info decode_info(const Foretoken__V1__RequestInfo *m) {
    return (struct ft_wire_request_info){
        .request_id = FT_PB_STR(m->request_id),
        .index = m->index,
        .state = FT_PB_STR(m->state),
        .age_seconds = m->age_seconds,
        .prompt_tokens = m->prompt_tokens,
        .output_tokens = m->output_tokens,
        .max_tokens = m->max_tokens,
        .num_speculative_tokens = m->num_speculative_tokens,
        .drafter = FT_PB_STR(m->drafter),
        .rejection_sample_method = FT_PB_STR(m->rejection_sample_method),
        .num_draft_tokens = m->num_draft_tokens,
        .num_accepted_tokens = m->num_accepted_tokens,
        .priority = m->priority,
        .client = FT_PB_STR(m->client),
        .fallback_reason = FT_PB_STR(m->fallback_reason),
    };
}

enum ft_code ft_wire_decode_requests(struct ft_str in, struct ft_arena *arena,
                                     struct ft_wire_request_info **requests, size_t *n_requests,
                                     struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__list_requests_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__ListRequestsResponse *m = raw;
    code = ft_pb_check_count("ListRequestsResponse.requests", m->n_requests, FT_WIRE_LIST_MAX * 2,
                             err);
    if (code != FT_OK)
        return code;
    struct ft_wire_request_info *list = ft_arena_calloc(arena, m->n_requests, sizeof *list);
    if (list == NULL && m->n_requests > 0)
        return ft_pb_arena_full("ListRequestsResponse", err);
    for (size_t i = 0; i < m->n_requests; i++)
        list[i] = decode_info(m->requests[i]);
    *requests = list;
    *n_requests = m->n_requests;
    return FT_OK;
}

void ft_wire_encode_cancel(struct ft_str request_id, struct ft_buf *out) {
    Foretoken__V1__CancelRequestRequest m = FORETOKEN__V1__CANCEL_REQUEST_REQUEST__INIT;
    m.request_id = FT_PB_BYTES(request_id);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_cancel(struct ft_str in, struct ft_arena *arena,
                                   struct ft_str *request_id, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__cancel_request_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    *request_id = FT_PB_STR(((const Foretoken__V1__CancelRequestRequest *)raw)->request_id);
    return FT_OK;
}

void ft_wire_encode_cancelled(uint32_t n, struct ft_buf *out) {
    Foretoken__V1__CancelRequestResponse m = FORETOKEN__V1__CANCEL_REQUEST_RESPONSE__INIT;
    m.num_cancelled = n;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_cancelled(struct ft_str in, struct ft_arena *arena, uint32_t *n,
                                      struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__cancel_request_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    *n = ((const Foretoken__V1__CancelRequestResponse *)raw)->num_cancelled;
    return FT_OK;
}

void ft_wire_encode_drain(struct ft_str reason, struct ft_buf *out) {
    Foretoken__V1__DrainRequest m = FORETOKEN__V1__DRAIN_REQUEST__INIT;
    m.reason = FT_PB_BYTES(reason);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_drain(struct ft_str in, struct ft_arena *arena, struct ft_str *reason,
                                  struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__drain_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    *reason = FT_PB_STR(((const Foretoken__V1__DrainRequest *)raw)->reason);
    return FT_OK;
}

/* Request and response are the same message on the wire. */
void ft_wire_encode_parameter(const struct ft_wire_parameter *in, struct ft_buf *out) {
    Foretoken__V1__Parameter m = FORETOKEN__V1__PARAMETER__INIT;
    m.name = FT_PB_BYTES(in->name);
    m.value = FT_PB_BYTES(in->value);
    ft_pb_pack_message(&foretoken__v1__set_parameters_request__descriptor, "parameters", &m.base,
                       out);
}

enum ft_code ft_wire_decode_parameters(struct ft_str in, struct ft_arena *arena,
                                       struct ft_wire_parameter *list, size_t *n,
                                       struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__set_parameters_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__SetParametersRequest *m = raw;
    code = ft_pb_check_count("SetParametersRequest.parameters", m->n_parameters,
                             FT_WIRE_PARAMETERS_MAX, err);
    if (code != FT_OK)
        return code;
    for (size_t i = 0; i < m->n_parameters; i++)
        list[i] = (struct ft_wire_parameter){FT_PB_STR(m->parameters[i]->name),
                                             FT_PB_STR(m->parameters[i]->value)};
    *n = m->n_parameters;
    return FT_OK;
}

void ft_wire_encode_reload_draft(struct ft_str model_dir, struct ft_buf *out) {
    Foretoken__V1__ReloadDraftRequest m = FORETOKEN__V1__RELOAD_DRAFT_REQUEST__INIT;
    m.model_dir = FT_PB_BYTES(model_dir);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_reload_draft(struct ft_str in, struct ft_arena *arena,
                                         struct ft_str *model_dir, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__reload_draft_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    *model_dir = FT_PB_STR(((const Foretoken__V1__ReloadDraftRequest *)raw)->model_dir);
    return FT_OK;
}

void ft_wire_encode_draft_reloaded(const struct ft_wire_draft_reloaded *in, struct ft_buf *out) {
    Foretoken__V1__ReloadDraftResponse m = FORETOKEN__V1__RELOAD_DRAFT_RESPONSE__INIT;
    m.epoch = in->epoch;
    m.load_seconds = in->load_seconds;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_draft_reloaded(struct ft_str in, struct ft_arena *arena,
                                           struct ft_wire_draft_reloaded *out, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&foretoken__v1__reload_draft_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Foretoken__V1__ReloadDraftResponse *m = raw;
    *out = (struct ft_wire_draft_reloaded){m->epoch, m->load_seconds};
    return FT_OK;
}
