"""Codex completes a small task: it looks at a file with its shell, patches it and says that it is done. Over HTTP it sends
the whole history each time, over a WebSocket only what is new.

Codex offers other tools for other model names: plain functions for a name it does not know, a free-form `apply_patch`
for `gpt-5.5`, and for `gpt-5.6` namespaces inside the input, whose one tool runs scripts. Each set has to survive each
upstream.
"""

import json
import subprocess

import pytest
from harness import CODEX_NAMES, ROOT, quiet_environment
from relay import Relay
from scripted.agent import DONE_TEXT, LOOK_TEXT, MARKER, NEW_LINE, OLD_LINE, TASK_FILE
from scripted.model import INPUT_TOKENS
from stores import STORES

CODEX = ROOT / "tests/clients/node_modules/.bin/codex"
# The features switched off are the ones that call home.
CONFIG = """
model = "{model}"
model_provider = "amalgam"
check_for_update_on_startup = false

[model_providers.amalgam]
name = "Amalgam"
base_url = "{base_url}"
env_key = "AMALGAM_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = {websockets}

[analytics]
enabled = false

[features]
apps = false
plugins = false
"""


def run_codex(target, model: str, prompt: str, folder, upstreams, relay=None) -> subprocess.CompletedProcess:
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    base_url = f"{relay.url}/v1" if relay else target.base_url
    websockets = "true" if relay else "false"
    (home / "config.toml").write_text(CONFIG.format(model=model, base_url=base_url, websockets=websockets))
    (work / TASK_FILE).write_text(f"{OLD_LINE}\n")
    subprocess.run(["git", "init", "--quiet", work], check=True, env=quiet_environment())
    # A proxy that refuses and remembers: whatever does not stay on loopback ends there.
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), upstreams.url)
    environment = quiet_environment(**proxies, HOME=str(home), CODEX_HOME=str(home), AMALGAM_KEY=target.key)
    return subprocess.run(
        [CODEX, "exec", "--dangerously-bypass-approvals-and-sandbox", "--json", prompt],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_task_done(ended, folder) -> list[dict]:
    """The task was done step by step; the events that tell of it."""
    told = f"{ended.stdout}\n{ended.stderr}"
    assert ended.returncode == 0, told
    assert (folder / "work" / TASK_FILE).read_text() == f"{NEW_LINE}\n", told
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    # Codex comments on model names, and whether the model thinks depends on the settings that go with a name.
    completed = [event["item"] for event in events if event["type"] == "item.completed"]
    items = [item for item in completed if item["type"] not in ("error", "reasoning")]
    kinds = [item["type"] for item in items]
    assert kinds == ["agent_message", "command_execution", "file_change", "agent_message"], told
    assert (items[0]["text"], items[-1]["text"]) == (LOOK_TEXT, DONE_TEXT)
    assert items[1]["aggregated_output"] == f"{OLD_LINE}\n"
    assert events[-1]["type"] == "turn.completed"
    return events


@pytest.mark.parametrize("name", CODEX_NAMES)
def test_codex_completes_a_task_with_a_command_and_a_patch(target, tag, name, tmp_path, upstreams):
    prompt = f"{MARKER} {tag}: think, then change the greeting"
    ended = run_codex(target, f"{name}-{target.kind}", prompt, tmp_path, upstreams)

    events = assert_task_done(ended, tmp_path)
    assert events[-1]["usage"]["input_tokens"] == 3 * INPUT_TOKENS
    assert [record.outcome for record in target.records(tag)] == ["answered"] * 3
    assert upstreams.recorder.outward == []


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", CODEX_NAMES)
def test_codex_completes_the_task_over_a_websocket(target, tag, name, tmp_path, upstreams, gateway):
    prompt = f"{MARKER} {tag}: think, then change the greeting"
    with Relay(gateway.url) as relay:
        ended = run_codex(target, f"{name}-{target.kind}", prompt, tmp_path, upstreams, relay)

    assert_task_done(ended, tmp_path)
    # One connection did it all, with nothing sent by any other way.
    asked = [(beginning.asked, beginning.answered) for beginning in relay.beginnings]
    assert ("GET /v1/responses HTTP/1.1", "HTTP/1.1 101 Switching Protocols") in asked, asked
    assert not any(line.startswith("POST") for line, _ in asked), asked
    # The model was told the whole history all the same, and no model was called for the preparation.
    assert [record.outcome for record in target.records(tag)] == ["answered"] * 3
    assert upstreams.recorder.outward == []


def test_codex_reports_a_context_that_is_too_long(target, tag, tmp_path, upstreams):
    ended = run_codex(target, target.model, f"please fail with 400 {tag}", tmp_path, upstreams)

    assert ended.returncode != 0
    assert "context" in ended.stdout or "prompt is too long" in ended.stdout
    assert len(target.records(tag)) == 1
