#!/bin/bash
# Look for inputs that break a parser: libFuzzer with AddressSanitizer and UBSan on every target.
# What is found lies in build/fuzz/findings; once it is repaired, copy it to
# tests/fuzz/corpus/TARGET, and every build replays it. 77: clang or its run time is not here.
#
#   tests/fuzz/run.sh [--seconds N] [TARGET...]   N seconds each, 300 without
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
seconds=300
targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 && shift 2 ;;
    -*) echo "usage: $0 [--seconds N] [TARGET...]" >&2 && exit 64 ;;
    *) targets+=("$1") && shift ;;
    esac
done

probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
if ! echo 'int LLVMFuzzerTestOneInput(const char *p, long n) { return (int)(p - p) * (int)n; }' |
    clang -fsanitize=fuzzer,address,undefined -x c - -o "$probe" 2>/dev/null; then
    echo "skipped: needs the packages clang and libclang-rt-dev"
    exit 77
fi

build=build/fuzz
CC=clang cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFORETOKEN_FUZZ=ON \
    -DFORETOKEN_SANITIZE=address,undefined,fuzzer-no-link -DFORETOKEN_BENCH=OFF \
    -DFORETOKEN_CUDA=OFF >/dev/null
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(ninja -C $build -t targets all |
        sed -n 's|^tests/libfuzz_\([a-z_]*\):.*|\1|p')
fi
cmake --build $build --target "${targets[@]/#/libfuzz_}" >$build/build.log ||
    { tail -n 30 $build/build.log && exit 1; }

mkdir -p $build/findings
status=0
printf '%-14s %12s %10s %10s  %s\n' target executions per-second coverage result
for target in "${targets[@]}"; do
    corpus=$build/corpus/$target
    mkdir -p "$corpus"
    result=clean
    $build/tests/libfuzz_"$target" -max_total_time="$seconds" -print_final_stats=1 -timeout=10 \
        -rss_limit_mb=2048 -max_len=8192 -artifact_prefix=$build/findings/"$target"- \
        "$corpus" tests/fuzz/corpus/"$target" >$build/"$target".log 2>&1 || result=FOUND
    [ $result = clean ] || status=1
    awk -v target="$target" -v result="$result" '
        /cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
        /number_of_executed_units/ { n = $2 }
        /average_exec_per_sec/ { rate = $2 }
        END { printf "%-14s %12s %10s %10s  %s\n", target, n, rate, cov, result }' \
        $build/"$target".log
    [ $result = clean ] || tail -n 12 $build/"$target".log
done
exit $status
