#!/usr/bin/env bash
# Packs the server for distribution: a tarball, a Debian package, the bill of materials and their checksums.
#
#   scripts/dist.sh              # builds the server with scripts/release.sh first
#   BIN=PATH scripts/dist.sh     # packs an existing binary
#   DIST=DIR scripts/dist.sh     # leaves everything in DIR instead of target/dist
#   DIST_LEVEL=1 scripts/dist.sh # compresses quickly instead of well
#
# The same binary and commit give the same bytes: files are sorted, their times are SOURCE_DATE_EPOCH (by default the
# time of the commit). Where dpkg-deb is missing there is no Debian package, and the script says so.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
out=${DIST:-$target/dist}
if [[ -z ${BIN:-} ]]; then
    scripts/release.sh
    BIN=$target/dist/amalgam
fi
[[ -x $BIN ]] || { echo "dist: there is no program at $BIN" >&2; exit 1; }

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
version=$("$BIN" version | awk '{print $2}')
host=$(rustc --version --verbose | sed -n 's/^host: //p')
name=amalgam-$version-$host

mkdir -p "$out"
work=$(mktemp -d "${TMPDIR:-/tmp}/amalgam-dist.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/$name
mkdir -p "$tree/completions"

install -m 755 "$BIN" "$tree/amalgam"
if command -v strip >/dev/null; then
    strip "$tree/amalgam"
fi
"$BIN" man --dir "$tree/man" >/dev/null
"$BIN" completion bash >"$tree/completions/amalgam.bash"
"$BIN" completion zsh >"$tree/completions/_amalgam"
"$BIN" completion fish >"$tree/completions/amalgam.fish"
"$BIN" completion elvish >"$tree/completions/amalgam.elv"
"$BIN" completion powershell >"$tree/completions/_amalgam.ps1"
install -m 644 README.md CHANGELOG.md SECURITY.md LICENSE amalgam.example.toml deploy/systemd/amalgam.service "$tree"
scripts/sbom.py --target "$host" >"$tree/sbom.cdx.json"

tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --format=ustar --directory "$work" "$name" | gzip -n "-${DIST_LEVEL:-6}" >"$work/$name.tar.gz"
cp "$tree/sbom.cdx.json" "$work/$name.sbom.cdx.json"
made=("$name.tar.gz" "$name.sbom.cdx.json")
if command -v dpkg-deb >/dev/null; then
    made+=("$(scripts/deb.sh "$tree" "$work")")
else
    echo "dist: dpkg-deb is not installed; there is no Debian package" >&2
fi
(cd "$work" && sha256sum "${made[@]}" >SHA256SUMS)
for file in "${made[@]}" SHA256SUMS; do
    mv "$work/$file" "$out/$file"
    echo "$out/$file"
done
