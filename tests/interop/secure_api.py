"""Checks what an operator relies on, with a client that has no proto of ours: grpcio, and messages
that it learns by reflection. TLS, tokens, health, reflection, the VllmEngine facade.

usage: secure_api.py BIN_DIR    (run by test_secure_api.sh). Prints one line per check."""
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = sys.argv[1]
DIR = tempfile.mkdtemp(prefix="foretoken-secure-")
failed = 0
processes = {}


def check(name, ok, detail=""):
    global failed
    failed += not ok
    print("%s %s %s" % ("ok    " if ok else "FAILED", name, "" if ok else detail), flush=True)


def path(name):
    return os.path.join(DIR, name)


def write(name, text):
    """As an editor does: a new file, renamed over the old one."""
    with open(path(name + ".new"), "w") as f:
        f.write(text)
    os.rename(path(name + ".new"), path(name))


def read(name):
    with open(path(name)) as f:
        return f.read()


def start(name, *args):
    log = open(path(name + ".log"), "a")
    processes[name] = subprocess.Popen([os.path.join(BIN, "foretoken-" + name), *args], stderr=log)


def stop(name, signo=signal.SIGTERM):
    process = processes.pop(name)
    process.send_signal(signo)
    return process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def token_line(name, token, rights=""):
    return "%s sha256:%s %s\n" % (name, hashlib.sha256(token.encode()).hexdigest(), rights)


PORT = free_port()
TARGET = ["--model", os.path.join(ROOT, "models/demo-target"), "--listen", "unix:" + path("t.sock")]
DRAFT = ["--model", os.path.join(ROOT, "models/demo-draft"), "--listen", "unix:" + path("d.sock")]
subprocess.check_call([os.path.join(ROOT, "tests/support/certs.sh"), DIR])
write("live.pem", read("server.pem"))
write("live.key", read("server.key"))
write("tokens", "# tokens of a test\n" + token_line("team", "team-token", "max_requests=2") +
      token_line("slow", "slow-token", "requests_per_minute=2 min_priority=5") +
      token_line("ops", "ops-token", "admin"))
start("coordinator", "--listen", "0.0.0.0:%d" % PORT, "--target_endpoint", "unix:" + path("t.sock"),
      "--draft_endpoint", "unix:" + path("d.sock"), "--tls_cert", path("live.pem"), "--tls_key",
      path("live.key"), "--token_file", path("tokens"))


class WithToken:
    """A channel whose calls bring a token along as metadata. grpcio's call credentials send the same,
    but call into Python from threads of their own, and crash there now and then."""

    def __init__(self, channel, token):
        self.channel, self.header = channel, ("authorization", "Bearer " + token)

    def with_token(self, call):
        return lambda message, timeout=None, metadata=None: call(
            message, timeout=timeout, metadata=list(metadata or ()) + [self.header])

    def unary_unary(self, *args, **kwargs):
        return self.with_token(self.channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args, **kwargs):
        return self.with_token(self.channel.unary_stream(*args, **kwargs))

    def stream_stream(self, *args, **kwargs):
        return self.with_token(self.channel.stream_stream(*args, **kwargs))


def connect(ca="ca.pem", secure=True, token=None):
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1),
               ("grpc.max_reconnect_backoff_ms", 200)]
    if not secure:
        return grpc.insecure_channel("127.0.0.1:%d" % PORT, options)
    channel = grpc.secure_channel("127.0.0.1:%d" % PORT,
                                  grpc.ssl_channel_credentials(read(ca).encode()), options)
    return channel if token is None else WithToken(channel, token)


# ---- the messages of reflection and health, as a client of the ecosystem brings them --------------

pool = descriptor_pool.DescriptorPool()


def load_protos(*names):
    out = path("protos.bin")
    subprocess.check_call(["protoc", "-I" + os.path.join(ROOT, "proto"), "--include_imports",
                           "--descriptor_set_out=" + out, *names])
    with open(out, "rb") as f:
        for file in descriptor_pb2.FileDescriptorSet.FromString(f.read()).file:
            pool.Add(file)


def message(name):
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(name))


load_protos("grpc/reflection/v1/reflection.proto", "grpc/health/v1/health.proto")
Request = message("grpc.reflection.v1.ServerReflectionRequest")
Response = message("grpc.reflection.v1.ServerReflectionResponse")
HealthRequest = message("grpc.health.v1.HealthCheckRequest")
HealthResponse = message("grpc.health.v1.HealthCheckResponse")


def reflect(channel, version, *requests):
    call = channel.stream_stream("/grpc.reflection.%s.ServerReflection/ServerReflectionInfo" % version,
                                 request_serializer=Request.SerializeToString,
                                 response_deserializer=Response.FromString)
    return list(call(iter(requests), timeout=20))


def health(channel, service=""):
    call = channel.unary_unary("/grpc.health.v1.Health/Check",
                               request_serializer=HealthRequest.SerializeToString,
                               response_deserializer=HealthResponse.FromString)
    return call(HealthRequest(service=service), timeout=20, wait_for_ready=True).status


def status_of(make):
    try:
        result = make()
        if hasattr(result, "__next__"):
            list(result)
        return grpc.StatusCode.OK, "", {}
    except grpc.RpcError as e:
        return e.code(), e.details(), dict(e.trailing_metadata() or ())


def wait_until(what, limit_s=30):
    end = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


SERVING, NOT_SERVING = 1, 2
nobody = connect()  # no token
check("live before the workers are there, without a token", health(nobody) == SERVING)
check("not ready before the workers are there", health(nobody, "foretoken.v1.Inference") == NOT_SERVING)
team = connect(token="team-token")
generate_bytes = team.unary_stream("/foretoken.v1.Inference/Generate")
code, detail, _ = status_of(lambda: generate_bytes(b"", timeout=20))
check("a request before that is told so", code == grpc.StatusCode.UNAVAILABLE, "%s %s" % (code, detail))

watch = nobody.unary_stream("/grpc.health.v1.Health/Watch",
                            request_serializer=HealthRequest.SerializeToString,
                            response_deserializer=HealthResponse.FromString)
watching = watch(HealthRequest(service="vllm.grpc.engine.VllmEngine"))
check("watch tells the state at once", next(watching).status == NOT_SERVING)
start("target", *TARGET)
start("draft", *DRAFT)
check("watch tells of readiness", next(watching).status == SERVING)
check("ready", health(nobody, "foretoken.v1.Inference") == SERVING)
code, _, _ = status_of(lambda: health(nobody, "no.such.Service"))
check("unknown service", code == grpc.StatusCode.NOT_FOUND, code)
unknown = watch(HealthRequest(service="no.such.Service"))
check("unknown service watched", next(unknown).status == 3)
unknown.cancel()

# ---- reflection ------------------------------------------------------------------------------------

code, detail, _ = status_of(lambda: reflect(nobody, "v1", Request(list_services="*")))
check("reflection wants a token", code == grpc.StatusCode.UNAUTHENTICATED, "%s %s" % (code, detail))
services = {}
for version in ("v1", "v1alpha"):
    answer = reflect(team, version, Request(host="h", list_services="*"))
    services[version] = [s.name for s in answer[0].list_services_response.service]
    check("%s echoes the request" % version, answer[0].original_request.list_services == "*" and
          answer[0].valid_host == "h")
check("services", services["v1"] == services["v1alpha"] and
      {"foretoken.v1.Inference", "foretoken.v1.Admin", "grpc.health.v1.Health",
       "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
       "vllm.grpc.engine.VllmEngine"} == set(services["v1"]), services)


def learn(symbol):
    """All files that the symbol needs, from the server alone."""
    answer = reflect(team, "v1alpha", Request(file_containing_symbol=symbol))[0]
    for raw in answer.file_descriptor_response.file_descriptor_proto:
        file = descriptor_pb2.FileDescriptorProto.FromString(raw)
        try:
            pool.FindFileByName(file.name)
        except KeyError:
            pool.Add(file)


learn("foretoken.v1.Inference")
learn("foretoken.v1.Admin.GetStats")
learn("vllm.grpc.engine.VllmEngine.Generate")
answers = reflect(team, "v1", Request(file_by_filename="foretoken/v1/inference.proto"),
                  Request(file_by_filename="no/such.proto"),
                  Request(file_containing_symbol="foretoken.v1.GenerateRequest.sampling_params"),
                  Request(file_containing_symbol="foretoken.v1.FINISH_REASON_STOP"),
                  Request(file_containing_symbol="foretoken.v1.Inference.NoSuchMethod"),
                  Request(file_containing_symbol="foretoken.v1"),
                  Request(all_extension_numbers_of_type="foretoken.v1.Usage"),
                  Request(all_extension_numbers_of_type="no.Type"))
kinds = [a.WhichOneof("message_response") for a in answers]
check("reflection finds files and symbols, and says what is not there",
      kinds == ["file_descriptor_response", "error_response", "file_descriptor_response",
                "file_descriptor_response", "error_response", "error_response",
                "all_extension_numbers_response", "error_response"], kinds)
check("what is not there is NOT_FOUND", answers[1].error_response.error_code == 5)
code, _, _ = status_of(lambda: reflect(team, "v1", Request()))
check("a question without a question", code == grpc.StatusCode.INVALID_ARGUMENT, code)


def method(channel, service, name, stream=False):
    descriptor = pool.FindServiceByName(service).methods_by_name[name]
    reply = message_factory.MessageFactory(pool).GetPrototype(descriptor.output_type)
    make = channel.unary_stream if stream else channel.unary_unary
    return make("/%s/%s" % (service, name), request_serializer=lambda m: m.SerializeToString(),
                response_deserializer=reply.FromString)


# ---- tokens ----------------------------------------------------------------------------------------

Generate = message("foretoken.v1.GenerateRequest")


def request(max_tokens=24, n=None, **fields):
    r = Generate(text="Once upon a time", stream=True, **fields)
    r.sampling_params.temperature = 0
    r.sampling_params.max_tokens = max_tokens
    if n is not None:
        r.sampling_params.n = n
    return r


def generate(channel, *args, metadata=None, **fields):
    return method(channel, "foretoken.v1.Inference", "Generate", True)(
        request(*args, **fields), timeout=60, metadata=metadata)


parts = list(generate(team))
text = "".join(p.text for p in parts)
ids = [i for p in parts for i in p.token_ids]
check("text streams over TLS with a token", len(parts) > 3 and len(ids) == 24 and len(text) > 10, text)
code, detail, _ = status_of(lambda: generate(nobody))
check("no token is UNAUTHENTICATED", code == grpc.StatusCode.UNAUTHENTICATED, "%s %s" % (code, detail))
for value in ("Bearer wrong", "Bearer team-token ", "Basic team-token", "team-token", "Bearer "):
    code, _, _ = status_of(lambda: generate(nobody, metadata=[("authorization", value)]))
    check("'%s' is UNAUTHENTICATED" % value, code == grpc.StatusCode.UNAUTHENTICATED, code)
code, _, _ = status_of(lambda: generate(nobody, metadata=[("authorization", "bearer team-token")]))
check("the scheme's case does not matter", code == grpc.StatusCode.OK, code)
Stats = message("foretoken.v1.GetStatsRequest")
code, detail, _ = status_of(lambda: method(team, "foretoken.v1.Admin", "GetStats")(Stats(), timeout=20))
check("admin needs the right", code == grpc.StatusCode.PERMISSION_DENIED, "%s %s" % (code, detail))
ops = connect(token="ops-token")
stats = method(ops, "foretoken.v1.Admin", "GetStats")(Stats(), timeout=20)
check("admin with the right", stats.num_requests_finished >= 2, str(stats))

code, detail, trailers = status_of(lambda: generate(team, n=3))
check("more than the token's requests at once", code == grpc.StatusCode.RESOURCE_EXHAUSTED and
      "max_requests" in detail and "retry-after-ms" not in trailers, "%s %s" % (detail, trailers))
held = [generate(team, 900), generate(team, 900)]
for call in held:
    next(call)
code, detail, trailers = status_of(lambda: generate(team))
check("a third one while two run", code == grpc.StatusCode.RESOURCE_EXHAUSTED and
      int(trailers.get("retry-after-ms", 0)) > 0, "%s %s" % (detail, trailers))
check("others are not held up", status_of(lambda: generate(ops))[0] == grpc.StatusCode.OK)
for call in held:
    call.cancel()
check("room again once they are gone", wait_until(
    lambda: status_of(lambda: generate(team))[0] == grpc.StatusCode.OK))
slow = connect(token="slow-token")
codes = [status_of(lambda: generate(slow, 4, priority=5)) for _ in range(3)]
check("two requests a minute", [c[0] for c in codes] == [grpc.StatusCode.OK, grpc.StatusCode.OK,
      grpc.StatusCode.RESOURCE_EXHAUSTED] and 20000 < int(codes[2][2]["retry-after-ms"]) <= 30001, codes)
code, detail, _ = status_of(lambda: generate(slow, 4, priority=4))
check("a priority beyond the token's", code == grpc.StatusCode.PERMISSION_DENIED, "%s %s" % (code, detail))

# ---- the facade --------------------------------------------------------------------------------------

VLLM = "vllm.grpc.engine.VllmEngine"
VllmRequest = message("vllm.grpc.engine.GenerateRequest")


def vllm(channel, name, **fields):
    descriptor = pool.FindServiceByName(VLLM).methods_by_name[name]
    return method(channel, VLLM, name)(message(descriptor.input_type.full_name)(**fields), timeout=20)


def vllm_generate(channel, stream=True, request_id="v-1", **sampling):
    r = VllmRequest(request_id=request_id, text="Once upon a time", stream=stream)
    r.sampling_params.temperature = 0
    r.sampling_params.max_tokens = 24
    for key, value in sampling.items():
        if isinstance(value, list):
            getattr(r.sampling_params, key).extend(value)
        else:
            setattr(r.sampling_params, key, value)
    return method(channel, VLLM, "Generate", True)(r, timeout=60)


parts = list(vllm_generate(team))
chunks = [p.chunk for p in parts if p.WhichOneof("response") == "chunk"]
complete = parts[-1].complete
check("facade streams the same tokens", [i for c in chunks for i in c.token_ids] == ids, str(parts[-1]))
check("facade completes", len(chunks) == len(parts) - 1 > 2 and list(complete.output_ids) == ids and
      complete.finish_reason == "length" and complete.completion_tokens == 24 and
      complete.prompt_tokens > 3 and complete.spec_draft_tokens > 0, str(complete))
check("facade counts as it goes", [c.completion_tokens for c in chunks] ==
      [sum(len(d.token_ids) for d in chunks[:i + 1]) for i in range(len(chunks))])
whole = list(vllm_generate(team, False, n=2, logprobs=2, prompt_logprobs=1))
check("facade without stream: one message for each output", len(whole) == 2 and
      all(list(p.complete.output_ids) == ids for p in whole) and
      sorted(p.complete.index for p in whole) == [0, 1], str(whole)[:500])
first = min((p.complete for p in whole), key=lambda c: c.index)
check("facade logprobs", list(first.output_logprobs.token_ids) == ids and
      len(first.output_logprobs.token_logprobs) == 24 and
      [t.token_ids[0] for t in first.output_logprobs.top_logprobs] == ids and
      all(v <= 0 for v in first.output_logprobs.token_logprobs), str(first)[:500])
check("facade prompt logprobs", len(first.input_logprobs.token_ids) == first.prompt_tokens and
      [p.HasField("value") for p in first.input_logprobs.token_logprobs] ==
      [False] + [True] * (first.prompt_tokens - 1), str(first.input_logprobs)[:500])
tokens = list(first.input_logprobs.token_ids)
r = VllmRequest(stream=False)
r.tokenized.input_ids.extend(tokens)
r.sampling_params.temperature = 0
r.sampling_params.stop_token_ids.append(ids[5])
stopped = list(method(team, VLLM, "Generate", True)(r, timeout=60))[0].complete
check("facade takes ids and stops at one", stopped.finish_reason == "stop" and
      stopped.WhichOneof("matched_stop") == "matched_token_id" and stopped.matched_token_id == ids[5],
      str(stopped))
for field, value in (("regex", "a*"), ("json_object", True), ("logprobs", -1)):
    code, detail, _ = status_of(lambda: vllm_generate(team, **{field: value}))
    check("facade refuses %s by name" % field,
          code == grpc.StatusCode.UNIMPLEMENTED and field in detail, "%s %s" % (code, detail))
code, detail, _ = status_of(lambda: vllm_generate(team, top_p=2.0))
check("facade names a bad value", code == grpc.StatusCode.INVALID_ARGUMENT and "top_p is 2" in detail, detail)
running = vllm_generate(team, request_id="to-abort", max_tokens=900)
next(running)
vllm(slow, "Abort", request_ids=["to-abort"])  # of another token: nothing happens
next(running)
vllm(team, "Abort", request_ids=["none-such", "to-abort"])
last = list(running)[-1]
check("facade aborts by id", last.complete.finish_reason == "abort" and
      0 < last.complete.completion_tokens < 900, str(last)[-300:])
info = vllm(team, "GetModelInfo")
check("facade model info", info.is_generation and info.served_model_name == "demo-target" and
      info.model_type == "llama" and list(info.architectures) == ["LlamaForCausalLM"] and
      info.max_req_input_len == info.max_context_length - 1 and info.vocab_size > 100, str(info))
server = vllm(team, "GetServerInfo")
check("facade server info", server.server_type == "vllm-grpc" and server.data_parallel_size == 1 and
      not server.is_paused and abs(server.last_receive_timestamp - time.time()) < 60, str(server))
loads = vllm(team, "GetLoads")
check("facade loads", loads.dp_rank_count == 1 and loads.loads[0].max_total_num_tokens > 0 and
      loads.loads[0].num_running_reqs == 0, str(loads))
code, _, _ = status_of(lambda: vllm(team, "GetLoads", dp_rank=1))
check("facade has one rank", code == grpc.StatusCode.INVALID_ARGUMENT, code)
check("facade health", vllm(team, "HealthCheck").healthy)

# ---- other clients -----------------------------------------------------------------------------------

plain = connect(secure=False)
begin = time.monotonic()
code, detail, _ = status_of(lambda: generate(plain))
check("plain client on a TLS port", code == grpc.StatusCode.UNAVAILABLE and
      time.monotonic() - begin < 10 and detail, "%s %s" % (code, detail))
code, detail, _ = status_of(lambda: generate(connect(ca="other-ca.pem", token="team-token")))
check("client that does not trust the server", code == grpc.StatusCode.UNAVAILABLE, "%s %s" % (code, detail))

modules = os.environ.get("FT_NODE_MODULES", "")
if os.path.isdir(os.path.join(modules, "@grpc")):
    script = os.path.join(ROOT, "tests/interop/grpc_js/secure_api.mjs")
    sys.stdout.flush()
    check("a stock client of another make", subprocess.call(["node", script], timeout=120, env=dict(
        os.environ, FORETOKEN_ENDPOINT="localhost:%d" % PORT, FORETOKEN_CACERT=path("ca.pem"),
        FORETOKEN_TOKEN="team-token")) == 0)
else:
    print("skipped grpc-js: run tests/interop/grpc_js/install.sh BUILD_DIR first")

# ---- files that change -------------------------------------------------------------------------------

write("tokens", token_line("fresh", "fresh-token") + "not a line\n")
time.sleep(2.5)
check("a bad token file changes nothing", status_of(lambda: generate(team))[0] == grpc.StatusCode.OK)
write("tokens", token_line("fresh", "fresh-token"))
processes["coordinator"].send_signal(signal.SIGHUP)
check("a token taken away", wait_until(
    lambda: status_of(lambda: generate(team))[0] == grpc.StatusCode.UNAUTHENTICATED))
fresh = connect(token="fresh-token")
check("a token added", status_of(lambda: generate(fresh))[0] == grpc.StatusCode.OK)
write("live.pem", read("rogue.pem"))
write("live.key", read("rogue.key"))
check("a certificate exchanged", wait_until(lambda: status_of(
    lambda: generate(connect(ca="other-ca.pem", token="fresh-token")))[0] == grpc.StatusCode.OK))
check("connections from before go on", status_of(lambda: generate(fresh))[0] == grpc.StatusCode.OK)

# ---- readiness ---------------------------------------------------------------------------------------

stop("target", signal.SIGKILL)
check("dev14 watch tells of the lost target", next(watching).status == NOT_SERVING)
check("still live", health(nobody) == SERVING)
check("facade health with its reason", not vllm(fresh, "HealthCheck").healthy and
      vllm(fresh, "HealthCheck").message != "Health")
start("target", *TARGET)
check("dev14 watch tells that it is back", next(watching).status == SERVING)
long_one = generate(fresh, 900)
next(long_one)
processes["coordinator"].send_signal(signal.SIGTERM)
check("watch tells of the drain", next(watching).status == NOT_SERVING)
check("health answers in the drain", health(nobody, "foretoken.v1.Inference") == NOT_SERVING)
long_one.cancel()
check("the coordinator ends well", processes["coordinator"].wait(20) == 0)
del processes["coordinator"]
code = watching.code()
check("the watch ends with it", code == grpc.StatusCode.UNAVAILABLE, code)
with open(path("coordinator.log")) as f:
    log = f.read()
check("tokens stand in no log", not any(t in log for t in
      ("team-token", "ops-token", "slow-token", "fresh-token", "wrong")), log)
check("refusals do", "caller-unauthenticated" in log and "tokens-kept" in log and
      "certificates-reloaded" in log, log)
for name in list(processes):
    check("%s ends well" % name, stop(name) == 0)
if failed:
    print(log)
else:
    subprocess.call(["rm", "-rf", DIR])
sys.exit(1 if failed else 0)
