"""Codex completes a small task: it looks at a file with its shell, patches it and says that it is done.

Codex offers other tools for other model names: plain functions for a name it does not know, a free-form `apply_patch`
for `gpt-5.5`, and for `gpt-5.6` namespaces inside the input, whose one tool runs scripts. Each set has to survive each
upstream.
"""

import json
import subprocess

import pytest
from harness import CODEX_NAMES, ROOT, quiet_environment
from scripted.agent import DONE_TEXT, LOOK_TEXT, MARKER, NEW_LINE, OLD_LINE, TASK_FILE
from scripted.model import INPUT_TOKENS

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

[analytics]
enabled = false

[features]
apps = false
plugins = false
"""


def run_codex(target, model: str, prompt: str, folder, upstreams) -> subprocess.CompletedProcess:
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(CONFIG.format(model=model, base_url=target.base_url))
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


@pytest.mark.parametrize("name", CODEX_NAMES)
def test_codex_completes_a_task_with_a_command_and_a_patch(target, tag, name, tmp_path, upstreams):
    prompt = f"{MARKER} {tag}: think, then change the greeting"
    ended = run_codex(target, f"{name}-{target.kind}", prompt, tmp_path, upstreams)

    told = f"{ended.stdout}\n{ended.stderr}"
    assert ended.returncode == 0, told
    assert (tmp_path / "work" / TASK_FILE).read_text() == f"{NEW_LINE}\n", told
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    # Codex comments on model names, and whether the model thinks depends on the settings that go with a name.
    completed = [event["item"] for event in events if event["type"] == "item.completed"]
    items = [item for item in completed if item["type"] not in ("error", "reasoning")]
    kinds = [item["type"] for item in items]
    assert kinds == ["agent_message", "command_execution", "file_change", "agent_message"], told
    assert (items[0]["text"], items[-1]["text"]) == (LOOK_TEXT, DONE_TEXT)
    assert items[1]["aggregated_output"] == f"{OLD_LINE}\n"
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["input_tokens"] == 3 * INPUT_TOKENS
    assert [record.outcome for record in target.records(tag)] == ["answered"] * 3
    assert upstreams.recorder.outward == []


def test_codex_reports_a_context_that_is_too_long(target, tag, tmp_path, upstreams):
    ended = run_codex(target, target.model, f"please fail with 400 {tag}", tmp_path, upstreams)

    assert ended.returncode != 0
    assert "context" in ended.stdout or "prompt is too long" in ended.stdout
    assert len(target.records(tag)) == 1
