"""Fixtures: the packages, made once from the binary under test, and servers that are started from them."""

import os
import shutil
import subprocess
import tarfile
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ["AMALGAM_BIN"])
SECONDS = 120
KEY = "am_packages-0123456789abcdef"


def run(*command, **options) -> str:
    """What a command prints that succeeds."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=SECONDS, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def needed(program: str) -> str:
    """The path of a program; without it the test is skipped."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if not path:
        pytest.skip(f"{program} is not installed")
    return path


def pack(folder: Path, binary: Path) -> Path:
    """Runs `make dist` into a folder. The compression is quick: the sizes do not matter here."""
    environment = {
        **os.environ,
        "DIST": str(folder),
        "DEB_COMPRESSION": "gzip",
        "DIST_LEVEL": "1",
        "TMPDIR": str(folder),
    }
    folder.mkdir()
    run("make", "--no-print-directory", "-C", ROOT, "dist", f"BIN={binary}", env=environment)
    return folder


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """The binary without what only debuggers read: smaller, so that it is packed sooner."""
    small = tmp_path_factory.mktemp("program") / "amalgam"
    shutil.copy(BINARY, small)
    run("strip", small)
    return small


@pytest.fixture(scope="session")
def dist(program, tmp_path_factory) -> Path:
    """The folder that `make dist` leaves."""
    return pack(tmp_path_factory.mktemp("dist") / "out", program)


@pytest.fixture(scope="session")
def unpacked(dist, tmp_path_factory) -> Path:
    """The folder inside of the tarball."""
    (archive,) = dist.glob("amalgam-*.tar.gz")
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


@contextmanager
def serving(binary: Path, folder: Path, *arguments, port: int = 0, **environment):
    """A running server; gives its address."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--data", folder / "data", *arguments]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={"PATH": os.environ["PATH"], **environment},
        )
    try:
        prefix = "amalgam listening on "
        lines = iter(process.stdout.readline, "")
        address = next((line.removeprefix(prefix).strip() for line in lines if line.startswith(prefix)), None)
        assert address, f"the server did not start:\n{log.read_text()}"
        yield address
    finally:
        process.terminate()
        assert process.wait(timeout=SECONDS) == 0, log.read_text()
        process.stdout.close()
