"""A product that embeds the assistant: it keeps the API key, knows its users, and issues tokens for their browsers.

Python 3.11, standard library only. The pages are in `static/`; they hold no key and have a strict content security policy.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


class Product:
    """What the product knows: where the assistant is, its key, and who has signed in."""

    def __init__(self, amalgam: str, key: str, agents: list[str], messages_per_day: int):
        self.amalgam = amalgam.rstrip("/")
        self.key = key
        self.agents = agents
        self.messages_per_day = messages_per_day

    def integrity(self) -> str:
        """The hash of the widget, which the browser compares with the script that it loads."""
        with urllib.request.urlopen(f"{self.amalgam}/widget.json", timeout=10) as answer:
            return json.load(answer)["integrity"]

    def client_secret(self, user: str, origin: str) -> dict:
        """A token for one user and for pages of this origin."""
        wanted = {"user": user, "agents": self.agents, "origin": origin, "messages_per_day": self.messages_per_day}
        request = urllib.request.Request(
            f"{self.amalgam}/api/v2/ai-agent/client-secrets/",
            data=json.dumps(wanted).encode(),
            headers={"authorization": f"Bearer {self.key}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


class Handler(BaseHTTPRequestHandler):
    server: "ProductServer"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        name = "index.html" if path == "/" else path.lstrip("/")
        file = STATIC / name
        if "/" in name or not file.is_file():
            return self.answer(404, "text/plain", b"Not found\n")
        body = file.read_bytes()
        if file.suffix == ".html":
            product = self.server.product
            for name, value in {"AMALGAM": product.amalgam, "INTEGRITY": product.integrity()}.items():
                body = body.replace(f"{{{name}}}".encode(), value.encode())
        self.answer(200, TYPES.get(file.suffix, "application/octet-stream"), body)

    def do_POST(self) -> None:
        if self.path != "/client-secret":
            return self.answer(404, "text/plain", b"Not found\n")
        # Pages of other sites must not fetch tokens with this user's session.
        if self.headers.get("origin") != self.server.origin:
            return self.answer(403, "text/plain", b"Forbidden\n")
        try:
            secret = self.server.product.client_secret(self.signed_in_user(), self.server.origin)
        except urllib.error.HTTPError as error:
            print(f"no token: {error.code} {error.read()[:200]!r}", file=sys.stderr)
            return self.answer(502, "application/json", b'{"error": "no token"}')
        except OSError as error:
            print(f"no token: {error}", file=sys.stderr)
            return self.answer(502, "application/json", b'{"error": "no token"}')
        self.answer(200, "application/json", json.dumps(secret).encode())

    def signed_in_user(self) -> str:
        """The user of the session. A product reads it from its own session; it never believes what the browser says."""
        return self.server.user

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        amalgam = self.server.product.amalgam
        policy = (
            f"default-src 'none'; script-src 'self' {amalgam}; style-src 'self'; connect-src 'self' {amalgam}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
        )
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", policy)
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        """Requests are not logged."""


class ProductServer(ThreadingHTTPServer):
    def __init__(self, port: int, product: Product, user: str):
        super().__init__(("127.0.0.1", port), Handler)
        self.product = product
        self.user = user
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--amalgam", default="http://127.0.0.1:8080", help="the address of Amalgam")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--user", default="ana", help="the user who has signed in")
    parser.add_argument("--agent", action="append", help="an agent that pages may use; may be repeated")
    parser.add_argument("--messages-per-day", type=int, default=100)
    arguments = parser.parse_args()
    key = os.environ.get("AMALGAM_KEY")
    if not key:
        sys.exit("set AMALGAM_KEY to a key of your tenant")
    agents = arguments.agent or ["home-assistant", "course-assistant"]
    product = Product(arguments.amalgam, key, agents, arguments.messages_per_day)
    server = ProductServer(arguments.port, product, arguments.user)
    print(f"example listening on {server.origin}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
