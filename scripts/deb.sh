#!/usr/bin/env bash
# Makes a Debian package of an unpacked tarball and prints the name of its file. Used by scripts/dist.sh.
#
#   scripts/deb.sh TREE OUT
#
# DEB_MAINTAINER names the maintainer, DEB_COMPRESSION how it is compressed (xz, zstd, gzip), DIST_LEVEL how well.
set -euo pipefail
cd "$(dirname "$0")/.."

tree=$1 out=$2
version=$("$tree/amalgam" version | awk '{print $2}')
architecture=$(dpkg --print-architecture)
file=amalgam_${version}_$architecture.deb
root=$(mktemp -d "${TMPDIR:-/tmp}/amalgam-deb.XXXXXX")
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022

put() { install -D -m "$1" "$2" "$root$3"; }

put 755 "$tree/amalgam" /usr/bin/amalgam
put 644 "$tree/amalgam.service" /usr/lib/systemd/system/amalgam.service
put 644 "$tree/amalgam.example.toml" /etc/amalgam/amalgam.toml
put 600 deploy/debian/amalgam.env /etc/amalgam/amalgam.env
for page in "$tree"/man/*.1; do
    put 644 "$page" "/usr/share/man/man1/$(basename "$page")"
done
gzip -n -9 "$root"/usr/share/man/man1/*.1
put 644 "$tree/completions/amalgam.bash" /usr/share/bash-completion/completions/amalgam
put 644 "$tree/completions/_amalgam" /usr/share/zsh/vendor-completions/_amalgam
put 644 "$tree/completions/amalgam.fish" /usr/share/fish/vendor_completions.d/amalgam.fish
put 644 "$tree/completions/amalgam.elv" /usr/share/elvish/lib/amalgam.elv
put 644 "$tree/completions/_amalgam.ps1" /usr/share/amalgam/_amalgam.ps1
for page in README.md SECURITY.md amalgam.example.toml sbom.cdx.json; do
    put 644 "$tree/$page" "/usr/share/doc/amalgam/$page"
done
put 644 "$tree/CHANGELOG.md" /usr/share/doc/amalgam/changelog
gzip -n -9 "$root/usr/share/doc/amalgam/changelog"
put 644 "$tree/LICENSE" /usr/share/doc/amalgam/copyright

# The newest version of the C library that the program asks for.
libc=$(objdump -T "$tree/amalgam" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: amalgam
Version: $version
Architecture: $architecture
Maintainer: ${DEB_MAINTAINER:-The Amalgam developers <developers@amalgam.invalid>}
Installed-Size: $(du --summarize --block-size=1024 "$root" | cut -f 1)
Depends: libc6 (>= $libc), libgcc-s1
Recommends: ca-certificates
Suggests: postgresql, nginx
Section: net
Priority: optional
Description: Responses server and multi-tenant agent backend over any model
 Serves the OpenAI Responses API, a tenant assistant and a strict turn contract
 for IDEs over any model: Chat Completions, Responses and Anthropic servers.
 Stores turns in embedded SQLite, or in PostgreSQL for any number of servers.
CONTROL
printf '%s\n' /etc/amalgam/amalgam.toml /etc/amalgam/amalgam.env >"$root/DEBIAN/conffiles"
install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN"
(cd "$root" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod 644 "$root/DEBIAN/md5sums" "$root/DEBIAN/conffiles" "$root/DEBIAN/control"

# dpkg-deb takes times from SOURCE_DATE_EPOCH, if it is set.
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" -z"${DIST_LEVEL:-6}" --build "$root" "$out/$file" >/dev/null
echo "$file"
