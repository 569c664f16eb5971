"""The container files: the image can run the program, and what they set is understood by it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import BINARY, KEY, ROOT, run

COMPOSE = sorted((ROOT / "deploy/compose").glob("*.yml"))
# The libraries of the image gcr.io/distroless/cc.
IN_IMAGE = {
    "linux-vdso.so.1",
    "libgcc_s.so.1",
    "libm.so.6",
    "libc.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
SECRETS = {
    "AMALGAM_BOOTSTRAP_KEY": KEY,
    "AMALGAM_SECRET_KEY": "00" * 32,
    "POSTGRES_PASSWORD": "hush",
}


def instructions() -> list[tuple[str, str]]:
    """The instructions of the last stage."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    found = [tuple(line.split(maxsplit=1)) for line in text.splitlines() if re.match(r"[A-Z]+ ", line)]
    last = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def environment_of_image() -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", " ".join(value for name, value in instructions() if name == "ENV")))


def test_the_dockerfile_has_no_findings():
    run(Path(sys.executable).parent / "hadolint", ROOT / "Dockerfile")


def test_the_image_runs_without_rights_and_checks_its_health():
    final = dict(instructions())
    assert "distroless" in final["FROM"]
    assert final["USER"] == "65532:65532"
    assert final["HEALTHCHECK"].endswith('CMD ["/usr/bin/amalgam", "health"]')
    assert (final["ENTRYPOINT"], final["CMD"]) == ('["/usr/bin/amalgam"]', '["serve"]')


def test_the_image_has_every_library_that_the_program_needs():
    linked = {Path(line.split()[0]).name for line in run("ldd", BINARY).splitlines() if line.strip()}
    assert linked <= IN_IMAGE


def test_the_context_of_the_build_has_what_the_build_reads():
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [value.split()[0] for name, value in instructions() if name == "COPY" and "--from" not in value]
    for path in [*copied, "Cargo.lock", "crates/pages/build.rs", "console/dist/index.html", "widget/dist/widget.js", "docs/openapi.json", ".cargo/config.toml"]:
        assert (ROOT / path).exists(), path
        assert any(path == one or path.startswith(f"{one}/") for one in kept), path
    for member in ("bench/Cargo.toml", "crates/amalgam/Cargo.toml"):
        assert any(member.startswith(f"{one}/") for one in kept), member


def check(environment: dict[str, str], folder: Path, config: Path) -> subprocess.CompletedProcess:
    """The program's opinion on what a container gives it."""
    environment = {**environment, "AMALGAM_CONFIG": str(config), "AMALGAM_DATA": str(folder)}
    return subprocess.run([BINARY, "check"], env=environment, capture_output=True, text=True, timeout=60)


def test_the_configuration_of_the_image_asks_for_a_key_and_works_with_one(tmp_path):
    assert environment_of_image() == {"AMALGAM_CONFIG": "/etc/amalgam/amalgam.toml", "AMALGAM_DATA": "/var/lib/amalgam"}
    config = ROOT / "deploy/docker/amalgam.toml"
    refused = check({}, tmp_path, config)
    assert refused.returncode == 2 and "AMALGAM_BOOTSTRAP_KEY" in refused.stderr, refused.stderr
    assert check({"AMALGAM_BOOTSTRAP_KEY": KEY}, tmp_path, config).returncode == 0


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_the_servers_of_a_compose_file_start_with_its_environment(file, tmp_path):
    services = yaml.safe_load(file.read_text())["services"]
    servers = {name: service for name, service in services.items() if service.get("image") == "amalgam"}
    assert len(servers) == (2 if file.stem == "postgres" else 1)
    for service in servers.values():
        assert (file.parent / service["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        values = {name: filled(value) for name, value in service["environment"].items()}
        done = check(values, tmp_path, ROOT / "deploy/docker/amalgam.toml")
        assert done.returncode == 0, done.stderr


def filled(text: str) -> str:
    """A value with the variables that compose requires."""
    return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: SECRETS[match[1]], text)


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_names_in_a_compose_file_lead_somewhere(file):
    document = yaml.safe_load(file.read_text())
    services = document["services"]
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy"
            # The servers have the health check of their image.
            assert "healthcheck" in services[other] or services[other]["image"] == "amalgam", f"{name}: {other}"
        for network in service.get("networks", []):
            assert network in document["networks"]
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in document["volumes"] or (file.parent / source).resolve().is_file(), volume
