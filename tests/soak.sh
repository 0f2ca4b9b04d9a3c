#!/bin/sh
# Eight streams for a long time, and something goes wrong every few seconds; prints what it cost.
# usage: tests/soak.sh [SECONDS] [BUILD_DIR]     an hour by default; FORETOKEN_SOAK_SEED repeats one
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${1:-3600}
build=${2:-$root/build/release}
case $seconds in
--help) echo "usage: $0 [SECONDS] [BUILD_DIR]"; exit ;;
'' | *[!0-9]*) echo "usage: $0 [SECONDS] [BUILD_DIR]" >&2; exit 64 ;;
esac
[ -x "$build/tests/test_e2e_outages" ] || {
    echo "soak: no $build/tests/test_e2e_outages: build it first" >&2
    exit 66
}
CK_RUN_CASE=soak CK_DEFAULT_TIMEOUT=$((seconds + 600)) FORETOKEN_SOAK_SECONDS=$seconds
export CK_RUN_CASE CK_DEFAULT_TIMEOUT FORETOKEN_SOAK_SECONDS
exec "$build/tests/test_e2e_outages"
