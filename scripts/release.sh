#!/usr/bin/env bash
# Builds the server as it should be run in production: once so that it counts what it does, then under the load of
# `amalgam-bench train`, then again with those counts. What runs often then stands together and fits the processor's caches.
#
#   scripts/release.sh            # leaves the server in target/dist/amalgam; takes two release builds
#   scripts/release.sh profdata   # the program that reads the counts; fails where there is none
#
# Where that program is missing the server is built without counts, and that is said.
set -euo pipefail
cd "$(dirname "$0")/.."

# It has to know the format of the compiler's own LLVM, which has not changed since version 19.
oldest=19

find_profdata() {
    local host sysroot version
    host=$(host)
    sysroot=$(rustc --print sysroot)
    if [[ -x $sysroot/lib/rustlib/$host/bin/llvm-profdata ]]; then
        echo "$sysroot/lib/rustlib/$host/bin/llvm-profdata"
        return 0
    fi
    for version in $(seq 40 -1 $oldest); do
        if command -v "llvm-profdata-$version" 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

host() { rustc --version --verbose | sed -n 's/^host: //p'; }

say() { printf '\n==> %s\n' "$*"; }

# Arguments: the flags for the compiler, the folder. Only crates of the server are built with the flags, not what runs while
# it is built.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --locked --release -p amalgam --target "$(host)" --target-dir "$2"
}

train() {
    # shellcheck disable=SC2016
    local run='AMALGAM_BENCH_POSTGRES=$AMALGAM_TEST_POSTGRES exec "$@"'
    if [[ -z ${AMALGAM_BENCH_POSTGRES:-} ]] && command -v psql >/dev/null && scripts/postgres.sh find >/dev/null; then
        scripts/postgres.sh run bash -c "$run" train "$@"
    else
        "$@"
    fi
}

if [[ ${1:-} == profdata ]]; then
    find_profdata
    exit
fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/dist"
target=$(cd "$target" && pwd)
AMALGAM_BUILD_COMMIT=$(git rev-parse --short HEAD 2>/dev/null || true)
export AMALGAM_BUILD_COMMIT

if ! profdata=$(find_profdata); then
    say "no llvm-profdata $oldest or newer (scripts/setup.sh release installs it): building without counts"
    cargo build --locked --release -p amalgam
    cp "$target/release/amalgam" "$target/dist/amalgam"
    exit
fi

say "building a server that counts"
cargo build --locked --release --quiet -p amalgam-bench
build "-Cprofile-generate=$target/dist/counts" "$target/counting"
counting=$target/counting/$(host)/release/amalgam
profile=$target/dist/amalgam.profdata

if [[ ! $profile -nt $counting ]]; then
    say "counting"
    rm -rf "$target/dist/counts"
    train "$target/release/amalgam-bench" train --amalgam "$counting"
    "$profdata" merge -o "$profile.new" "$target/dist/counts"
    mv "$profile.new" "$profile"
fi

say "building with what was counted"
build "-Cprofile-use=$profile" "$target/counted"
cp "$target/counted/$(host)/release/amalgam" "$target/dist/amalgam"
say "$target/dist/amalgam"
