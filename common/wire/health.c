#include "common/wire/health.h"

#include "common/wire/pb.h"
#include "grpc/health/v1/health.pb-c.h"

#define MODULE "wire"

void ft_wire_encode_health_request(struct ft_str service, struct ft_buf *out) {
    Grpc__Health__V1__HealthCheckRequest m = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    m.service = FT_PB_BYTES(service);
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_health_request(struct ft_str in, struct ft_arena *arena,
                                           struct ft_str *service, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&grpc__health__v1__health_check_request__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Grpc__Health__V1__HealthCheckRequest *m = raw;
    struct ft_str name = FT_PB_STR(m->service);
    if (ft_utf8_valid_prefix(name) != name.len)
        return ft_err_set(err, FT_E_REQ_INVALID, MODULE,
                          "HealthCheckRequest.service is not valid UTF-8");
    *service = name;
    return FT_OK;
}

void ft_wire_encode_health(enum ft_wire_health status, struct ft_buf *out) {
    Grpc__Health__V1__HealthCheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    ft_pb_pack(&m.base, out);
}

enum ft_code ft_wire_decode_health(struct ft_str in, struct ft_arena *arena,
                                   enum ft_wire_health *status, struct ft_err *err) {
    const void *raw;
    enum ft_code code =
        ft_pb_unpack(&grpc__health__v1__health_check_response__descriptor, in, arena, &raw, err);
    if (code != FT_OK)
        return code;
    const Grpc__Health__V1__HealthCheckResponse *m = raw;
    int value = (int)m->status;
    *status = value > FT_WIRE_HEALTH_UNKNOWN && value <= FT_WIRE_HEALTH_SERVICE_UNKNOWN
                  ? (enum ft_wire_health)value
                  : FT_WIRE_HEALTH_UNKNOWN;
    return FT_OK;
}
