#!/usr/bin/env python3
"""Steps of a target and a draft on a GPU beside what PyTorch and transformers take for the same
checkpoints, in turns in one run, and one table. Ends with 77 where torch, transformers or a GPU
are missing. `mkmodel` makes the checkpoints.

Ours are those of bench_step: until the rows of logits are in the host's memory. The others end
when the best token of each row is there."""
import argparse
import json
import os
import queue
import re
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = (1, 5)
KINDS = {"eager": "transformers, forward",
         "compiled": "static cache, torch.compile, reduce-overhead",
         "graph": "static cache, eager kernels in one CUDA graph"}
ALPHA = 0.8


class Worker:
    """A process of peer_torch.py with one checkpoint."""

    def __init__(self, path, program):
        self.process = subprocess.Popen([sys.executable, program, path], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.replies = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.startswith("@ "):
                self.replies.put(json.loads(line[2:]))
        self.replies.put({"error": "the process ended"})

    def order(self, **order):
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # listen() says so

    def reply(self, timeout_s):
        """The next reply; a process that gives none in time is ended."""
        try:
            return self.replies.get(timeout=max(timeout_s, 0.1))
        except queue.Empty:
            self.close()
            return {"error": f"no answer within {timeout_s:.0f} s"}

    def ask(self, timeout_s, **order):
        if self.process.poll() is not None:
            return {"error": "the process has ended"}
        self.order(**order)
        return self.reply(timeout_s)

    def close(self):
        self.process.kill()
        self.process.wait()


def parse_step(text):
    """Floor and steps of bench_step's table: {"floor": ms, rows: (best, median)}."""
    found = re.search(r"^plain read +([\d.]+) ms best", text, re.M)
    if found is None:
        return {}
    steps = {"floor": float(found.group(1))}
    for row in re.finditer(r"^ *500 +(\d+) +([\d.]+) +([\d.]+) ", text, re.M):
        steps[int(row.group(1))] = (float(row.group(2)), float(row.group(3)))
    return steps


def bench_step(program, path, rounds):
    out = subprocess.run([program, path, "--device", "cuda", "--rounds", str(rounds)], text=True,
                         capture_output=True, check=False, timeout=120)
    if out.returncode != 0:
        print(f"bench_step {path}: {out.stderr.strip()}", flush=True)
    return parse_step(out.stdout)


START_S = time.monotonic()


def say(text):
    print(f"{time.monotonic() - START_S:5.0f} s  {text}", file=sys.stderr, flush=True)


class Model:
    """A checkpoint, and what was measured with it: a process for each number of rows, so that
    they compile at the same time."""

    def __init__(self, path, args):
        self.path, self.name = path, os.path.basename(path.rstrip("/"))
        self.workers = {rows: Worker(path, args.peer)
                        for rows in (ROWS[:1] if args.assisted_only else ROWS)}
        self.ours, self.floor = {}, None
        self.times = {}  # (kind, rows): [ms]
        self.failed = {}

    def prepare(self, kind, rows):
        got = self.workers[rows].ask(60, do="prepare", kind=kind, rows=rows)
        if "error" in got:
            self.failed[kind, rows] = got["error"]

    def close(self):
        for worker in self.workers.values():
            worker.close()

    def add(self, kind, rows, got):
        if "ms" in got:
            self.times.setdefault((kind, rows), []).extend(got["ms"])
        else:
            self.failed[kind, rows] = got.get("error", "?")

    def add_ours(self, steps):
        if "floor" in steps:
            self.floor = min(self.floor or steps["floor"], steps["floor"])
        for rows in ROWS:
            if rows in steps:
                self.ours.setdefault(rows, []).append(steps[rows])


def prepare(models, args):
    """All kinds of steps; all compile at the same time, nothing is measured meanwhile."""
    end = time.monotonic() + args.compile_s
    cases = [(model, rows) for model in models for rows in ROWS]
    for model, rows in cases:
        model.workers[rows].order(do="prepare", kind="compiled", rows=rows)
    for model, rows in cases:
        got = model.workers[rows].reply(end - time.monotonic())
        say(f"{model.name}: compile of {rows} rows: {got}")
        if "error" in got:
            model.failed["compiled", rows] = got["error"]
        if model.workers[rows].process.poll() is not None:  # compiled too long: without, then
            model.workers[rows] = Worker(model.path, args.peer)
            model.workers[rows].reply(60)
    for kind in ("eager", "graph"):
        for model, rows in cases:
            model.prepare(kind, rows)
    say("ready")


def measure(models, args):
    for _ in range(args.repeats):
        for model in models:
            model.add_ours(bench_step(args.bench_step, model.path, args.rounds))
            model.add("generate", 1, model.workers[1].ask(60, do="generate", n=1))
            for rows in ROWS:
                for kind in KINDS:
                    if (kind, rows) not in model.failed:
                        model.add(kind, rows, model.workers[rows].ask(
                            60, do="time", kind=kind, rows=rows, n=args.rounds))
            say(f"{model.name}: {model.ours} {summary(model)}")


def summary(model):
    return {f"{kind} {rows}": f"{min(ms):.3f}" for (kind, rows), ms in model.times.items()}


def print_steps(models):
    print(f"{'model':8} {'rows':>4}  {'context 500, batch 1, bf16':46} {'best ms':>8} "
          f"{'median':>8} {'of read':>8} {'of ours':>8}")
    for model in models:
        for rows in ROWS:
            ours = [best for best, _ in model.ours.get(rows, [])]
            lines = [("foretoken, bench_step", ours, [m for _, m in model.ours.get(rows, [])])]
            for kind, name in list(KINDS.items()) + [("generate", "transformers, generate")]:
                if kind == "generate" and rows > 1:
                    continue
                ms = model.times.get((kind, rows), [])
                lines.append((name, ms, ms))
                if not ms:
                    print(f"{model.name}, {rows} rows, {name}: "
                          f"{model.failed.get((kind, rows), 'not measured')}")
            for name, best, every in lines:
                if best and model.floor and ours:
                    print(f"{model.name:8} {rows:4}  {name:46} {min(best):8.3f} "
                          f"{statistics.median(every):8.3f} {min(best) / model.floor:8.2f} "
                          f"{min(best) / min(ours):8.2f}")


def tokens_a_round(k):
    return sum(ALPHA ** i for i in range(k + 1))


def print_assisted(title, got, k):
    if "error" in got:
        print(f"assisted generation, {title}: {got['error']}")
        return
    plain, rate = 1e3 / got["plain_ms"], got["tokens_a_round"] / got["round_ms"] * 1e3
    print(f"assisted generation, {title}, K = {k}: plain {got['plain_ms']:.2f} ms a token "
          f"({plain:.0f} tok/s); a round {got['round_ms']:.2f} ms, {got['tokens_a_round']:.2f} "
          f"tokens a round: {rate:.0f} tok/s ({rate / plain:.2f}x), measured; "
          f"{got['same']} of {got['runs']} texts as without")
    at_alpha = tokens_a_round(k) / got["round_ms"] * 1e3
    print(f"  computed for acceptance {ALPHA}: {tokens_a_round(k):.2f} tokens a round, "
          f"{at_alpha:.0f} tok/s ({at_alpha / plain:.2f}x)")


def print_computed(target, draft):
    """What steps of 1 and 5 rows make of K = 4, decision and hand-overs left out."""
    k = ROWS[1] - 1
    print(f"computed from the steps above, K = {k}, acceptance {ALPHA}, nothing but steps:")
    for kind, name in [("ours", "foretoken, bench_step")] + list(KINDS.items()):
        best = []
        for model, rows in ((target, 1), (target, 1 + k), (draft, 1)):
            ms = model.times.get((kind, rows), [])
            if kind == "ours":
                ms = [first for first, _ in model.ours.get(rows, [])]
            best.append(min(ms, default=None))
        if None not in best:
            plain, verify, step = best
            round_ms = k * step + verify
            rate = tokens_a_round(k) / round_ms * 1e3
            print(f"  {name:46} plain {1e3 / plain:4.0f} tok/s, a round {round_ms:6.2f} ms, "
                  f"{rate:4.0f} tok/s ({rate * plain / 1e3:.2f}x)")


def prompts_of(path):
    with open(path, encoding="utf-8") as file:
        return [prompt["prompt_ids"] for prompt in json.load(file)["prompts"]]


def assist(worker, title, draft, args, **more):
    got = worker.ask(180, do="assist", draft=draft, k=args.k, n=1, **more)
    print_assisted(title, got, args.k)
    say(f"assisted generation, {title}")


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("--pair", nargs=2, metavar="DIR", help="a trained target and its draft")
    parser.add_argument("--prompts", default=os.path.join(HERE, "../tests/data",
                                                          "demo-reference.json"))
    parser.add_argument("--bench-step", default=os.path.join(HERE, "../build/release/bin",
                                                             "bench_step"))
    parser.add_argument("--k", type=int, default=3, help="tokens that assisted generation drafts")
    parser.add_argument("--assisted-only", action="store_true", help="no steps, no compiling")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--compile-s", type=float, default=120, help="most seconds for compiling")
    parser.add_argument("--peer", default=os.path.join(HERE, "peer_torch.py"),
                        help="the script that runs PyTorch")
    return parser.parse_args()


def steps(models, args):
    prepare(models, args)
    measure(models, args)
    for model in models:
        print(f"{model.name}: a plain read of a step's weights takes {model.floor} ms")
    print_steps(models)
    print_computed(models[0], models[1])


def main():
    args = options()
    models = [Model(args.target, args), Model(args.draft, args)]
    workers = [worker for model in models for worker in model.workers.values()]
    if args.pair:
        workers.append(Worker(args.pair[0], args.peer))
    abouts = [worker.reply(180) for worker in workers]
    for about in abouts:
        if "card" not in about:
            print(f"beside_torch: {about.get('missing', about.get('error'))}")
            for worker in workers:
                worker.close()
            return 77 if "missing" in about else 1
    say("loaded")
    about = abouts[0]
    print(f"{about['card']}; PyTorch {about['torch']}, transformers {about['transformers']}")
    if not args.assisted_only:
        steps(models, args)
    assist(models[0].workers[1], "the same pair", args.draft, args)
    for model in models:
        model.close()
    if args.pair:
        assist(workers[-1], "the trained pair", args.pair[1], args,
               prompts=prompts_of(args.prompts)[:4])
        workers[-1].close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
