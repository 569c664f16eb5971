"""A wire between a client and the gateway that remembers how each connection began."""

import socket
import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Beginning:
    """The first line of each direction."""

    asked: str = ""
    answered: str = ""


@dataclass
class Relay:
    """Passes bytes along between `url` and the gateway's address."""

    gateway_url: str
    beginnings: list[Beginning] = field(default_factory=list)

    def __enter__(self) -> "Relay":
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        target = urlsplit(self.gateway_url)
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection((target.hostname, target.port))
            beginning = Beginning()
            self.beginnings.append(beginning)
            for source, sink, name in ((client, server, "asked"), (server, client, "answered")):
                threading.Thread(target=_pass, args=(source, sink, beginning, name), daemon=True).start()


def _pass(source: socket.socket, sink: socket.socket, beginning: Beginning, name: str) -> None:
    first = b""
    try:
        while piece := source.recv(65536):
            if b"\r\n" not in first:
                first += piece
                setattr(beginning, name, first.split(b"\r\n")[0].decode("latin-1"))
            sink.sendall(piece)
    except OSError:
        pass
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
