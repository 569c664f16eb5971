#!/usr/bin/env bash
# Checks the console: types, unit tests, that the committed build is that of the sources, and the stories in Chromium.
#
#   tests/console/run.sh                 # uses target/debug/amalgam
#   AMALGAM_BIN=path/to/amalgam tests/console/run.sh
#
# Installs the pinned packages first and builds no Rust. Pictures of all pages are in target/console-shots.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
console="$root/console"

AMALGAM_BIN=$(realpath -m "${AMALGAM_BIN:-$root/target/debug/amalgam}")
export AMALGAM_BIN
if [[ ! -x "$AMALGAM_BIN" ]]; then
    echo "console: no binary at $AMALGAM_BIN; build it first or set AMALGAM_BIN" >&2
    exit 1
fi

cd "$console"
pins=$(sha256sum <package-lock.json)
if [[ ! -f node_modules/.pins || "$(cat node_modules/.pins)" != "$pins" ]]; then
    echo "console: installing the packages"
    npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
    echo "$pins" >node_modules/.pins
fi

echo "console: types of the API"
npm run --silent types >/dev/null
npm run --silent check
echo "console: unit tests"
npm run --silent test

echo "console: build"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
npm run --silent build -- --outDir "$built" --emptyOutDir
if ! diff -rq "$built" dist; then
    echo "console: console/dist is not the build of the sources: run 'make console' and commit it" >&2
    exit 1
fi

echo "console: stories"
npm run --silent stories
