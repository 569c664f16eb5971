"""Where a gateway keeps things: in a file, or in a database on the server that AMALGAM_TEST_POSTGRES names."""

import os
import secrets
import subprocess
from contextlib import contextmanager
from urllib.parse import urlsplit

STORES = ["sqlite", "postgres"]
SERVER = "AMALGAM_TEST_POSTGRES"


def is_there(store: str) -> bool:
    """Whether this machine has what the store needs."""
    return store != "postgres" or bool(os.environ.get(SERVER))


@contextmanager
def store_settings(store: str):
    """The environment that makes a gateway use a fresh store of this kind. A database is dropped at the end."""
    if store == "sqlite":
        # The default: a file in the gateway's own folder.
        yield {}
        return
    server = os.environ[SERVER]
    name = f"amalgam_clients_{os.getpid()}_{secrets.token_hex(6)}"
    _tell(server, f"CREATE DATABASE {name}")
    try:
        yield {"AMALGAM_STORE_URL": urlsplit(server)._replace(path=f"/{name}").geturl()}
    finally:
        _tell(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _tell(server: str, statement: str) -> None:
    command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", server, "-c", statement]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"`{statement}` failed: {done.stderr}")
