"""The systemd unit: valid, and as restricted as a network service can be."""

import re
from pathlib import Path

from conftest import ROOT, needed, run

UNIT = ROOT / "deploy/systemd/amalgam.service"
# A service that needs the network, local sockets and /proc/meminfo cannot get below 1.0.
MOST_EXPOSURE = 1.2


def runnable(unit: Path, unpacked: Path, folder: Path) -> Path:
    """The unit with the program of the tarball in place of the installed one."""
    copy = folder / "amalgam.service"
    text = unit.read_text().replace("/usr/bin/amalgam", str(unpacked / "amalgam"))
    # The manual is not installed either.
    copy.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE))
    return copy


def test_systemd_accepts_the_unit(unpacked, tmp_path):
    analyze = needed("systemd-analyze")
    assert run(analyze, "verify", "--man=no", runnable(UNIT, unpacked, tmp_path)) == ""


def test_the_service_is_exposed_as_little_as_possible(tmp_path):
    analyze = needed("systemd-analyze")
    report = run(
        analyze, "security", "--offline=true", "--no-pager", UNIT, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    )
    exposure = float(re.search(r"Overall exposure level for amalgam.service: ([\d.]+)", report)[1])
    assert exposure <= MOST_EXPOSURE, report


def test_the_unit_uses_the_files_of_the_packages():
    text = UNIT.read_text()
    for line in (
        "Type=notify",
        "DynamicUser=yes",
        "StateDirectory=amalgam",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "ExecStart=/usr/bin/amalgam serve",
        "Environment=AMALGAM_CONFIG=/etc/amalgam/amalgam.toml",
        "EnvironmentFile=-/etc/amalgam/amalgam.env",
    ):
        assert f"\n{line}\n" in text, line
