"""The examples of README.md run as they are printed there, and print what it shows."""

import shutil
import sys
import tomllib

import pytest
from documents import ADDRESS, assert_output, examples, in_language, run
from harness import ROOT, Gateway, binary, quiet_environment

README = ROOT / "README.md"


@pytest.fixture
def server(tmp_path):
    """A server that was just started, without keys and upstreams."""
    running = Gateway(None, tmp_path, {}, text="# Nothing is configured.\n")
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize("example", examples(README), ids=str)
def test_a_command_of_the_readme_prints_what_stands_below_it(example, server):
    assert example.output, "a command is followed by its output"
    assert shutil.which("jq"), "jq is missing; scripts/setup.sh test installs it"
    script = example.command.code.replace(ADDRESS, server.url)
    printed = run(["bash", "-euo", "pipefail", "-c", script], env=quiet_environment())
    assert_output(printed, example.output, server.url)


def test_the_python_examples_of_the_readme_run_one_after_the_other(server):
    script = "".join(block.code for block in in_language(README, "python")).replace(ADDRESS, server.url)
    printed = run([sys.executable, "-c", script], env=quiet_environment())
    assert printed.count("You wrote: “Hello!”") == 2, "whole and streamed"
    assert "response.completed" in printed
    assert "['user', 'assistant']" in printed


def test_the_node_example_of_the_readme_prints_the_streamed_answer(server):
    (block,) = in_language(README, "js")
    script = block.code.replace(ADDRESS, server.url)
    folder = ROOT / "tests/clients"
    printed = run(["node", "--input-type=module", "-e", script], cwd=folder, env=quiet_environment())
    assert "You wrote: “Hello!”" in printed


@pytest.mark.parametrize("block", in_language(README, "toml"), ids=str)
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
