#!/usr/bin/env bash
# Runs the tests of the program (crates/amalgam/tests/it) with two binaries, on both stores, and compares every request that
# the servers send to upstreams and every answer that the tests receive.
#
#   scripts/compare-turns.sh OLD_BINARY NEW_BINARY [FILTER…]     # filters of nextest
#
# The recordings stay in the folder that COMPARE_TURNS names, if it is set; `scripts/compare_turns.py FOLDER FOLDER` compares
# them again and lists what it replaces before it compares.
set -euo pipefail
[[ $# -ge 2 ]] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
old=$(realpath -e "$1")
new=$(realpath -e "$2")
shift 2
cd "$(dirname "$0")/.."

folder=${COMPARE_TURNS:-}
if [[ -z $folder ]]; then
    folder=$(mktemp -d "${TMPDIR:-/tmp}/amalgam-turns.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder/old" "$folder/new"
rm -f "$folder"/{old,new}/*

run() {
    AMALGAM_BIN=$2 AMALGAM_RECORD=$(realpath "$folder/$1") scripts/postgres.sh run \
        cargo nextest run --locked -p amalgam --test it --run-ignored all --no-fail-fast "${@:3}" >"$folder/$1.log" 2>&1 || true
    grep -E '^ +Summary' "$folder/$1.log" || { tail -20 "$folder/$1.log" >&2; exit 1; }
}
echo "old: $old"
run old "$old" "$@"
echo "new: $new"
run new "$new" "$@"
python3 scripts/compare_turns.py "$folder/old" "$folder/new"
