"""The examples of README.md run as they are printed there, and print what it shows."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass

import pytest
from harness import ROOT, Gateway, binary, quiet_environment

README = (ROOT / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8080"
SECONDS = 60


@dataclass
class Block:
    """A fenced block of code. `sh no-run` marks a command that a test cannot run."""

    language: str
    code: str

    def __str__(self) -> str:
        return self.code.strip().splitlines()[0][:60]


def blocks() -> list[Block]:
    return [Block(*match) for match in re.findall(r"^```([^\n]*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)]


def in_language(language: str) -> list[Block]:
    return [block for block in blocks() if block.language == language]


def examples() -> list[tuple[Block, Block]]:
    """Commands, each with the block that shows their output."""
    pairs = zip(blocks(), blocks()[1:], strict=False)
    return [(command, output) for command, output in pairs if command.language == "sh"]


@pytest.fixture
def server(tmp_path):
    """A server that was just started, without keys and upstreams."""
    running = Gateway(None, tmp_path, {}, text="# Nothing is configured.\n")
    yield running
    assert running.stop() == 0


def run(command: list[str], **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(text: str) -> list:
    """The JSON values of a text, one after the other, with the same id in place of every id."""
    text = re.sub(r"\b([a-z]+)_AM-[a-z0-9-]+", r"\1_ID", text)
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda example: str(example[0]))
def test_a_command_of_the_readme_prints_what_stands_below_it(example, server):
    command, output = example
    assert output.language == "json", "a command is followed by its output"
    assert shutil.which("jq"), "jq is missing; scripts/setup.sh test installs it"
    script = command.code.replace(ADDRESS, server.url)
    printed = run(["bash", "-euo", "pipefail", "-c", script], env=quiet_environment())
    assert documents(printed) == documents(output.code)


def test_the_python_examples_of_the_readme_run_one_after_the_other(server):
    script = "".join(block.code for block in in_language("python")).replace(ADDRESS, server.url)
    printed = run([sys.executable, "-c", script], env=quiet_environment())
    assert printed.count("You wrote: “Hello!”") == 2, "whole and streamed"
    assert "response.completed" in printed
    assert "['user', 'assistant']" in printed


def test_the_node_example_of_the_readme_prints_the_streamed_answer(server):
    (block,) = in_language("js")
    script = block.code.replace(ADDRESS, server.url)
    folder = ROOT / "tests/clients"
    printed = run(["node", "--input-type=module", "-e", script], cwd=folder, env=quiet_environment())
    assert "You wrote: “Hello!”" in printed


@pytest.mark.parametrize("block", in_language("toml"), ids=str)
def test_a_configuration_of_the_readme_is_valid(block, tmp_path):
    settings = tomllib.loads(block.code)
    if "model_providers" in settings:
        # Codex's own file; test_codex.py runs Codex with such a provider.
        assert settings["model_providers"]["amalgam"]["base_url"] == f"{ADDRESS}/v1"
        return
    config = tmp_path / "amalgam.toml"
    config.write_text(block.code)
    keys = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "ACME_KEY": "am_0123456789abcdef"}
    run([str(binary()), "check", "--config", str(config)], cwd=tmp_path, env=quiet_environment(**keys))


def test_every_page_that_the_readme_links_to_exists():
    linked = set(re.findall(r"\]\(([^)#:]+)[^)]*\)", README))
    assert linked, "the README links to the documentation"
    assert {page for page in linked if not (ROOT / page).exists()} == set()
