#!/usr/bin/env bash
# Checks the widget: types, unit tests, that the committed build is that of the sources, and the stories in Chromium.
#
#   tests/widget/run.sh                  # uses target/debug/amalgam
#   AMALGAM_BIN=path/to/amalgam tests/widget/run.sh
#
# Installs the pinned packages first and builds no Rust. Pictures are in target/widget-shots.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

AMALGAM_BIN=$(realpath -m "${AMALGAM_BIN:-$root/target/debug/amalgam}")
export AMALGAM_BIN
if [[ ! -x "$AMALGAM_BIN" ]]; then
    echo "widget: no binary at $AMALGAM_BIN; build it first or set AMALGAM_BIN" >&2
    exit 1
fi

cd "$root/widget"
pins=$(sha256sum <package-lock.json)
if [[ ! -f node_modules/.pins || "$(cat node_modules/.pins)" != "$pins" ]]; then
    echo "widget: installing the packages"
    npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
    echo "$pins" >node_modules/.pins
fi

npm run --silent check
echo "widget: unit tests"
npm run --silent test

echo "widget: build"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
npm run --silent build -- --outDir "$built" --emptyOutDir
if ! diff -rq "$built" dist; then
    echo "widget: widget/dist is not the build of the sources: run 'make widget' and commit it" >&2
    exit 1
fi

echo "widget: stories"
npm run --silent stories
