#!/usr/bin/env bash
# Builds the server for production with profile-guided optimisation: an instrumented build, a load that records what runs
# (`amalgam-bench train`), and a second build that uses the recorded profile.
#
#   scripts/release.sh            # leaves the server in target/dist/amalgam; takes two release builds and a load
#   scripts/release.sh tools      # prints the program that this needs; fails where it is missing
#
# Where llvm-profdata is missing the server is built without a profile, and the script says so.
set -euo pipefail
cd "$(dirname "$0")/.."

# The profile is in the format of the compiler's own LLVM, which has not changed since version 19.
oldest=19

host() { rustc --version --verbose | sed -n 's/^host: //p'; }

# The program of rustup's llvm-tools, or the newest one of Debian.
find_profdata() {
    local of_rust version
    of_rust=$(rustc --print sysroot)/lib/rustlib/$(host)/bin/llvm-profdata
    if [[ -x $of_rust ]]; then
        echo "$of_rust"
        return 0
    fi
    for version in $(seq 40 -1 $oldest); do
        if command -v "llvm-profdata-$version" 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

say() { printf '\n==> %s\n' "$*"; }

# Arguments: the flags for the compiler, the folder. Only crates of the server are built with the flags, not what runs while
# it is built.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --locked --release -p amalgam --target "$(host)" --target-dir "$2"
}

# Argument: the instrumented server.
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

if [[ ${1:-} == tools ]]; then
    find_profdata
    exit
fi

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/dist"
target=$(cd "$target" && pwd)
dist=$target/dist
AMALGAM_BUILD_COMMIT=$(git rev-parse --short HEAD 2>/dev/null || true)
export AMALGAM_BUILD_COMMIT

if ! profdata=$(find_profdata); then
    say "no llvm-profdata $oldest or newer (scripts/setup.sh release installs it): building without a profile"
    cargo build --locked --release -p amalgam
    cp "$target/release/amalgam" "$dist/amalgam"
    exit
fi

say "building the instrumented server"
cargo build --locked --release --quiet -p amalgam-bench
build "-Cprofile-generate=$dist/profiles" "$target/instrumented"
instrumented=$target/instrumented/$(host)/release/amalgam
profile=$dist/amalgam.profdata

if [[ ! $profile -nt $instrumented ]]; then
    say "recording the profile"
    rm -rf "$dist/profiles"
    train "$instrumented"
    "$profdata" merge -o "$profile.new" "$dist/profiles"
    mv "$profile.new" "$profile"
fi

say "building with the profile"
build "-Cprofile-use=$profile" "$target/optimised"
cp "$target/optimised/$(host)/release/amalgam" "$dist/amalgam.new"
mv "$dist/amalgam.new" "$dist/amalgam"
say "$dist/amalgam"
