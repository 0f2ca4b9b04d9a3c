#!/bin/sh
# The demo pair, started by deploy/local.sh, against @grpc/grpc-js. 77: it is not installed.
# usage: test_grpc_js.sh BUILD_DIR
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
FT_NODE_MODULES=$1/grpc_js/node_modules
export FT_NODE_MODULES
if ! command -v node >/dev/null || [ ! -d "$FT_NODE_MODULES/@grpc/grpc-js" ]; then
    echo "skipped: run tests/interop/grpc_js/install.sh $1 first (needs node and npm)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$root/deploy/local.sh" --bin-dir "$1/bin" --target-model "$root/models/demo-target" \
    --draft-model "$root/models/demo-draft" --listen "unix:$dir/public.sock" -- \
    node "$root/tests/interop/grpc_js/public_api.mjs"
