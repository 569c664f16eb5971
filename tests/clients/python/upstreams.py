"""Serves the scripted model on the three wires and remembers what reached it.

    python upstreams.py --port 0        # prints its address and serves until its standard input closes

`/chat/v1`, `/resp/v1` and `/anthropic/v1` are the base addresses of the upstreams, `/service/…` is a plain HTTP service
for tools. `GET /requests?contains=TEXT` gives the records of the requests whose body contains TEXT. A `CONNECT` is refused
and remembered, so a client that is told to use this server as its proxy can not leave the machine unseen.
"""

import argparse
import json
import secrets
import select
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from scripted import anthropic, chat, responses
from scripted.model import Failure, decide, pieces

MODELS = ["scripted-1"]
SERVICE_KEY = "service-key-of-a-tool"
KEYS = {"chat": "upstream-chat-key", "resp": "upstream-resp-key", "anthropic": "upstream-anthropic-key"}
WIRES = {
    ("chat", "/v1/chat/completions"): chat,
    ("resp", "/v1/responses"): responses,
    ("anthropic", "/v1/messages"): anthropic,
}
LISTS = {"chat": chat, "resp": responses, "anthropic": anthropic}


@dataclass
class Record:
    """One request as it arrived, and how it went on."""

    kind: str
    path: str
    headers: dict
    body: dict
    # "open", "answered", "refused", "cut" or "left" (the caller went away first).
    outcome: str = "open"
    frames: int = 0
    status: int = 0


@dataclass
class Recorder:
    """The requests that came so far. Appended by many threads, read by tests."""

    records: list[Record] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    outward: list[str] = field(default_factory=list)
    # Path and body of the requests of tools.
    service: list[tuple[str, dict]] = field(default_factory=list)

    def add(self, record: Record) -> Record:
        with self.lock:
            self.records.append(record)
        return record

    def containing(self, text: str) -> list[Record]:
        """Records whose body contains `text`, oldest first."""
        with self.lock:
            return [record for record in self.records if text in json.dumps(record.body, ensure_ascii=False)]


class Upstreams:
    """The server; `url` is its address once it has started."""

    def __init__(self, port: int = 0) -> None:
        self.recorder = Recorder()
        handler = type("Handler", (_Handler,), {"recorder": self.recorder})
        self.server = _Server(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> "Upstreams":
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Several clients connect at once, and the default queue of five would drop some of them.
    request_queue_size = 128

    def handle_error(self, request, client_address) -> None:
        # A caller that closes its connection is part of the script; anything else is a fault of this server.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder: Recorder

    def setup(self) -> None:
        super().setup()
        # Small frames must not wait for the acknowledgement of the frame before.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:  # noqa: N802
        self.recorder.outward.append(self.path)
        self._send(403, {"error": {"message": "nothing leaves this machine"}})
        self.close_connection = True

    def do_GET(self) -> None:  # noqa: N802
        url = urlsplit(self.path)
        if url.netloc:
            self.recorder.outward.append(self.path)
            self._send(403, {"error": {"message": "nothing leaves this machine"}})
        elif url.path == "/requests":
            text = parse_qs(url.query).get("contains", [""])[0]
            self._send(200, [asdict(record) for record in self.recorder.containing(text)])
        elif url.path == "/outward":
            self._send(200, self.recorder.outward)
        elif url.path.endswith("/v1/models") and url.path.split("/")[1] in LISTS:
            self._send(200, LISTS[url.path.split("/")[1]].models(MODELS))
        else:
            self._send(404, {"error": {"message": "no such route"}})

    def do_POST(self) -> None:  # noqa: N802
        raw = self._body()
        if self.path.startswith("/service/"):
            self._serve_tool(json.loads(raw))
            return
        kind, _, rest = urlsplit(self.path).path.removeprefix("/").partition("/")
        if rest == "v1/embeddings" and kind != "anthropic":
            self._embed(json.loads(raw))
            return
        wire = WIRES.get((kind, f"/{rest}"))
        if wire is None:
            self.recorder.outward.append(self.path)
            self._send(404, {"error": {"message": "no such route"}})
            return
        body = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        record = self.recorder.add(Record(kind, self.path, headers, body))
        try:
            self._check(wire, kind, body, headers)
            ask = wire.read(body, headers)
            answer = decide(ask)
        except Failure as failure:
            record.outcome, record.status = "refused", failure.status
            self._send(failure.status, wire.error_body(failure), failure.headers)
            return
        record.status = 200
        try:
            if ask.stream:
                self._stream(wire, ask, answer, body, record)
            else:
                self._whole(wire, ask, answer, body, record)
        except ConnectionError:
            record.outcome = "left"
            self.close_connection = True

    def _embed(self, body: dict) -> None:
        """A vector for each text: its length, and then nothing."""
        vectors = [[len(text) / 64] + [0.0] * (body.get("dimensions", 8) - 1) for text in body["input"]]
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        usage = {"prompt_tokens": len(vectors), "total_tokens": len(vectors)}
        self._send(200, {"object": "list", "data": data, "model": body["model"], "usage": usage})

    def _serve_tool(self, arguments: dict) -> None:
        if self.headers.get("x-service-key") != SERVICE_KEY:
            self._send(403, {"error": "who are you?"})
            return
        self.recorder.service.append((self.path, arguments))
        self._send(200, {"report": f"sunny in {arguments.get('city')}"})

    def _check(self, wire, kind: str, body: dict, headers: dict) -> None:
        if wire.credential(headers) != KEYS[kind]:
            raise Failure(401, "credential", "Incorrect API key provided.", code="invalid_api_key")
        if body.get("model") not in MODELS:
            message = f"The model '{body.get('model')}' does not exist."
            raise Failure(404, "model", message, param="model", code="model_not_found")

    def _whole(self, wire, ask, answer, body: dict, record: Record) -> None:
        value = wire.whole(ask, answer, body)
        self._take_time(answer)
        if answer.cut_after is not None:
            # Promise the whole body and send half of it.
            self._send(200, value, half=True)
            self._cut(record)
            return
        if answer.overload_after is not None:
            failure = Failure(503, "server", "The model is overloaded.", code="overloaded")
            record.outcome, record.status = "refused", 503
            self._send(503, wire.error_body(failure))
            return
        self._send(200, value)
        record.outcome = "answered"

    def _stream(self, wire, ask, answer, body: dict, record: Record) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("x-request-id", f"req_{secrets.token_hex(8)}")
        self.end_headers()
        outputs = 0
        for frame, carries_output in wire.frames(ask, answer, body):
            if carries_output:
                if outputs == answer.cut_after:
                    self._cut(record)
                    return
                if outputs == answer.overload_after:
                    for last in wire.overload_frames(body):
                        self._chunk(last)
                    break
                outputs += 1
                time.sleep(answer.pace)
            self._chunk(frame)
            record.frames += 1
        self._chunk(b"")
        record.outcome = "answered"

    def _take_time(self, answer) -> None:
        """Waits as long as the answer takes to say, unless the caller leaves before."""
        if answer.pace:
            seconds = answer.pace * len(pieces(answer.text))
            readable, _, _ = select.select([self.connection], [], [], seconds)
            if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
                raise ConnectionAbortedError("the caller left")

    def _cut(self, record: Record) -> None:
        record.outcome = "cut"
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("transfer-encoding") or ""):
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _send(self, status: int, value, headers: dict | None = None, half: bool = False) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("x-request-id", f"req_{secrets.token_hex(8)}")
        for name, header in (headers or {}).items():
            self.send_header(name, header)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if half else data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    with Upstreams(arguments.port) as upstreams:
        print(upstreams.url, flush=True)
        # The parent holds the other end: when it dies, however it dies, this process ends too.
        sys.stdin.read()


if __name__ == "__main__":
    main()
