#!/usr/bin/env bash
# Runs the Rust tests of the workspace, with nextest where it is installed. Arguments go to the runner.
#
# Tests on PostgreSQL use the server that AMALGAM_TEST_POSTGRES names, or one that is started for them; where PostgreSQL is
# not installed they are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z ${AMALGAM_TEST_POSTGRES:-} ]]; then
    if scripts/postgres.sh find >/dev/null; then
        exec scripts/postgres.sh run "$0" "$@"
    fi
    echo "rust-tests: PostgreSQL is not installed; the tests that need it are left out" >&2
fi

# What needs a server is marked as ignored, so that it shows up as skipped where there is none.
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace --no-fail-fast ${AMALGAM_TEST_POSTGRES:+--run-ignored all} "$@"
    # nextest leaves out the examples in the documentation. Most crates have none, so only the lines of those with tests are
    # printed, unless one fails.
    if ! examples=$(cargo test --workspace --doc --quiet "$@" 2>&1); then
        printf '%s\n' "$examples"
        exit 1
    fi
    grep -E '^test result: .* [1-9][0-9]* passed' <<<"$examples" || true
    exit 0
fi
exec cargo test --workspace --no-fail-fast "$@" ${AMALGAM_TEST_POSTGRES:+-- --include-ignored}
