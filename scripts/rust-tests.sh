#!/usr/bin/env bash
# Runs the Rust tests of the workspace, with nextest where it is installed. Arguments go to the runner.
set -euo pipefail
cd "$(dirname "$0")/.."

if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace --no-fail-fast "$@"
    # nextest leaves out the examples in the documentation.
    exec cargo test --workspace --doc --quiet "$@"
fi
exec cargo test --workspace --no-fail-fast "$@"
