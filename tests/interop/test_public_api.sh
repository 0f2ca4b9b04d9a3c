#!/bin/sh
# The demo pair, started by deploy/local.sh, against grpcio. 77: grpcio is not here.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
bin_dir=$1
python=/usr/bin/python3
if ! "$python" -c 'import grpc, google.protobuf' 2>/dev/null; then
    echo "skipped: needs the packages python3-grpcio and python3-protobuf"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$root/deploy/local.sh" --bin-dir "$bin_dir" --target-model "$root/models/demo-target" \
    --draft-model "$root/models/demo-draft" --listen "unix:$dir/public.sock" -- \
    "$python" "$root/tests/interop/public_api.py"
