"""Checks of common/rpc by grpcio: `rpc_grpcio.py PATH/rpc_echo_server`.

Exit status 77 (skipped) when grpcio is not installed.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

try:
    import grpc
except ImportError:
    print("skipped: python3-grpcio is not installed")
    sys.exit(77)

FAILURES = []
N_CHECKS = 0


def check(what, ok, detail=""):
    global N_CHECKS
    N_CHECKS += 1
    if not ok:
        FAILURES.append(what)
        print(f"FAILED {what} {detail}")


class Echo:
    """The methods of tests/support/rpc_echo.h on one channel, bytes in and bytes out."""

    def __init__(self, target):
        options = [("grpc.max_receive_message_length", 8 << 20), ("grpc.enable_http_proxy", 0)]
        self.channel = grpc.insecure_channel(target, options=options)

    def unary(self, method, message, **kwargs):
        return self.channel.unary_unary(f"/test.Echo/{method}")(message, timeout=20, **kwargs)

    def unary_call(self, method, message, **kwargs):
        return self.channel.unary_unary(f"/test.Echo/{method}").with_call(message, **kwargs)

    def error(self, method, message, timeout=20, **kwargs):
        """The RpcError that a unary call ends with; None when it ends well."""
        try:
            self.channel.unary_unary(f"/test.Echo/{method}")(message, timeout=timeout, **kwargs)
        except grpc.RpcError as e:
            return e
        return None

    def stream(self, count, size, timeout=20):
        call = self.channel.unary_stream("/test.Echo/Stream")
        return call(f"{count} {size}".encode(), timeout=timeout)

    def bidi(self, messages, method="Bidi", timeout=20):
        return self.channel.stream_stream(f"/test.Echo/{method}")(messages, timeout=timeout)


def check_unary(echo):
    for size in (0, 1, 5, 100, 4096, 65536, 1 << 20, 3 << 20):
        message = os.urandom(size)
        check(f"unary of {size} bytes", echo.unary("Unary", message) == message)


def check_status(echo):
    for code in grpc.StatusCode:
        number = code.value[0]
        if number == 0:
            continue
        e = echo.error("Fail", f"{number} why: \u00e9 100%".encode())
        check(f"status {code.name}", e is not None and e.code() == code, e)
        check(f"text of {code.name}", e is not None and e.details() == "why: \u00e9 100%", e)
    e = echo.error("Mute", b"")
    check("no reply is INTERNAL", e.code() == grpc.StatusCode.INTERNAL, e)


def check_unknown_method(echo):
    start = time.monotonic()
    e = echo.error("Nothing", b"x")
    check("unknown method", e.code() == grpc.StatusCode.UNIMPLEMENTED, e)
    check("unknown method at once", time.monotonic() - start < 2)


def check_metadata(echo):
    reply, call = echo.unary_call("Meta", b"", metadata=(("x-key", "some value"),))
    trailers = dict(call.trailing_metadata())
    check("request metadata", reply == b"some value", reply)
    check("trailer", trailers.get("x-back") == "some value", trailers)


def check_limits(echo):
    e = echo.error("Unary", bytes((4 << 20) + 1))
    check("oversize request", e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e)
    check("oversize names the limit", "4194304" in e.details(), e)
    check("after oversize", echo.unary("Unary", b"x") == b"x")
    e = echo.error("Unary", bytes(100000), compression=grpc.Compression.Gzip)
    check("gzip is refused, not unpacked", e.code() == grpc.StatusCode.UNIMPLEMENTED, e)


def check_big_metadata(target):
    # On a channel of its own: core answers, and then hangs up.
    echo = Echo(target)
    e = echo.error("Meta", b"", metadata=(("x-big", "v" * 20000),))
    check("oversize metadata", e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, e)
    echo.channel.close()


def check_deadline(echo):
    start = time.monotonic()
    e = echo.error("Hang", b"", timeout=0.2)
    check("deadline", e.code() == grpc.StatusCode.DEADLINE_EXCEEDED, e)
    check("deadline in time", time.monotonic() - start < 3)


def check_streams(echo):
    messages = list(echo.stream(1000, 100))
    check("stream of 1000", len(messages) == 1000 and all(m == b"s" * 100 for m in messages))
    check("empty stream", list(echo.stream(0, 0)) == [])
    call = echo.stream(1000000, 1000)
    seen = [next(call) for _ in range(10)]
    call.cancel()
    check("cancel mid-stream", len(seen) == 10 and call.code() == grpc.StatusCode.CANCELLED)


def check_bidi(echo):
    sent = [f"message {i}".encode() for i in range(500)]
    got = list(echo.bidi(iter(sent)))
    check("bidi of 500", got == sent, len(got))
    got = list(echo.bidi(iter([b"x"] * 100), method="Sink"))
    check("half-close is seen", got == [b"100"], got)
    call = echo.bidi(iter([b"a", b"close 7"]))
    got = []
    try:
        for message in call:
            got.append(message)
        check("server ends bidi", False)
    except grpc.RpcError as e:
        check("server ends bidi", e.code() == grpc.StatusCode.PERMISSION_DENIED, e)
        check("what came before the end", got == [b"a"], got)


def check_ping_pong(echo):
    turn = threading.Semaphore(1)

    def ask():
        for i in range(200):
            turn.acquire()
            yield str(i).encode()

    ok = True
    for i, message in enumerate(echo.bidi(ask())):
        ok = ok and message == str(i).encode()
        turn.release()
    check("bidi ping-pong of 200", ok)


def check_concurrent(echo):
    call = echo.channel.unary_unary("/test.Echo/Unary")
    futures = [call.future(f"n{i}".encode(), timeout=20) for i in range(200)]
    check("200 at once", all(f.result() == f"n{i}".encode() for i, f in enumerate(futures)))


def check_garbage(address):
    host, port = address.rsplit(":", 1)
    for noise in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(3000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with socket.create_connection((host, int(port))) as s:
            try:
                s.sendall(noise + os.urandom(500))
            except OSError:
                pass  # the server hung up on it, as it may


def check_all(target):
    echo = Echo(target)
    check_big_metadata(target)
    for part in (check_unary, check_status, check_unknown_method, check_metadata, check_limits,
                 check_deadline, check_streams, check_bidi, check_ping_pong, check_concurrent):
        try:
            part(echo)
        except Exception as e:  # a broken part must not hide the others
            check(f"{part.__name__} on {target}", False, repr(e))
    echo.channel.close()


def main():
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([sys.argv[1], "127.0.0.1:0", f"unix:{folder}/s"],
                                  stdout=subprocess.PIPE, text=True)
        try:
            ready, tcp, unix = server.stdout.readline().split()
            check("ready", ready == "ready")
            check_all(unix)
            check_garbage(tcp)
            check_all(tcp)
            server.send_signal(signal.SIGTERM)
            check("exit status after SIGTERM", server.wait(timeout=10) == 0)
            check("nothing left behind", os.listdir(folder) == [])
        finally:
            server.kill()
    print(f"{N_CHECKS - len(FAILURES)} of {N_CHECKS} checks passed")
    return 1 if FAILURES or N_CHECKS < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
