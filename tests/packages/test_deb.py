"""The Debian package: installed into a root of its own, started from there, and removed again."""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import needed, run, serving


@pytest.fixture(scope="module")
def package(dist) -> Path:
    needed("dpkg-deb")
    (package,) = dist.glob("amalgam_*.deb")
    return package


@pytest.fixture
def root(tmp_path):
    """An empty root for packages, and the commands on it."""
    if os.geteuid() != 0:
        pytest.skip("dpkg installs as root only")
    database = tmp_path / "root/var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (database / folder).mkdir(parents=True)
    (database / "status").touch()
    return tmp_path / "root"


def dpkg(root: Path, *arguments) -> str:
    # The root has no shell: maintainer scripts run outside of it, with DPKG_ROOT set.
    forced = ["--force-script-chrootless", "--force-depends", "--no-triggers"]
    # What the scripts must not call here; a call is an error.
    traps = root.parent / "traps"
    traps.mkdir(exist_ok=True)
    for name in ("systemctl", "deb-systemd-invoke", "update-rc.d"):
        trap = traps / name
        trap.write_text(f'#!/bin/sh\necho "$0 $*" >>"{root.parent}/called"\nexit 1\n')
        trap.chmod(0o755)
    environment = {**os.environ, "PATH": f"{traps}:{os.environ['PATH']}", "DPKG_MAINTSCRIPT_DEBUG": "0"}
    return run("dpkg", f"--root={root}", f"--log={root.parent}/dpkg.log", *forced, *arguments, env=environment)


def files(root: Path) -> set[str]:
    found = (str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    return {path for path in found if not path.startswith("var/lib/dpkg/")}


def status(root: Path) -> str:
    command = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${db:Status-Abbrev}", "amalgam"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def test_the_package_is_installed_started_and_removed(package, root, tmp_path):
    dpkg(root, "--install", package)
    assert status(root) == "ii"
    installed = files(root)
    assert {
        "usr/bin/amalgam",
        "usr/lib/systemd/system/amalgam.service",
        "etc/amalgam/amalgam.toml",
        "etc/amalgam/amalgam.env",
        "usr/share/man/man1/amalgam.1.gz",
        "usr/share/man/man1/amalgam-serve.1.gz",
        "usr/share/bash-completion/completions/amalgam",
        "usr/share/zsh/vendor-completions/_amalgam",
        "usr/share/fish/vendor_completions.d/amalgam.fish",
        "usr/share/doc/amalgam/copyright",
        "usr/share/doc/amalgam/changelog.gz",
        "usr/share/doc/amalgam/sbom.cdx.json",
    } <= installed
    assert (root / "etc/amalgam/amalgam.env").stat().st_mode & 0o777 == 0o600
    binary = root / "usr/bin/amalgam"
    with serving(binary, tmp_path / "served", "--config", root / "etc/amalgam/amalgam.toml") as address:
        assert run(binary, "health", "--url", address).startswith("ready: ")

    configuration = root / "etc/amalgam/amalgam.toml"
    configuration.write_text("# Edited by the operator.\n")
    (root / "var/lib/amalgam").mkdir()
    (root / "var/lib/amalgam/amalgam.db").write_text("data")
    # The same version again, as an upgrade: the edited file stays.
    dpkg(root, "--force-confold", "--install", package)
    assert configuration.read_text() == "# Edited by the operator.\n"

    dpkg(root, "--remove", "amalgam")
    assert status(root) == "rc"
    assert files(root) == {"etc/amalgam/amalgam.toml", "etc/amalgam/amalgam.env", "var/lib/amalgam/amalgam.db"}
    told = dpkg(root, "--purge", "amalgam")
    assert files(root) == {"var/lib/amalgam/amalgam.db"}
    assert "/var/lib/amalgam is kept" in told
    assert not (root / "etc/amalgam").exists()
    # Nothing of this touched the services of the machine.
    assert not (root.parent / "called").exists()


def test_the_package_describes_itself(package):
    fields = run("dpkg-deb", "--field", package)
    assert "Package: amalgam\n" in fields
    assert "Depends: libc6 (>= 2." in fields
    control = run("dpkg-deb", "--info", package)
    for file in ("conffiles", "md5sums", "postinst", "postrm", "prerm"):
        assert file in control
    # Every file belongs to root, and none can be changed by others.
    for line in run("dpkg-deb", "--contents", package).splitlines():
        mode, owner = line.split()[:2]
        assert owner == "root/root", line
        assert mode[5] != "w" and mode[8] != "w", line


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_the_maintainer_scripts_are_plain_shell(script):
    run("sh", "-n", Path(__file__).resolve().parents[2] / "deploy/debian" / script)
