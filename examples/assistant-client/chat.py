"""Talks to the assistant in a terminal, and writes what was said into a file.

python3 chat.py --key am_… [--url http://127.0.0.1:8080] [--agent home-assistant] [--course 28] [--log talk.jsonl]

Reads a message per line. `/more` shows the next page of the last recommendation, `/history` the thread so far.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from assistant import Assistant, AssistantError, Event
from render import cards, render


class Chat:
    """A conversation of one user with one agent."""

    def __init__(self, assistant: Assistant, agent: str | None, course_id: int | None, log: Path | None) -> None:
        self.assistant, self.agent, self.course_id, self.log = assistant, agent, course_id, log
        self.session_id: int | None = None
        self.next_page: str | None = None

    def run(self, lines: Iterable[str]) -> None:
        for line in lines:
            message = line.strip()
            if message in ("/quit", "/exit"):
                return
            if message:
                self.say(self.command(message) if message.startswith("/") else self.turn(message))

    def command(self, command: str) -> str:
        match command:
            case "/more" if self.next_page:
                page = self.assistant.page(self.next_page)
                self.next_page = page["next"]
                return cards(page)
            case "/more":
                return "There is nothing more."
            case "/history" if self.session_id is not None:
                told = self.assistant.messages(self.session_id)
                return "\n".join(f"{message['role']}: {message['message']}" for message in told)
            case "/history":
                return "Nothing was said yet."
            case _:
                return "/more, /history or /quit?"

    def turn(self, message: str) -> str:
        try:
            answer = self.assistant.stream(message, self.agent, self.course_id, self.progress)
        except AssistantError as error:
            self.note({"user": message, "error": str(error)})
            return f"! {error}"
        self.session_id = answer["session_id"]
        results = [one["output"] for one in answer.get("tool_results", []) if one["name"] == "get_course_recommendation"]
        found = [output for output in results if isinstance(output, dict) and "error" not in output]
        self.next_page = found[-1].get("next") if found else None
        self.note({"user": message, **answer})
        return render(answer)

    def progress(self, event: Event) -> None:
        """What a window would show while the model speaks; a terminal that is no window shows the end alone."""
        if sys.stderr.isatty():
            if event.name == "message.delta":
                print(event.data["delta"], end="", file=sys.stderr, flush=True)
            elif event.name == "tool_call":
                print(f"[{event.data['name']} …]", file=sys.stderr)
            elif event.name in ("done", "error"):
                # The final answer is drawn from the whole, below.
                print(file=sys.stderr)

    def note(self, entry: dict) -> None:
        if self.log:
            line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "agent": self.agent, **entry}
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def say(self, text: str) -> None:
        print(text, end="\n\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Talk to the tenant assistant.")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default=os.environ.get("AMALGAM_KEY"), help="default: the variable AMALGAM_KEY")
    parser.add_argument("--user", default="example")
    parser.add_argument("--agent", default="home-assistant")
    parser.add_argument("--course", type=int, help="the course on the screen")
    parser.add_argument("--log", type=Path, help="append every turn to this file, a line of JSON each")
    options = parser.parse_args()
    if not options.key:
        parser.error("a key is needed: --key or AMALGAM_KEY")
    assistant = Assistant(options.url, options.key, options.user)
    health = assistant.health()
    if not health["ok"]:
        sys.exit(f"the assistant cannot answer: {health['error']}")
    Chat(assistant, options.agent, options.course, options.log).run(sys.stdin)


if __name__ == "__main__":
    main()
