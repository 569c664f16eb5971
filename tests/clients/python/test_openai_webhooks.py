"""The official Python client reads and verifies webhooks of background turns."""

import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from harness import CLIENT_KEY, Gateway
from openai import InvalidWebhookSignatureError, OpenAI
from stores import STORES, is_there, store_settings

SECONDS = 60


class Receiver:
    """A server that keeps what is posted to it."""

    def __init__(self) -> None:
        received = self.received = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                received.put((body, dict(self.headers)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.mark.parametrize("store", STORES)
def test_an_event_is_unwrapped_by_the_client_with_the_secret_of_its_endpoint(store, tmp_path):
    if not is_there(store):
        pytest.skip("there is no server for this store")
    receiver = Receiver()
    config = f"""
[tenants.demo]
id = 1
keys = ["{CLIENT_KEY}"]

[upstreams.demo]
kind = "demo"

[egress]
allow_private = ["{receiver.address}"]
"""
    with store_settings(store) as settings:
        gateway = Gateway(None, tmp_path, settings, text=config)
        try:
            client = OpenAI(base_url=f"{gateway.url}/v1", api_key=CLIENT_KEY)
            body = {"url": f"http://{receiver.address}/hook", "event_types": ["response.completed"]}
            endpoint = client.post("/webhook_endpoints", body=body, cast_to=object)
            response = client.responses.create(model="demo", input="Hi", background=True)

            payload, headers = receiver.received.get(timeout=SECONDS)
            event = client.webhooks.unwrap(payload, headers, secret=endpoint["signing_secret"])
            assert (event.type, event.object, event.data.id) == ("response.completed", "event", response.id)
            with pytest.raises(InvalidWebhookSignatureError):
                client.webhooks.unwrap(payload + b" ", headers, secret=endpoint["signing_secret"])
        finally:
            assert gateway.stop() == 0
            receiver.server.shutdown()
