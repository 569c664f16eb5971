"""Claude Code completes a small task: it reads a file, edits it, looks at it with its shell and says that it is done.

It is the native program of the npm package, as it is published, in print mode, with a home of its own. Nothing of it is
configured except the address and the key of the gateway.
"""

import json
import subprocess

from harness import ROOT, quiet_environment
from scripted.agent import DONE_TEXT, LOOK_TEXT, MARKER, NEW_LINE, OLD_LINE, TASK_FILE
from scripted.model import THOUGHT

PACKAGES = ROOT / "tests/clients/node_modules/@anthropic-ai"
# npm installs the package of this machine's processor only; without glibc its name has one word more.
CLAUDE = next(PACKAGES.glob("claude-code-linux-*/claude"))


def run_claude(target, model: str, prompt: str, folder, upstreams, **settings) -> subprocess.CompletedProcess:
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (work / TASK_FILE).write_text(f"{OLD_LINE}\n")
    # A proxy that refuses and remembers: whatever does not stay on loopback ends there.
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), upstreams.url)
    environment = quiet_environment(
        **proxies,
        HOME=str(home),
        CLAUDE_CONFIG_DIR=str(home / ".claude"),
        ANTHROPIC_BASE_URL=target.base_url.removesuffix("/v1"),
        ANTHROPIC_AUTH_TOKEN=target.key,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        **settings,
    )
    # Asking for no permission is refused to root, so the tools are allowed by name.
    allowed = ["--allowedTools", "Read", "Edit", "Bash(cat:*)"]
    form = ["--output-format", "stream-json", "--verbose"]
    return subprocess.run(
        [CLAUDE, "--print", "--model", model, *form, *allowed, "--", prompt],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def told(ended) -> list[dict]:
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return [json.loads(line) for line in ended.stdout.splitlines()]


def blocks(events: list[dict]) -> list[dict]:
    """What the model said, in order."""
    return [block for event in events if event["type"] == "assistant" for block in event["message"]["content"]]


def test_claude_code_completes_a_task_with_an_edit_and_a_command(target, tag, tmp_path, upstreams):
    prompt = f"{MARKER} {tag}: change the greeting"
    ended = run_claude(target, f"claude-opus-{target.kind}", prompt, tmp_path, upstreams)

    events = told(ended)
    assert (tmp_path / "work" / TASK_FILE).read_text() == f"{NEW_LINE}\n", ended.stdout
    said = [block for block in blocks(events) if block["type"] in ("text", "tool_use")]
    kinds = [block.get("name") or block["text"] for block in said]
    assert kinds == [LOOK_TEXT, "Read", "Edit", "Bash", DONE_TEXT], ended.stdout
    result = events[-1]
    assert (result["type"], result["is_error"], result["result"]) == ("result", False, DONE_TEXT)
    assert [record.outcome for record in target.records(tag)] == ["answered"] * 4
    assert upstreams.recorder.outward == []


def test_claude_code_reports_a_context_that_is_too_long(target, tag, tmp_path, upstreams):
    prompt = f"please fail with 400 {tag}"
    ended = run_claude(target, f"claude-opus-{target.kind}", prompt, tmp_path, upstreams)

    assert "prompt is too long" in ended.stdout.lower(), ended.stdout


def test_claude_code_gets_thinking_with_a_signature_and_sends_it_back(target, tag, tmp_path, upstreams):
    prompt = f"{MARKER} {tag}: think, then change the greeting"
    ended = run_claude(target, f"claude-opus-{target.kind}", prompt, tmp_path, upstreams)

    events = told(ended)
    thinking = [block for block in blocks(events) if block["type"] == "thinking"]
    assert len(thinking) == 4, ended.stdout
    assert all(block["signature"].startswith("ams") for block in thinking), ended.stdout
    # Each answer was asked for with the reasoning before it, in the form that the upstream knows.
    *_, last = target.sent(tag)
    assert json.dumps(last).count(THOUGHT) == 3, last
    assert events[-1]["result"] == DONE_TEXT, ended.stdout
