#!/bin/sh
# Builds the server and the benchmark in release mode and prints the report. Arguments go to `amalgam-bench report`
# (--quick, --gate, --out FILE, --self-check). A quiet machine gives better figures; ratios survive a busy one.
set -eu
cd "$(dirname "$0")/.."

# A thousand open streams need two descriptors each in the server under test.
wanted=16384
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt "$wanted" ]; then
    ulimit -n "$wanted" 2>/dev/null || ulimit -n "$(ulimit -Hn)"
fi

target="${CARGO_TARGET_DIR:-target}/release"
cargo build --release --quiet -p amalgam -p amalgam-bench
exec "$target/amalgam-bench" report --amalgam "$target/amalgam" "$@"
