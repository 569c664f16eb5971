#!/bin/sh
# Builds the server as it is released (scripts/release.sh) and the benchmark, and prints the report. Arguments go to
# `amalgam-bench report` (--quick, --gate, --out FILE, --self-check). A quiet machine gives better figures; ratios survive a
# busy one. AMALGAM_BENCH_BINARY names another server to measure, which is not built then.
#
# Stored turns are measured on SQLite, and on the PostgreSQL server that AMALGAM_BENCH_POSTGRES names; where that is not set
# and PostgreSQL is installed, on a server of our own, which flushes to the disk.
set -eu
cd "$(dirname "$0")/.."

# A thousand open streams need two descriptors each in the server under test.
wanted=16384
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt "$wanted" ]; then
    ulimit -n "$wanted" 2>/dev/null || ulimit -n "$(ulimit -Hn)"
fi

target="${CARGO_TARGET_DIR:-target}"
if [ -z "${AMALGAM_BENCH_BINARY:-}" ]; then
    scripts/release.sh
fi
cargo build --locked --release --quiet -p amalgam-bench
set -- "$target/release/amalgam-bench" report --amalgam "${AMALGAM_BENCH_BINARY:-$target/dist/amalgam}" "$@"

if [ -n "${AMALGAM_BENCH_POSTGRES:-}" ] || ! command -v psql >/dev/null || ! scripts/postgres.sh find >/dev/null; then
    exec "$@"
fi
unset AMALGAM_TEST_POSTGRES
# shellcheck disable=SC2016
exec scripts/postgres.sh run sh -c '
    set -eu
    psql --quiet --dbname "$AMALGAM_TEST_POSTGRES" --command "ALTER SYSTEM SET fsync = on" --command "SELECT pg_reload_conf()" >/dev/null
    AMALGAM_BENCH_POSTGRES=$AMALGAM_TEST_POSTGRES exec "$@"
' bench "$@"
