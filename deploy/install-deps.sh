#!/bin/sh
# Install the Debian packages that foretoken needs, those that are missing alone.
#
#   deploy/install-deps.sh               what the build needs
#   deploy/install-deps.sh --with-tests  what the tests need as well
#   deploy/install-deps.sh --with-boot   what packages and the test of a booted system need too
#   deploy/install-deps.sh --list        print the missing ones, install nothing
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libgrpc-dev libprotobuf-c-dev
    protobuf-c-compiler protobuf-compiler libinih-dev libjansson-dev libpcre2-dev libutf8proc-dev
    libssl-dev libmicrohttpd-dev"
tests="check clang libclang-rt-dev openssl python3 python3-grpcio python3-grpc-tools
    python3-protobuf valgrind systemd groff-base"
boot="dpkg-dev file debootstrap systemd-container util-linux"

wanted=$build
list=
for arg; do
    case $arg in
    --with-tests) wanted="$wanted $tests" ;;
    --with-boot) wanted="$wanted $boot" ;;
    --list) list=1 ;;
    --help)
        echo "usage: $0 [--with-tests] [--with-boot] [--list]"
        exit
        ;;
    *)
        echo "usage: $0 [--with-tests] [--with-boot] [--list]" >&2
        exit 64
        ;;
    esac
done

command -v dpkg-query >/dev/null || {
    echo "install-deps: no dpkg here: this is for Debian and Ubuntu; the packages wanted are:" >&2
    printf '%s\n' "$wanted" >&2
    exit 69
}

installed() {
    case $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) in
    *' installed') ;;
    *) return 1 ;;
    esac
}

missing=
for package in $wanted; do
    installed "$package" || missing="$missing $package"
done
if [ -n "$list" ]; then
    echo "$missing" | tr -s ' ' '\n' | sed '/^$/d'
    exit 0
fi
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "install-deps: not root and no sudo; install these and run again:$missing" >&2
        exit 77
    }
    as_root=sudo
fi
echo "installing:$missing" >&2
$as_root apt-get update -q >&2
# shellcheck disable=SC2086 # one word per package
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing >&2
