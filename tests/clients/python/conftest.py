"""Fixtures: the scripted upstreams and the gateway run once; every test gets a way through them per upstream kind."""

import os
import socket
import uuid

import pytest
from harness import KINDS, Gateway, Target
from openai import OpenAI
from upstreams import KEYS, Upstreams

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
def gateway(upstreams, tmp_path_factory):
    running = Gateway(upstreams, tmp_path_factory.mktemp("amalgam"))
    yield running
    assert running.process.poll() is None, f"amalgam died during the tests:\n{running.log.read_text()}"
    assert running.stop() == 0
    log = running.log.read_text()
    assert "panicked" not in log
    for secret in KEYS.values():
        assert secret not in log


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
