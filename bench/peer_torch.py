"""peer_torch: steps of a checkpoint by PyTorch and transformers, for beside_torch.py, which starts
it: orders are JSON objects, one a line, on standard input; replies are lines that begin with "@ ".
An order that fails is answered with what failed, and the next one is heard."""
import json
import statistics
import sys
import time

MISSING = None
try:
    import torch
    import transformers
except ImportError as missing:
    MISSING = str(missing)

CONTEXT = 500
CACHE_LEN = 512  # of the static cache: the context and the rows of a step
GENERATED = 64  # tokens, the context being their middle


class Peer:
    def __init__(self, path):
        self.model = self.load(path)
        self.vocab = self.model.config.vocab_size
        self.steps = {}

    @staticmethod
    def load(path):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.bfloat16, attn_implementation="sdpa")
        model = model.to("cuda").eval()
        model.generation_config.eos_token_id = None  # every run has its length
        model.generation_config.pad_token_id = 0
        return model

    def ids(self, begin, n):
        return (torch.arange(begin, begin + n, device="cuda") * 37 % self.vocab)[None]

    def dynamic(self, n_rows):
        """A growing cache, cut back before each step."""
        ids = self.ids(CONTEXT, n_rows)
        cache = self.model(self.ids(0, CONTEXT), use_cache=True).past_key_values

        def reset():
            more = cache.get_seq_length() - CONTEXT
            if more > 0:
                cache.crop(-more)

        def step():
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            return out.logits[0].argmax(-1)
        return reset, step

    def static(self, n_rows, forward):
        """A cache of one size, whose length is set back before each step."""
        ids = self.ids(CONTEXT, n_rows)
        positions = torch.arange(CONTEXT, CONTEXT + n_rows, device="cuda")[None]
        cache = transformers.StaticCache(config=self.model.config, max_cache_len=CACHE_LEN)
        self.model(input_ids=self.ids(0, CONTEXT), past_key_values=cache, use_cache=True,
                   position_ids=torch.arange(CONTEXT, device="cuda")[None])

        def reset():
            for layer in cache.layers:
                layer.cumulative_length.fill_(CONTEXT)

        def step():
            out = forward(input_ids=ids, position_ids=positions, past_key_values=cache,
                          use_cache=True)
            return out.logits[0].argmax(-1)
        return reset, step

    def graph(self, n_rows):
        reset, step = self.static(n_rows, self.model.forward)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                reset()
                step()
        torch.cuda.synchronize()
        reset()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            best = step()

        def replay(inputs=step):  # the graph reads what step() owns
            del inputs
            graph.replay()
            return best
        return reset, replay

    def compiled(self, n_rows):
        forward = torch.compile(self.model.forward, mode="reduce-overhead", dynamic=False)
        reset, inner = self.static(n_rows, forward)

        def step():
            torch.compiler.cudagraph_mark_step_begin()
            return inner()
        for _ in range(4):
            reset()
            step().tolist()
        return reset, step

    def prepare(self, order):
        """Make a kind of step ready: eager, graph or compiled, for so many rows."""
        begin = time.monotonic()
        make = {"eager": self.dynamic, "graph": self.graph, "compiled": self.compiled}
        pair = make[order["kind"]](order["rows"])
        self.steps[order["kind"], order["rows"]] = pair
        return {"s": time.monotonic() - begin}

    def time(self, order):
        """Times of a step, in ms, until the best token of each row is in the host's memory."""
        reset, step = self.steps[order["kind"], order["rows"]]
        times = []
        for i in range(order["n"] + 3):
            reset()
            torch.cuda.synchronize()
            begin = time.monotonic()
            step().tolist()
            if i >= 3:
                times.append((time.monotonic() - begin) * 1e3)
        return {"ms": times}

    def run(self, n_new, **more):
        """Seconds and forwards of the model for a greedy text, and its tokens."""
        n_prompt = more.pop("n_prompt", CONTEXT - GENERATED // 2)
        ids = more.pop("ids", None)
        ids = self.ids(0, n_prompt) if ids is None else torch.tensor([ids], device="cuda")
        count = [0]
        hook = self.model.register_forward_hook(lambda *_: count.__setitem__(0, count[0] + 1))
        torch.cuda.synchronize()
        begin = time.monotonic()
        out = self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=n_new, **more)
        tokens = out[0, ids.shape[1]:].tolist()
        seconds = time.monotonic() - begin
        hook.remove()
        return seconds, count[0], tokens

    def generate(self, order):
        """A token of generate(), prompt not counted: the cost of more tokens."""
        times = []
        self.run(8)
        for _ in range(order["n"]):
            few, many = self.run(1), self.run(1 + GENERATED)
            times.append((many[0] - few[0]) * 1e3 / GENERATED)
        return {"ms": times}

    def assist(self, order):
        """Assisted generation beside plain generation, in turns: a round, and tokens a second."""
        draft = self.load(order["draft"])
        config = draft.generation_config
        config.num_assistant_tokens = order["k"]
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        prompts = order.get("prompts") or [None]
        got = {"plain_ms": [], "round_ms": [], "tokens_a_round": [], "same": 0, "runs": 0}
        self.run(8, ids=prompts[0])
        self.run(8, assistant_model=draft, ids=prompts[0])
        for _ in range(order["n"]):
            for ids in prompts:
                plain = self.run(GENERATED, ids=ids)
                few = self.run(8, assistant_model=draft, ids=ids)
                many = self.run(GENERATED, assistant_model=draft, ids=ids)
                short = self.run(8, ids=ids)
                got["plain_ms"].append((plain[0] - short[0]) * 1e3 / (GENERATED - 8))
                rounds = many[1] - few[1]
                got["round_ms"].append((many[0] - few[0]) * 1e3 / rounds)
                got["tokens_a_round"].append((len(many[2]) - len(few[2])) / rounds)
                got["same"] += plain[2] == many[2]
                got["runs"] += 1
        return {key: statistics.mean(value) if isinstance(value, list) else value
                for key, value in got.items()}


def reply(what):
    print("@ " + json.dumps(what), flush=True)


def main():
    if MISSING:
        reply({"missing": MISSING})
        return 77
    if not torch.cuda.is_available():
        reply({"missing": "no GPU that PyTorch sees"})
        return 77
    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        peer = Peer(sys.argv[1])
        reply({"card": torch.cuda.get_device_name(0), "torch": torch.__version__,
               "transformers": transformers.__version__})
        for line in sys.stdin:
            order = json.loads(line)
            try:
                reply(getattr(peer, order["do"])(order))
            except Exception as failure:  # the next order may do
                text = f"{type(failure).__name__}: {failure}".strip().splitlines()
                reply({"error": text[0][:300]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
