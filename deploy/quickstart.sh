#!/bin/bash
# From a fresh Debian 12 or Ubuntu 24.04 to a story: install what is missing, build, start the demo
# pair, stream a continuation of PROMPT, and measure it against plain decoding.
#
# usage: deploy/quickstart.sh [PROMPT ...]
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ "${1:-}" = --help ] && [ -z "${FORETOKEN_QUICKSTART_DIR:-}" ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$root/deploy/quickstart.sh"
    exit
fi
build=$root/build/quickstart # its own: the tests' build trees have other options
bin=$build/bin
max_tokens=200
repeats=3
temperature=0.7

# ---- the part that runs while the service is up ------------------------------------------------

generate() { # SEED ARGUMENT...
    local seed=$1
    shift
    "$bin/foretokenctl" generate --prompt "$prompt" --max-tokens "$max_tokens" \
        --temperature "$temperature" --seed "$seed" "$@"
}

story() {
    printf '\n%s' "$prompt"
    generate 1 --stream
    printf '\n'
    # The same seeds in turn with and without drafts, so that a busy machine slows both.
    local seed
    for seed in $(seq "$repeats"); do
        generate "$seed" --json >>"$FORETOKEN_QUICKSTART_DIR/speculative"
        generate "$seed" --json --no-speculation >>"$FORETOKEN_QUICKSTART_DIR/plain"
    done
    awk -v plain_file="$FORETOKEN_QUICKSTART_DIR/plain" '
        # The value of a key; within a text its quotes would be escaped.
        function number(name,    at) {
            at = index($0, "\"" name "\":")
            return at == 0 ? 0 : substr($0, at + length(name) + 3) + 0
        }
        {
            seconds = number("total_seconds") - number("first_token_seconds")
            tokens = number("completion_tokens") - 1
            if (FILENAME == plain_file) {
                plain_seconds += seconds
                plain_tokens += tokens
                next
            }
            spec_seconds += seconds
            spec_tokens += tokens
            drafted += number("num_draft_tokens")
            accepted += number("num_accepted_tokens")
            steps += number("num_target_steps")
        }
        END {
            if (spec_seconds <= 0 || plain_seconds <= 0 || plain_tokens <= 0 || steps <= 0)
                exit 1
            rate = spec_tokens / spec_seconds
            plain_rate = plain_tokens / plain_seconds
            printf "%d tokens, %.0f tokens/s, %.0f%% of %d drafted accepted, %.2f tokens a ",
                spec_tokens, rate, drafted ? 100 * accepted / drafted : 0, drafted,
                spec_tokens / steps
            printf "verification, %.2fx the %.0f tokens/s of plain decoding\n",
                rate / plain_rate, plain_rate
        }' "$FORETOKEN_QUICKSTART_DIR/speculative" "$FORETOKEN_QUICKSTART_DIR/plain"
}

prompt=${*:-Once upon a time, there was a}
if [ -n "${FORETOKEN_QUICKSTART_DIR:-}" ]; then
    story
    exit
fi

# ---- install, build, start ---------------------------------------------------------------------

"$root/deploy/install-deps.sh"
log=$(mktemp)
dir=$(mktemp -d)
trap 'rm -rf "$log" "$dir"' EXIT
echo "building (about a minute the first time)" >&2
if ! { cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DFORETOKEN_TESTS=OFF \
    -DFORETOKEN_BENCH=OFF && cmake --build "$build"; } >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "quickstart: the build failed" >&2
    exit 70
fi
# Two drafts a round: of a pair this small a longer draft costs more than it brings.
FORETOKEN_QUICKSTART_DIR=$dir "$root/deploy/local.sh" --bin-dir "$bin" \
    --target-model "$root/models/demo-target" --draft-model "$root/models/demo-draft" \
    --set num_speculative_tokens=2 -- "$root/deploy/quickstart.sh" "$prompt"
