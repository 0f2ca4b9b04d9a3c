#!/bin/sh
# TLS, tokens, health, reflection and the facade against grpcio. 77: it, or openssl, is not here.
# usage: test_secure_api.sh BIN_DIR
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=/usr/bin/python3
if ! "$python" -c 'import grpc, google.protobuf' 2>/dev/null ||
    ! command -v openssl >/dev/null; then
    echo "skipped: needs the packages python3-grpcio, python3-protobuf and openssl"
    exit 77
fi
FT_NODE_MODULES=$(dirname "$1")/grpc_js/node_modules
export FT_NODE_MODULES
exec "$python" "$root/tests/interop/secure_api.py" "$1"
