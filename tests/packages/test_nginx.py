"""The nginx configuration, with a real nginx in front of two real servers."""

import http.client
import json
import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import BINARY, ROOT, needed, serving

CONFIG = ROOT / "deploy/nginx/amalgam.conf"
SECONDS = 30
# The demo model says a word each time; a buffered stream would arrive at once.
PACE_MS = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """The port of nginx."""
    nginx = needed("nginx")
    folder = tmp_path_factory.mktemp("nginx")
    settings = folder / "amalgam.toml"
    settings.write_text(
        f'[server]\ntrusted_proxies = ["127.0.0.0/8"]\n[upstreams.demo]\nkind = "demo"\npace = "{PACE_MS}ms"\n'
    )
    with ExitStack() as stack:
        text = CONFIG.read_text()
        for name in ("a", "b"):
            address = stack.enter_context(serving(BINARY, folder / name, "--config", settings))
            text = text.replace(f"amalgam-{name}:8080", address.removeprefix("http://"))
        port = free_port()
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
        assert "amalgam-" not in text
        places = "\n".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        whole = folder / "nginx.conf"
        # As root, workers would run as another user, which cannot write into the folder.
        user = "user root;" if os.geteuid() == 0 else ""
        whole.write_text(
            f"{user}\nworker_processes 1;\ndaemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{places}\n{text}\n}}\n"
        )
        command = [nginx, "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(whole)]
        tested = subprocess.run([*command, "-t"], capture_output=True, text=True)
        assert tested.returncode == 0 and "[warn]" not in tested.stderr, tested.stderr
        process = subprocess.Popen(command)
        try:
            wait_for(port, process, folder / "error.log")
            yield port
        finally:
            process.terminate()
            process.wait(timeout=SECONDS)


def wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise AssertionError("nginx does not listen")


def post(port: int, body: dict) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("POST", "/v1/responses", json.dumps(body), {"content-type": "application/json"})
    return connection.getresponse()


def test_events_pass_one_by_one(proxy):
    response = post(proxy, {"model": "demo", "input": "Hello!", "stream": True})
    assert response.getheader("content-type").startswith("text/event-stream")
    arrived = []
    while line := response.readline():
        if line.startswith(b"event: response.output_text.delta"):
            arrived.append(time.monotonic())
    assert len(arrived) > 10
    # Each word is sent when the model has said it: the first is there long before the last.
    assert arrived[-1] - arrived[0] > (len(arrived) - 1) * PACE_MS / 1000 / 2


def test_requests_and_pages_pass(proxy):
    response = post(proxy, {"model": "demo", "input": "Hello!"})
    assert (response.status, json.load(response)["status"]) == (200, "completed")
    for path in ("/", "/readyz", "/docs/operations.md"):
        connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=SECONDS)
        connection.request("GET", path)
        assert connection.getresponse().status == 200, path


def test_a_large_request_passes(proxy):
    content = [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * (30 << 20)}]
    response = post(proxy, {"model": "demo", "input": [{"role": "user", "content": content}]})
    # The server's own answer, not the proxy's 413.
    assert response.getheader("x-request-id"), response.read()


def test_a_websocket_is_opened(proxy):
    with socket.create_connection(("127.0.0.1", proxy), timeout=SECONDS) as stream:
        head = (
            f"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{proxy}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        stream.sendall(head.encode())
        answer = stream.recv(4096)
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer
