#!/bin/bash
# Throughput of a pair at several numbers of clients, speculation off, on and automatic: one run in
# which they take turns on each prompt, and one table.
#
# usage: bench/throughput.sh [option ...]
#
#   --target-model DIR  default: $FORETOKEN_BENCH_MODELS/bench-target
#   --draft-model DIR   default: $FORETOKEN_BENCH_MODELS/bench-draft
#   --clients N,...     default 1,4,16,64
#   --k K               tokens drafted where speculation is on, default 4
#   --repeats N         times that each prompt is run, default 1
#   --max-tokens N      of each request, default 128
#   --prompt-file FILE  one prompt a line; default: those of foretokenctl bench
#   --bin-dir DIR       programs; default: build/release/bin
#   --json FILE         keep what foretokenctl bench measured
#   --set KEY=VALUE     as deploy/local.sh has it; repeatable
#
# The last column is automatic against the better of off and on: 0.97 is the least it should be.
# shellcheck disable=SC2016 # awk's own dollars
set -eu

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage_error() {
    echo "throughput.sh: $*" >&2
    echo "try $0 --help" >&2
    exit 64
}

target_model='' draft_model='' clients=1,4,16,64 k=4 repeats=1 max_tokens=128 json=''
bin_dir=$root/build/release/bin
declare -a sets=() prompts=()
while [ $# -gt 0 ]; do
    if [ "$1" = --help ]; then
        sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit 0
    fi
    if [ $# -lt 2 ] || [ -z "$2" ]; then
        usage_error "$1 needs a value, or is unknown"
    fi
    case $1 in
    --target-model) target_model=$2 ;;
    --draft-model) draft_model=$2 ;;
    --clients) clients=$2 ;;
    --k) k=$2 ;;
    --repeats) repeats=$2 ;;
    --max-tokens) max_tokens=$2 ;;
    --prompt-file) prompts=(--prompt-file "$2") ;;
    --bin-dir) bin_dir=$2 ;;
    --json) json=$2 ;;
    --set) sets+=(--set "$2") ;;
    *) usage_error "unknown option $1" ;;
    esac
    shift 2
done
if [ -z "$target_model$draft_model" ] && [ -z "${FORETOKEN_BENCH_MODELS:-}" ]; then
    usage_error "name the models, or set FORETOKEN_BENCH_MODELS"
fi
: "${target_model:=${FORETOKEN_BENCH_MODELS:-}/bench-target}"
: "${draft_model:=${FORETOKEN_BENCH_MODELS:-}/bench-draft}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/deploy/local.sh" --target-model "$target_model" --draft-model "$draft_model" \
    --bin-dir "$bin_dir" --set num_speculative_tokens=auto "${sets[@]}" -- \
    "$bin_dir/foretokenctl" bench --clients "$clients" --bench-k "$k" --repeats "$repeats" \
    --max-tokens "$max_tokens" "${prompts[@]}" --json >"$work/bench.json"
if [ -n "$json" ]; then
    cp "$work/bench.json" "$json"
fi

# One line of the file is one row: {"row":"off","concurrency":4,"output_throughput":123.4,...
awk -v k="$k" '
function field(name) {
    if (!match($0, "\"" name "\":[^,}]*"))
        return ""
    value = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    gsub(/"/, "", value)
    return value
}
/^\{"row":/ && /"output_throughput":/ {
    at = field("concurrency")
    if (!(at in seen)) {
        seen[at] = 1
        order[++n] = at
    }
    speed[at, field("row")] = field("output_throughput")
    gain[at, field("row")] = field("speedup")
    low[at, field("row")] = field("speedup_low")
    high[at, field("row")] = field("speedup_high")
}
END {
    on = "K = " k
    printf "%7s %11s %11s %11s  %-20s %-20s %s\n", "clients", "off tok/s", on, "auto tok/s",
        on " / off", "auto / off", "auto / better"
    for (i = 1; i <= n; i++) {
        at = order[i]
        better = gain[at, on] > 1 ? gain[at, on] : 1
        printf "%7d %11.1f %11.1f %11.1f  %4.2f [%4.2f, %4.2f]    %4.2f [%4.2f, %4.2f]    %4.2f\n",
            at, speed[at, "off"], speed[at, on], speed[at, "service"], gain[at, on],
            low[at, on], high[at, on], gain[at, "service"], low[at, "service"],
            high[at, "service"], gain[at, "service"] / better
    }
    exit n == 0
}' "$work/bench.json"
