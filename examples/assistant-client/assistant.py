"""A client of the tenant assistant: asks, streams, takes up what broke off, and turns pages. Standard library only."""

import http.client
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

RESPOND = "/api/v2/ai-agent/respond/"
# A stream that broke off is asked for so often before it counts as lost.
ATTEMPTS = 5


class AssistantError(Exception):
    """The assistant did not answer. `fields` tells what was wrong with each field of the request."""

    def __init__(self, status: int, body: dict) -> None:
        self.status = status
        self.detail = body.get("detail")
        self.fields = {} if self.detail else body
        super().__init__(f"{status}: {self.detail or json.dumps(body, ensure_ascii=False)}")


@dataclass
class Event:
    name: str
    data: dict
    number: int | None = None


@dataclass
class Assistant:
    """One user's way to the assistant of its tenant."""

    base_url: str
    key: str
    user: str
    timeout: float = 120.0
    # How often a stream was resumed.
    resumed: int = field(default=0, init=False)

    def ask(self, message: str, agent: str | None = None, course_id: int | None = None) -> dict:
        """The whole answer. Sent again after a broken connection, it is said once."""
        body, headers = self._request(message, agent, course_id)
        for attempt in range(ATTEMPTS):
            try:
                with self._open("POST", RESPOND, body, headers) as answer:
                    return answer.json()
            except (OSError, http.client.HTTPException):
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt answers or raises")

    def stream(
        self,
        message: str,
        agent: str | None = None,
        course_id: int | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> dict:
        """The whole answer, told piece by piece on the way. A connection that breaks is made good."""
        body, headers = self._request(message, agent, course_id)
        headers["Accept"] = "text/event-stream"
        response_id, last = None, None
        for attempt in range(ATTEMPTS):
            if response_id is None:
                method, path, sent = "POST", RESPOND, body
            else:
                # The turn goes on by itself; what is missing is asked for by the number of the last event.
                self.resumed += 1
                after = "" if last is None else f"?starting_after={last}"
                method, path, sent = "GET", f"{RESPOND}{response_id}/{after}", None
            try:
                with self._open(method, path, sent, headers) as answer:
                    response_id = answer.header("amalgam-response-id") or response_id
                    for event in answer.events():
                        last = event.number if event.number is not None else last
                        on_event(event)
                        if event.name == "done":
                            return event.data
                        if event.name == "error":
                            raise AssistantError(503, event.data)
            except (OSError, http.client.HTTPException):
                if attempt == ATTEMPTS - 1:
                    raise
        raise ConnectionError("the stream broke off again and again")

    def page(self, url: str) -> dict:
        """A page of recommendations, by the address in `next` or `previous`."""
        parts = urlsplit(url)
        with self._open("GET", f"{parts.path}?{parts.query}", None, {}) as answer:
            return answer.json()

    def threads(self) -> list[dict]:
        """The user's threads, the newest first."""
        return list(self._all("/api/v2/ai-agent/sessions/"))

    def messages(self, session_id: int) -> list[dict]:
        """What was said in a thread, the oldest first."""
        newest_first = list(self._all(f"/api/v2/ai-agent/sessions/{session_id}/messages/"))
        return newest_first[::-1]

    def health(self) -> dict:
        """How the assistant stands, also when it could not answer."""
        try:
            with self._open("GET", "/api/v2/ai-agent/health/", None, {}) as answer:
                return answer.json()
        except AssistantError as error:
            if error.status != 503 or "ok" not in error.fields:
                raise
            return error.fields

    def _all(self, path: str) -> Iterator[dict]:
        after = None
        while True:
            query = "?limit=100" if after is None else f"?limit=100&after={after}"
            with self._open("GET", path + query, None, {}) as answer:
                page = answer.json()
            yield from page["results"]
            after = page["next"]
            if after is None:
                return

    def _request(self, message: str, agent: str | None, course_id: int | None) -> tuple[bytes, dict[str, str]]:
        body: dict = {"message": message}
        if agent is not None:
            body["agent"] = agent
        if course_id is not None:
            body["metadata"] = {"course_id": course_id}
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
        return json.dumps(body).encode(), headers

    def _open(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> "Answer":
        parts = urlsplit(self.base_url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=self.timeout)
        own = {"Authorization": f"Bearer {self.key}", "X-Amalgam-User": self.user}
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, {**own, **headers})
            answer = Answer(connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise
        if answer.response.status >= 400:
            with answer:
                raise AssistantError(answer.response.status, answer.json())
        return answer


@dataclass
class Answer:
    """An answer whose connection closes with its `with` block."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def header(self, name: str) -> str | None:
        return self.response.getheader(name)

    def json(self) -> dict:
        body = self.response.read()
        try:
            return json.loads(body)
        except ValueError as fault:
            if self.response.status >= 400:
                # Something in between has refused, such as a proxy.
                return {"detail": "The answer is not JSON."}
            # A connection that breaks early enough looks like a short answer.
            raise http.client.IncompleteRead(body) from fault

    def events(self) -> Iterator[Event]:
        """The events of a stream. One that ends without `done` or `error` has broken off."""
        name, number, data = "message", None, []
        while line := self.response.readline():
            text = line.decode().rstrip("\r\n")
            if not text:
                if data:
                    yield Event(name, json.loads("\n".join(data)), number)
                name, number, data = "message", None, []
                continue
            key, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if key == "event":
                name = value
            elif key == "id" and value.isdigit():
                number = int(value)
            elif key == "data":
                data.append(value)
