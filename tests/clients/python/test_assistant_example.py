"""The example client of the tenant assistant against a server as it is after its first start: demo model, sample courses."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from harness import ROOT, START_SECONDS, binary, quiet_environment
from stores import SERVER, STORES, is_there, store_settings

EXAMPLE = ROOT / "examples/assistant-client"
sys.path.insert(0, str(EXAMPLE))

from assistant import Assistant, AssistantError  # noqa: E402
from render import render  # noqa: E402

KEY = "am_example_0123456789"
RECOMMEND = 'I need a course recommendation about "data"'


@pytest.fixture(scope="module", params=STORES)
def url(request, tmp_path_factory):
    """A server without a configuration file; its first start makes everything that the example needs."""
    if not is_there(request.param):
        pytest.skip(f"{SERVER} names no server")
    folder = tmp_path_factory.mktemp(f"example-{request.param}")
    with store_settings(request.param) as settings:
        process = subprocess.Popen(
            [binary(), "serve", "--listen", "127.0.0.1:0", "--data", folder / "data"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            env=quiet_environment(AMALGAM_BOOTSTRAP_KEY=KEY, **settings),
            text=True,
        )
        try:
            line = process.stdout.readline()
            assert line.startswith("amalgam listening on "), (folder / "log").read_text()
            yield line.removeprefix("amalgam listening on ").strip()
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(timeout=START_SECONDS)
    assert "panicked" not in (folder / "log").read_text()


class CuttingRelay:
    """A wire that breaks: of each connection in turn as many bytes come back as `cuts` says, of later ones all."""

    def __init__(self, url: str, cuts: list[int]) -> None:
        self.target, self.cuts, self.asked = urlsplit(url), cuts, []

    def __enter__(self) -> "CuttingRelay":
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection((self.target.hostname, self.target.port))
            limit = self.cuts.pop(0) if self.cuts else None
            threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client, limit), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while piece := client.recv(65536):
                if b" HTTP/1.1\r\n" in piece:
                    self.asked.append(piece.split(b" HTTP/1.1\r\n")[0].decode())
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _answer(self, server: socket.socket, client: socket.socket, limit: int | None) -> None:
        passed = 0
        try:
            while piece := server.recv(65536):
                piece = piece if limit is None else piece[: limit - passed]
                client.sendall(piece)
                passed += len(piece)
                if limit is not None and passed >= limit:
                    break
        except OSError:
            pass
        for side in (client, server):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def test_a_conversation_is_streamed_drawn_and_remembered(url):
    assistant = Assistant(url, KEY, "ana")
    assert assistant.health()["ok"]
    events = []
    answer = assistant.stream(RECOMMEND, agent="home-assistant", on_event=events.append)
    names = [event.name for event in events]
    assert names[0] == "tool_call" and names[1] == "tool_result" and names[-1] == "done"
    assert "".join(event.data["delta"] for event in events if event.name == "message.delta").strip() == answer["message"]
    page = answer["tool_results"][0]["output"]
    assert events[1].data == answer["tool_results"][0]
    assert page["count"] > len(page["results"]) == 5

    drawn = render(answer)
    assert drawn.startswith(answer["message"])
    assert all(f"{course['title']} (#{course['id']})" in drawn for course in page["results"])
    assert f"5 of {page['count']}, there is more" in drawn

    second = assistant.page(page["next"])
    assert second["previous"] and not {one["id"] for one in second["results"]} & {one["id"] for one in page["results"]}

    again = assistant.ask("Thanks", agent="home-assistant")
    assert again["session_id"] == answer["session_id"] and "tool_results" not in again
    assert render(again) == again["message"]
    told = [(one["role"], one["message"]) for one in assistant.messages(answer["session_id"])]
    assert told == [("user", RECOMMEND), ("assistant", answer["message"]), ("user", "Thanks"), ("assistant", again["message"])]
    assert [thread["agent"] for thread in assistant.threads()] == ["home-assistant"]


def test_a_course_on_the_screen_is_drawn_and_a_missing_one_is_a_hint(url):
    assistant = Assistant(url, KEY, "ben")
    answer = assistant.stream("What is course 28 about?", agent="course-assistant", course_id=28)
    assert "Leadership Foundations (#28)" in render(answer)
    missing = assistant.ask("What is course 999999 about?", agent="course-assistant", course_id=999999)
    assert missing["tool_results"][0]["output"] == {"error": "Course with id=999999 was not found."}
    assert "(get_course_detail: Course with id=999999 was not found.)" in render(missing)


def test_a_stream_that_breaks_is_taken_up_and_nothing_is_said_twice(url):
    whole = []
    Assistant(url, KEY, "cleo").stream(RECOMMEND, agent="home-assistant", on_event=whole.append)
    # In the head of the answer, in its first events, in the middle of the resumed one.
    for cuts in ([900], [2500], [60, 1200], [700, 700, 900]):
        user = f"dora-{'-'.join(map(str, cuts))}"
        with CuttingRelay(url, list(cuts)) as relay:
            assistant, events = Assistant(relay.url, KEY, user), []
            answer = assistant.stream(RECOMMEND, agent="home-assistant", on_event=events.append)
        assert len(relay.asked) == len(cuts) + 1, relay.asked
        deltas = [[one.data for one in told if one.name == "message.delta"] for told in (whole, events)]
        if cuts[0] > 60:
            assert assistant.resumed > 0 and deltas[0] == deltas[1], cuts
        told = [one["role"] for one in assistant_of(url, user).messages(answer["session_id"])]
        assert told == ["user", "assistant"], cuts


def assistant_of(url: str, user: str) -> Assistant:
    return Assistant(url, KEY, user)


def test_an_answer_that_is_lost_on_the_way_is_asked_for_again_and_given_once(url):
    with CuttingRelay(url, [0, 40, 300]) as relay:
        answer = Assistant(relay.url, KEY, "emil").ask("Hello")
    assert len(relay.asked) == 4 and len(set(relay.asked)) == 1
    told = assistant_of(url, "emil").messages(answer["session_id"])
    assert [one["role"] for one in told] == ["user", "assistant"]


def test_errors_say_what_was_wrong(url):
    with pytest.raises(AssistantError) as refused:
        Assistant(url, KEY, "finn").ask(" ")
    assert (refused.value.status, refused.value.fields) == (400, {"message": ["This field may not be blank."]})
    with pytest.raises(AssistantError) as refused:
        Assistant(url, "am_wrong", "finn").stream("Hello")
    assert refused.value.status == 401 and refused.value.detail
    with socket.create_server(("127.0.0.1", 0)) as closed:
        closed_address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(ConnectionRefusedError):
        Assistant(closed_address, KEY, "finn").ask("Hello")


def test_the_chat_runs_as_its_readme_says(url, tmp_path):
    log = tmp_path / "talk.jsonl"
    lines = [RECOMMEND, "/more", "/history", "/what", "/quit", "never said"]
    run = subprocess.run(
        [sys.executable, EXAMPLE / "chat.py", "--url", url, "--user", "gina", "--log", log],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
        env=quiet_environment(AMALGAM_KEY=KEY, PYTHONIOENCODING="utf-8", PYTHONDONTWRITEBYTECODE="1"),
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "5 of " in run.stdout and f"user: {RECOMMEND}" in run.stdout and "/more, /history or /quit?" in run.stdout
    (entry,) = [json.loads(line) for line in Path(log).read_text(encoding="utf-8").splitlines()]
    assert entry["user"] == RECOMMEND and entry["tool_results"] and entry["agent"] == "home-assistant"
    refused = subprocess.run(
        [sys.executable, EXAMPLE / "chat.py", "--url", url, "--agent", "x" * 101],
        input="Hello\n",
        capture_output=True,
        text=True,
        timeout=60,
        env=quiet_environment(AMALGAM_KEY=KEY, PYTHONIOENCODING="utf-8", PYTHONDONTWRITEBYTECODE="1"),
        check=False,
    )
    assert "no more than 100 characters" in refused.stdout, refused


@pytest.mark.parametrize("name", ["get_course_detail", "get_course_recommendation", "a_tool_of_the_tenant"])
@pytest.mark.parametrize(
    "output",
    [
        None,
        5,
        "text",
        [],
        {},
        {"error": "Not run: this call was made before with the same arguments.", "suppressed": True},
        {"course": None},
        {"course": {"id": 1, "title": "Only a title"}},
        {"results": "none"},
        {"results": [None, {}, {"id": 1, "title": "Only a title", "description": None}]},
    ],
)
def test_any_tool_result_is_rendered(name, output):
    # right B2
    drawn = render({"message": "Hello.", "tool_results": [{"id": "call_1", "name": name, "output": output}]})
    assert drawn.startswith("Hello.")
    if isinstance(output, dict) and "error" in output:
        assert output["error"] in drawn
