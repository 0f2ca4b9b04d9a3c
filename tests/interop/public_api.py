"""Checks the public services with a client that is not ours: grpcio, and messages that protoc makes
from proto/. Run by test_public_api.sh with FORETOKEN_ENDPOINT set. Prints one line per check."""
import os
import subprocess
import sys
import tempfile
import threading

import grpc

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = tempfile.mkdtemp()
PROTOS = ["foretoken/v1/inference.proto", "foretoken/v1/admin.proto"]
subprocess.check_call(["protoc", "-I" + os.path.join(ROOT, "proto"), "--python_out=" + OUT] + PROTOS)
sys.path.insert(0, OUT)
from foretoken.v1 import admin_pb2, inference_pb2 as pb  # noqa: E402

channel = grpc.insecure_channel(os.environ["FORETOKEN_ENDPOINT"])


class Stub:
    """What a generated stub is: methods by name. (grpc_tools of Debian 12 refuses optional fields.)"""

    def __init__(self, module, service):
        for method in module.DESCRIPTOR.services_by_name[service].methods:
            make = channel.unary_stream if method.name == "Generate" else channel.unary_unary
            reply = getattr(module, method.output_type.name)
            setattr(self, method.name,
                    make("/foretoken.v1.%s/%s" % (service, method.name),
                         request_serializer=lambda m: m.SerializeToString(),
                         response_deserializer=reply.FromString))


stub = Stub(pb, "Inference")
admin = Stub(admin_pb2, "Admin")
failed = 0


def check(name, ok, detail=""):
    global failed
    failed += not ok
    print("%s %s %s" % ("ok    " if ok else "FAILED", name, "" if ok else detail))


def request(text="Once upon a time", **sampling):
    spec = sampling.pop("spec", {})
    stream = sampling.pop("stream", True)
    sampling.setdefault("temperature", 0)
    sampling.setdefault("max_tokens", 48)
    return pb.GenerateRequest(text=text, stream=stream, sampling_params=pb.SamplingParams(**sampling),
                              speculative_params=pb.SpeculativeParams(**spec))


def collect(call):
    ids, text, last, n = [], "", None, 0
    for message in call:
        ids += message.token_ids
        text += message.text
        last = message
        n += 1
    return ids, text, last, n


info = stub.GetModelInfo(pb.GetModelInfoRequest())
check("model info names both models", info.target.name and info.draft.name, str(info))
check("speculation is on", info.speculation == "draft_model", info.speculation_reason)

ids, text, last, n = collect(stub.Generate(request()))
check("streams in several messages", n > 5, str(n))
check("exactly max_tokens", len(ids) == 48 and last.usage.completion_tokens == 48, str(len(ids)))
check("finish reason", last.finish_reason == pb.FINISH_REASON_LENGTH, str(last))
check("speculative statistics", last.speculative.num_draft_tokens > 0, str(last.speculative))

plain_ids, plain_text, plain_last, _ = collect(stub.Generate(request(spec=dict(enabled=False))))
check("plain equals speculative", (plain_ids, plain_text) == (ids, text), plain_text)
check("plain drafts nothing", plain_last.speculative.num_draft_tokens == 0)
whole_ids, whole_text, _, n = collect(stub.Generate(request(stream=False)))
check("unary-like reply is one message", n == 1 and (whole_ids, whole_text) == (ids, text), str(n))

tokens = stub.Tokenize(pb.TokenizeRequest(text="Once upon a time")).token_ids
check("tokenize", len(tokens) > 3 and tokens[0] == info.target.vocab_size - 8, str(tokens))
back = stub.Detokenize(pb.DetokenizeRequest(token_ids=tokens, skip_special_tokens=True)).text
check("detokenize", back == "Once upon a time", back)
by_ids = pb.GenerateRequest(token_ids=pb.TokenIds(ids=tokens), stream=True,
                            sampling_params=pb.SamplingParams(temperature=0, max_tokens=48))
check("token ids as input", collect(stub.Generate(by_ids))[0] == ids)
chat = pb.GenerateRequest(chat=pb.ChatMessages(messages=[pb.ChatMessage(role="user", content="Hi")]),
                          sampling_params=pb.SamplingParams(temperature=0, max_tokens=8))
check("chat as input", len(collect(stub.Generate(chat))[0]) >= 1)


def status_of(make):
    try:
        collect(make())
        return grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        return error.code(), error.details()


code, detail = status_of(lambda: stub.Generate(request(temperature=-1)))
check("bad field is named", code == grpc.StatusCode.INVALID_ARGUMENT and "temperature is -1" in detail,
      "%s %s" % (code, detail))
code, detail = status_of(lambda: stub.Generate(request(n=65)))
check("n has a limit", code == grpc.StatusCode.INVALID_ARGUMENT and "n is 65" in detail,
      "%s %s" % (code, detail))
by_index = {}
for part in stub.Generate(request(n=3, logprobs=2)):
    by_index.setdefault(part.index, []).extend(part.token_ids)
    check("a logprob for each token", len(part.logprobs) == len(part.token_ids))
    check("two alternatives", all(len(l.top_token_ids) == 2 for l in part.logprobs))
    check("greedy is the most probable",
          [l.top_token_ids[0] for l in part.logprobs] == list(part.token_ids))
check("three continuations", by_index == {0: ids, 1: ids, 2: ids}, str(by_index))
rule = dict(rejection_sample_method="coupled")
coupled = collect(stub.Generate(request(temperature=1.0, seed=5, spec=rule)))
plain = collect(stub.Generate(request(temperature=1.0, seed=5, spec=dict(rule, enabled=False))))
check("coupled text does not depend on speculation", coupled[:2] == plain[:2], str(coupled[1]))
check("coupled is not lossy", not coupled[2].speculative.lossy)
code, detail = status_of(lambda: stub.Generate(request(max_tokens=900), timeout=0.05))
check("deadline", code == grpc.StatusCode.DEADLINE_EXCEEDED, "%s %s" % (code, detail))
code, detail = status_of(
    lambda: channel.unary_stream("/foretoken.v1.Inference/NoSuchMethod")(b"", timeout=5))
check("unknown method", code == grpc.StatusCode.UNIMPLEMENTED, "%s %s" % (code, detail))
code, detail = status_of(
    lambda: channel.unary_stream("/foretoken.v1.Inference/Generate")(b"\xff\xff\xff", timeout=5))
check("garbage message", code == grpc.StatusCode.INVALID_ARGUMENT, "%s %s" % (code, detail))

call = stub.Generate(request(max_tokens=900))
next(call)
call.cancel()

results = [None] * 24


def worker(i):
    results[i] = collect(stub.Generate(request(spec=dict(num_speculative_tokens=i % 6))))[0]


threads = [threading.Thread(target=worker, args=(i,)) for i in range(24)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check("24 at once equal one alone", all(r == ids for r in results))
stats = admin.GetStats(admin_pb2.GetStatsRequest())
check("nothing is left running", stats.num_requests_running == 0 and stats.num_requests_waiting == 0,
      str(stats))
check("the cancelled one was counted", stats.num_requests_cancelled >= 2,
      str(stats.num_requests_cancelled))
sys.exit(1 if failed else 0)
