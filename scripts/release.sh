#!/usr/bin/env bash
# Builds the server as it should be run in production: once so that it counts what it does, then under the load of
# `amalgam-bench train`, then again with those counts. What runs often then stands together and fits the processor's caches.
# The finished program is counted under the same load once more, and its blocks are put into the order in which they ran:
# only then is everything known that the linker has put between them, SQLite among it.
#
#   scripts/release.sh            # leaves the server in target/dist/amalgam; takes two release builds and two loads
#   scripts/release.sh tools      # the programs that this needs; fails where one is missing
#
# Where llvm-profdata is missing the server is built without counts, where llvm-bolt is missing it stays as the linker has
# laid it out. Either is said.
set -euo pipefail
cd "$(dirname "$0")/.."

# The counts are in the format of the compiler's own LLVM, which has not changed since version 19.
oldest=19

host() { rustc --version --verbose | sed -n 's/^host: //p'; }

# Debian's name of a program of LLVM, of the newest version that is there.
find_llvm() {
    local version
    for version in $(seq 40 -1 $oldest); do
        if command -v "$1-$version" 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

find_profdata() {
    local of_rust
    of_rust=$(rustc --print sysroot)/lib/rustlib/$(host)/bin/llvm-profdata
    if [[ -x $of_rust ]]; then
        echo "$of_rust"
    else
        find_llvm llvm-profdata
    fi
}

# By its own name: it looks for its library beside that.
find_bolt() { find_llvm merge-fdata >/dev/null && readlink -f "$(find_llvm llvm-bolt)"; }

say() { printf '\n==> %s\n' "$*"; }

# Arguments: the flags for the compiler, the folder. Only crates of the server are built with the flags, not what runs while
# it is built.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --locked --release -p amalgam --target "$(host)" --target-dir "$2"
}

# Argument: the server that counts.
train() {
    # shellcheck disable=SC2016
    local run='AMALGAM_BENCH_POSTGRES=$AMALGAM_TEST_POSTGRES exec "$@"'
    local load=("$target/release/amalgam-bench" train --amalgam "$1")
    if [[ -z ${AMALGAM_BENCH_POSTGRES:-} ]] && command -v psql >/dev/null && scripts/postgres.sh find >/dev/null; then
        scripts/postgres.sh run bash -c "$run" train "${load[@]}"
    else
        "${load[@]}"
    fi
}

# Puts the blocks of a finished server into the order in which they run. Arguments: the server, where the result goes.
lay_out() {
    local counting=$dist/amalgam.counting counts=$dist/blocks
    rm -rf "$counts" && mkdir -p "$counts" &&
        say "counting blocks" &&
        "$bolt" "$1" --instrument --instrumentation-file="$counts/of" --instrumentation-file-append-pid -o "$counting" &&
        train "$counting" && rm "$counting" &&
        "$(find_llvm merge-fdata)" -o "$dist/amalgam.fdata" "$counts"/of.* &&
        say "laying out" &&
        "$bolt" "$1" --data="$dist/amalgam.fdata" --reorder-blocks=ext-tsp --reorder-functions=cdsort --split-functions \
            --split-all-cold --split-eh --icf=1 -o "$2"
}

if [[ ${1:-} == tools ]]; then
    find_profdata && find_bolt
    exit
fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/dist"
target=$(cd "$target" && pwd)
dist=$target/dist
AMALGAM_BUILD_COMMIT=$(git rev-parse --short HEAD 2>/dev/null || true)
export AMALGAM_BUILD_COMMIT

if ! profdata=$(find_profdata); then
    say "no llvm-profdata $oldest or newer (scripts/setup.sh release installs it): building without counts"
    cargo build --locked --release -p amalgam
    cp "$target/release/amalgam" "$dist/amalgam"
    exit
fi

say "building a server that counts"
cargo build --locked --release --quiet -p amalgam-bench
build "-Cprofile-generate=$dist/counts" "$target/counting"
counting=$target/counting/$(host)/release/amalgam
profile=$dist/amalgam.profdata

if [[ ! $profile -nt $counting ]]; then
    say "counting"
    rm -rf "$dist/counts"
    train "$counting"
    "$profdata" merge -o "$profile.new" "$dist/counts"
    mv "$profile.new" "$profile"
fi

say "building with what was counted"
relocatable=""
if bolt=$(find_bolt); then
    relocatable="-Clink-arg=-Wl,--emit-relocs"
fi
build "-Cprofile-use=$profile $relocatable" "$target/counted"
counted=$target/counted/$(host)/release/amalgam

if [[ -z $bolt ]]; then
    say "no llvm-bolt $oldest or newer (scripts/setup.sh release installs it): the linker's layout stays"
    cp "$counted" "$dist/amalgam.new"
elif ! lay_out "$counted" "$dist/amalgam.new"; then
    say "llvm-bolt failed: the linker's layout stays"
    cp "$counted" "$dist/amalgam.new"
fi
mv "$dist/amalgam.new" "$dist/amalgam"
say "$dist/amalgam"
