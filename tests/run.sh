#!/bin/sh
# Install what is needed, build, and run the tests: the release build, then the same suites under
# ASan+UBSan and under TSan.
#
#   tests/run.sh            everything but the suites labelled slow
#   tests/run.sh --slow     the slow ones too, in the release build
#   tests/run.sh --fast     the release build alone
#   tests/run.sh --no-install
#
# FORETOKEN_BENCH_MODELS names a folder with bench-target/ and bench-draft/; tests that need the
# bench pair skip with a message when it is not set.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
usage() {
    sed -n '2,11s/^# \{0,1\}//p' tests/run.sh
}
slow= fast= install=1
for arg; do
    case $arg in
    --slow) slow=1 ;;
    --fast) fast=1 ;;
    --no-install) install= ;;
    --help)
        usage
        exit
        ;;
    *)
        usage >&2
        exit 64
        ;;
    esac
done
[ -z "$install" ] || deploy/install-deps.sh --with-tests

if [ -z "${FORETOKEN_BENCH_MODELS:-}" ] && [ -d "$root/../shared/models/bench-target" ]; then
    FORETOKEN_BENCH_MODELS=$root/../shared/models
    export FORETOKEN_BENCH_MODELS
fi

failed=
# run PRESET CTEST-ARGUMENTS...
run() {
    preset=$1
    shift
    echo "== $preset"
    cmake --preset "$preset" >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; exit 1; }
    rm -f "build-$preset.log"
    cmake --build "build/$preset" -- -k 0
    # Two at a time: suites of several processes wait more than they compute.
    ctest --test-dir "build/$preset" -j 2 --output-on-failure "$@" || failed="$failed $preset"
}

if [ -n "$slow" ]; then
    run release
else
    run release -LE slow
fi
if [ -z "$fast" ]; then
    run asan -LE 'slow|no-sanitizer'
    run tsan -LE 'slow|no-sanitizer'
fi
if [ -n "$failed" ]; then
    echo "tests failed in:$failed"
    exit 1
fi
echo "all tests passed"
