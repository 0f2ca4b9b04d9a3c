#!/usr/bin/env python3
"""What the real processes tell systemd, and when: a socket of ours stands in its place.

usage: notify.py BIN_DIR MODELS_DIR
"""
import ctypes.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

BIN, MODELS = sys.argv[1:3]
LIMIT_S = 60


class Process:
    """A program of ours with a notification socket of its own."""

    def __init__(self, role, *args, **env):
        self.role = role
        self.path = os.path.join(WORK, role + ".notify")
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.log = open(os.path.join(WORK, role + ".log"), "w+")
        self.heard = []
        self.process = subprocess.Popen(
            [os.path.join(BIN, "foretoken-" + role), *args],
            stderr=self.log, env={**os.environ, "NOTIFY_SOCKET": self.path, **env})
        RUNNING.append(self)

    def next(self, limit_s):
        self.socket.settimeout(max(limit_s, 0.001))
        try:
            text = self.socket.recv(4096).decode()
        except TimeoutError:
            return None
        self.heard.append(text)
        return text

    def expect(self, wanted, never=None):
        """The messages up to the first that holds wanted; none of them holds never."""
        until = time.monotonic() + LIMIT_S
        while (left := until - time.monotonic()) > 0:
            text = self.next(left)
            if text is None:
                break
            if never is not None and never in text:
                fail(f"{self.role} said '{text}' before '{wanted}'")
            if wanted in text:
                return text
        return fail(f"{self.role} did not say '{wanted}'; it said {self.heard}")

    def quiet(self, seconds, never):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            text = self.next(left)
            if text is not None and never in text:
                fail(f"{self.role} said '{text}'")

    def signal(self, signo):
        self.process.send_signal(signo)

    def end(self):
        return self.process.wait(LIMIT_S)

    def logged(self):
        self.log.flush()
        return open(self.log.name).read()


RUNNING = []


def fail(text):
    print("FAIL", text)
    for process in RUNNING:
        print(f"--- {process.role}\n{process.logged()}")
    stop_all()
    sys.exit(1)


def check(condition, text):
    if not condition:
        fail(text)
    print("ok  ", text)


def stop_all():
    for process in RUNNING:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait()


def worker(role):
    return Process(role, "--model", f"{MODELS}/demo-{role}", "--listen", f"unix:{WORK}/{role}.sock")


def generate():
    return subprocess.run(
        [os.path.join(BIN, "foretokenctl"), "generate", "--endpoint", f"unix:{WORK}/c.sock",
         "--prompt", "Once", "--max-tokens", "4", "--timeout", str(LIMIT_S)],
        capture_output=True, check=False).returncode


def write_conf(extra):
    with open(CONF, "w") as conf:
        conf.write(f"[coordinator]\nlisten = unix:{WORK}/c.sock\n"
                   f"target_endpoint = unix:{WORK}/target.sock\n{extra}")


def main():
    write_conf("max_queue = 5\n")
    # Alone the coordinator is no use to anybody, and says what it waits for.
    coordinator = Process("coordinator", "--config", CONF, WATCHDOG_USEC="3000000")
    coordinator.expect("STATUS=starting: ", never="READY=1")
    coordinator.quiet(1.5, never="READY=1")
    check("WATCHDOG=1" in coordinator.heard, "the watchdog is fed while it starts")
    target = worker("target")
    target.expect("STATUS=loading ", never="READY=1")
    target.expect("READY=1")
    coordinator.expect("READY=1\nSTATUS=serving on ")
    check(generate() == 0, "READY: a token can be made")

    target.signal(signal.SIGKILL)
    target.end()
    coordinator.expect("STATUS=unavailable: ", never="READY=1")
    RUNNING.remove(target)
    target = worker("target")
    text = coordinator.expect("STATUS=serving on ")
    check("READY" not in text, "a target that comes back is a matter of the status")

    write_conf("max_queue = 6\nmax_num_seqs = 3\n")
    coordinator.signal(signal.SIGHUP)
    text = coordinator.expect("RELOADING=1", never="READY=1")
    check("MONOTONIC_USEC=" in text, "a reload says when it began")
    coordinator.expect("READY=1")
    log = coordinator.logged()
    check('reloaded key max_queue from "5" to "6"' in log, "a reloadable key is taken over")
    check('reload-refused key max_num_seqs running "64" configured "3"' in log,
          "another key is named")
    write_conf("max_queue = six\n")
    coordinator.signal(signal.SIGHUP)
    coordinator.expect("RELOADING=1")
    coordinator.expect("READY=1")
    check(f"{CONF}:4: max_queue is 'six': not a whole number" in coordinator.logged(),
          "a wrong file is named, with its line")
    check(generate() == 0, "and changes nothing")

    target.expect("READY=1")
    target.signal(signal.SIGHUP)
    target.expect("RELOADING=1")
    target.expect("READY=1")
    coordinator.signal(signal.SIGTERM)
    text = coordinator.expect("STOPPING=1")
    check("EXTEND_TIMEOUT_USEC=15000000" in text, "a drain asks for its time")
    check(coordinator.end() == 0, "SIGTERM ends the coordinator with status 0")
    target.signal(signal.SIGTERM)
    target.expect("STOPPING=1")
    check(target.end() == 0, "SIGTERM ends the worker with status 0")

    # What cannot be is said, and never READY.
    wrong = Process("draft", "--model", WORK, "--listen", f"unix:{WORK}/x.sock")
    wrong.expect("STATUS=failed: ", never="READY=1")
    check(wrong.end() == 78, "a model that is not there is status 78")

    # A socket that nobody reads any more stops nobody.
    deaf = Process("target", "--model", f"{MODELS}/demo-target", "--listen", f"unix:{WORK}/y.sock",
                   NOTIFY_SOCKET="/nonexistent/notify")
    for _ in range(LIMIT_S * 10):
        if "systemd could not be told of READY" in deaf.logged():
            break
        time.sleep(0.1)
    else:
        fail("READY that does not arrive is logged")
    deaf.signal(signal.SIGTERM)
    check(deaf.end() == 0, "READY that does not arrive is logged, and it serves")


if not ctypes.util.find_library("systemd") and not os.path.exists(
        "/usr/lib/x86_64-linux-gnu/libsystemd.so.0"):
    print("skipped: no libsystemd.so.0")
    sys.exit(77)
with tempfile.TemporaryDirectory() as WORK:
    CONF = os.path.join(WORK, "foretoken.conf")
    try:
        main()
    finally:
        stop_all()
