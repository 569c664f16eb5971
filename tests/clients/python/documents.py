"""Reads the fenced blocks of a Markdown page and compares what commands print with what the page shows.

In a page, `…` stands for anything: in a JSON string or in a line for any text, alone in a line for any number of lines.
Ids, times and generated keys are compared by their shape, the server's address is the one that the page uses.
"""

import json
import re
import subprocess
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from harness import ROOT

ADDRESS = "http://127.0.0.1:8080"
ANYTHING = "…"
SECONDS = 120


@dataclass
class Block:
    """A fenced block of code, with the text between it and the block before. `sh no-run` marks a command that a test cannot run."""

    language: str
    code: str
    before: str

    def __str__(self) -> str:
        return self.code.strip().splitlines()[0][:60]


@dataclass
class Example:
    """A command, and the output that the page shows for it, if any."""

    command: Block
    output: Block | None

    def __str__(self) -> str:
        return str(self.command)

    @property
    def status(self) -> int | None:
        """The HTTP status that the page gives for the last request of the command."""
        told = re.search(r"Response, `(\d{3})`:\s*$", self.output.before) if self.output else None
        return int(told[1]) if told else None


def blocks(page: Path) -> list[Block]:
    found, end = [], 0
    text = page.read_text()
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        found.append(Block(match[1], match[2], text[end : match.start()]))
        end = match.end()
    return found


def in_language(page: Path, language: str) -> list[Block]:
    return [block for block in blocks(page) if block.language == language]


def examples(page: Path) -> list[Example]:
    """The commands of a page, each with the block of output behind it."""
    of_page = blocks(page)
    pairs = zip_longest(of_page, of_page[1:])
    return [
        Example(command, output if output and output.language in ("json", "text") else None)
        for command, output in pairs
        if command.language == "sh"
    ]


def pages() -> list[Path]:
    """Every page that people read: the README, and all below docs."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def run(command: list[str], **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_output(printed: str, shown: Block, url: str) -> None:
    """Compares what a command has printed with the block that shows it."""
    printed = neutral(printed.replace(url, ADDRESS))
    expected = neutral(shown.code)
    if shown.language == "json":
        told, found = documents(expected), documents(printed)
        assert alike(told, found), f"shown:\n{json.dumps(told, indent=1)}\nprinted:\n{json.dumps(found, indent=1)}"
    else:
        assert re.fullmatch(pattern(expected), trimmed(printed)), f"shown:\n{expected}\nprinted:\n{printed}"


def neutral(text: str) -> str:
    """The text with the same value in place of every id, time and key."""
    # The id of a message of a completion is the completion's with a number.
    text = re.sub(r"\b(chatcmpl)-AM-[0-9]+-[a-z0-9]+", r"\1_ID", text)
    text = re.sub(r"\b([a-z]+)_AM-[a-z0-9-]+", r"\1_ID", text)
    text = re.sub(r"\bam_[A-Za-z0-9_-]{30,}", "am_KEY", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?", "TIME", text)
    return re.sub(r"\b1[6-9]\d{8}\b", "1700000000", text)


def documents(text: str) -> list:
    """The JSON values of a text, one after the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


def alike(told, found) -> bool:
    if isinstance(told, dict) and isinstance(found, dict):
        return list(told) == list(found) and all(alike(told[key], found[key]) for key in told)
    if isinstance(told, list) and isinstance(found, list):
        return len(told) == len(found) and all(map(alike, told, found))
    if isinstance(told, str) and isinstance(found, str) and ANYTHING in told:
        return re.fullmatch(".*".join(map(re.escape, told.split(ANYTHING))), found, re.DOTALL) is not None
    return type(told) is type(found) and told == found


def trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())


def pattern(shown: str) -> str:
    """A pattern for the output that a block of text shows."""
    lines = []
    for line in trimmed(shown).splitlines():
        if line == ANYTHING:
            lines.append(r"(.*\n)*?")
        else:
            lines.append(".*".join(map(re.escape, line.split(ANYTHING))) + r"\n")
    return "".join(lines)
