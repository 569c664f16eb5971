"""The tarball and the bill of materials."""

import hashlib
import json
import subprocess
import tarfile

import pytest
from conftest import BINARY, ROOT, needed, pack, run, serving
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

SHELLS = {
    "bash": ("amalgam.bash", ["bash", "-n"]),
    "zsh": ("_amalgam", ["zsh", "-n"]),
    "fish": ("amalgam.fish", ["fish", "--no-execute"]),
    "elvish": ("amalgam.elv", ["elvish", "-compileonly"]),
    "powershell": ("_amalgam.ps1", None),
}


def test_the_tarball_has_everything_that_an_installation_needs(unpacked):
    version = run(BINARY, "version").split()[1]
    host = run("rustc", "--version", "--verbose").split("host: ")[1].splitlines()[0]
    assert unpacked.name == f"amalgam-{version}-{host}"
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    pages = {file for file in files if file.startswith("man/")}
    assert {"man/amalgam.1", "man/amalgam-serve.1", "man/amalgam-keys-create.1"} < pages
    assert files - pages == {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "amalgam",
        "amalgam.example.toml",
        "amalgam.service",
        "sbom.cdx.json",
        *(f"completions/{name}" for name, _ in SHELLS.values()),
    }


def test_the_program_of_the_tarball_serves_and_is_found_healthy(unpacked, tmp_path):
    with serving(unpacked / "amalgam", tmp_path, "--config", unpacked / "amalgam.example.toml") as address:
        report = json.loads(run(unpacked / "amalgam", "health", "--url", address, "--json"))
    assert (report["healthy"], report["status"]) == (True, "ready")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completions_of_a_shell_name_the_commands_and_can_be_read_by_it(shell, unpacked):
    name, command = SHELLS[shell]
    script = unpacked / "completions" / name
    text = script.read_text()
    assert all(word in text for word in ("serve", "health", "config")), text[:500]
    if command and (shell == "bash" or needed(command[0])):
        run(*command, script)


def test_the_same_binary_gives_the_same_bytes(dist, program, tmp_path):
    again = pack(tmp_path / "again", program)
    sums = {folder: (folder / "SHA256SUMS").read_text() for folder in (dist, again)}
    assert sums[dist] == sums[again]
    for line in sums[dist].splitlines():
        digest, name = line.split()
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    assert len(sums[dist].splitlines()) == len(list(dist.iterdir())) - 1


def test_the_files_of_the_tarball_belong_to_root_and_are_sorted(dist):
    (archive,) = dist.glob("amalgam-*.tar.gz")
    with tarfile.open(archive) as file:
        members = file.getmembers()
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    assert len({member.mtime for member in members}) == 1
    assert {oct(member.mode) for member in members} == {"0o755", "0o644"}
    names = [member.name for member in members]
    # Folders come before what is in them.
    assert names == sorted(names, key=lambda name: name.split("/"))


def test_the_manual_can_be_formatted(unpacked):
    man = needed("man")
    text = run(
        man, "--warnings", "-l", unpacked / "man/amalgam-health.1", env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    )
    assert "amalgam-health" in text and "--url" in text


def test_the_bill_of_materials_is_valid_and_lists_what_is_linked(unpacked):
    text = (unpacked / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["name"] == "amalgam"
    scopes = {component["name"]: component["scope"] for component in bill["components"]}
    assert (scopes["rustls"], scopes["amalgam-server"], scopes["cc"]) == ("required", "required", "excluded")
    # Tests are not shipped.
    assert scopes.keys().isdisjoint({"amalgam-testkit", "proptest", "tempfile"})
    # Nothing is built here: the compiler's messages name every crate that went into the binary.
    messages = run(
        "cargo", "build", "--locked", "--package", "amalgam", "--message-format", "json", "--quiet", cwd=ROOT
    )
    artifacts = [json.loads(line) for line in messages.splitlines() if '"compiler-artifact"' in line]
    built = {crate(artifact["package_id"]) for artifact in artifacts} - {
        crate("#amalgam@" + bill["metadata"]["component"]["version"])
    }
    assert {(component["name"], component["version"]) for component in bill["components"]} == built
    registry = [component for component in bill["components"] if not component["name"].startswith("amalgam")]
    assert all(component["hashes"] and component["licenses"] for component in registry)


def crate(package_id: str) -> tuple[str, str]:
    """Name and version of `SOURCE#NAME@VERSION`, or of `PATH/NAME#VERSION`."""
    source, _, rest = package_id.rpartition("#")
    name, _, version = rest.rpartition("@")
    return name or source.rsplit("/", 1)[1], version


def test_a_binary_that_does_not_exist_is_refused(tmp_path):
    done = subprocess.run(
        ["make", "-C", ROOT, "dist", f"BIN={tmp_path}/none"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "there is no program" in done.stderr
