#!/bin/sh
# Build the packages: build/package/packages/foretoken_VERSION_ARCH.deb and a .tar.gz. gRPC and the
# other libraries are linked statically, so that they install on any Debian or Ubuntu whose C
# library is not older than this one's.
#
# usage: deploy/package.sh [CMAKE-OPTION ...]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
if [ "${1:-}" = --help ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$root/deploy/package.sh"
    exit
fi
build=$root/build/package
command -v dpkg-shlibdeps >/dev/null || {
    echo "package: dpkg-shlibdeps is missing: install dpkg-dev" >&2
    exit 69
}
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DFORETOKEN_TESTS=OFF \
    -DFORETOKEN_BENCH=OFF -DFORETOKEN_STATIC=ON "$@" >&2
cmake --build "$build" >&2
cd "$build"
cpack -G DEB >&2
cpack -G TGZ >&2
ls "$build"/packages/foretoken*
