"""Fixtures: the scripted upstreams and a gateway per store run once; every test gets a way through them per wire."""

import os
import socket
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from harness import CLIENT_KEY, KINDS, Gateway, Target
from openai import OpenAI
from stores import SERVER, STORES, is_there, store_settings
from toolshop import McpOverHttp
from upstreams import KEYS, SERVICE_KEY, Upstreams

for name in list(os.environ):
    if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "AMALGAM_UPSTREAMS")):
        del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def only_loopback():
    """Makes an attempt to leave the machine a failure, also when the client that made it would hide that."""
    connect, attempts = socket.socket.connect, []

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            attempts.append(address)
            raise AssertionError(f"a client tried to reach {address}")
        return connect(self, address)

    socket.socket.connect = guarded
    yield
    socket.socket.connect = connect
    assert attempts == []


@pytest.fixture(scope="session")
def upstreams():
    with Upstreams() as running:
        yield running


@pytest.fixture(scope="session")
def mcp():
    """A real MCP server over HTTP."""
    running = McpOverHttp()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def gateways(upstreams, mcp, tmp_path_factory):
    """Gives the gateway that keeps things in a store of this kind; it starts at the first use."""
    with ExitStack() as stack:
        running: dict[str, Gateway] = {}

        def of(store: str) -> Gateway:
            if not is_there(store):
                pytest.skip(f"{SERVER} names no server")
            if store not in running:
                settings = stack.enter_context(store_settings(store))
                folder = tmp_path_factory.mktemp(store)
                running[store] = stack.enter_context(serving(upstreams, folder, settings, mcp))
            return running[store]

        yield of


@contextmanager
def serving(upstreams, folder, settings, mcp):
    """A gateway that has to live until the end, end well with all that it started, keep secrets out of its log, and set off
    no trap."""
    running = Gateway(upstreams, folder, settings, mcp)
    yield running
    assert running.process.poll() is None, f"amalgam died during the tests:\n{running.log.read_text()}"
    started = children(running.process.pid)
    assert running.stop() == 0
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == [], "a server outlived its gateway"
    log = running.log.read_text()
    assert "panicked" not in log
    for secret in [*KEYS.values(), CLIENT_KEY, SERVICE_KEY]:
        assert secret not in log
    assert [path for path, _ in upstreams.recorder.service if path.endswith("/trap")] == []


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in the second field may hold anything; the parent is the second field behind it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return found


@pytest.fixture
def store() -> str:
    """Where the gateway keeps things; tests of state are parametrised with all of `STORES`."""
    return STORES[0]


@pytest.fixture
def gateway(store, gateways) -> Gateway:
    return gateways(store)


@pytest.fixture(params=KINDS)
def target(request, gateway, upstreams) -> Target:
    return Target(request.param, f"{gateway.url}/v1", upstreams.recorder)


@pytest.fixture
def client(target) -> OpenAI:
    with OpenAI(base_url=target.base_url, api_key=target.key, max_retries=0, timeout=30) as client:
        yield client


@pytest.fixture
def tag() -> str:
    """A word of its own for each test, by which its requests are found at the upstream."""
    return f"tag-{uuid.uuid4().hex[:12]}"
