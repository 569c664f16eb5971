"""Starts the `amalgam` binary in front of the scripted upstreams and says where a client finds it.

python harness.py [STORE] [--tools|--demo]   # prints a line of JSON with the addresses and serves until its input closes

With `--tools` the gateway has tools of its own; with `--demo` it has no upstream but its own demo.
STORE is `sqlite`, which everything has, or `postgres`, for which AMALGAM_TEST_POSTGRES names a server.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from upstream_history import upstream_history
from stores import store_settings
from toolshop import McpOverHttp, config_lines, fill_bank
from upstreams import KEYS, MODELS, SERVICE_KEY, Recorder, Upstreams

ROOT = Path(__file__).resolve().parents[3]
CLIENT_KEY = "am_test_key"
KINDS = ["chat", "resp", "anthropic"]
UPSTREAM_KIND = {"chat": "chat", "resp": "responses", "anthropic": "anthropic"}
# Codex chooses its tools by the beginning of the model's name, so the names for it say which set they bring about.
CODEX_NAMES = ["m", "gpt-5.5", "gpt-5.6-sol"]
START_SECONDS = 20
KEY_PREFIX = "admin key written to "


@dataclass
class Target:
    """One way through the gateway: the client's side of it and what reached the upstream behind it."""

    kind: str
    base_url: str
    recorder: Recorder
    key: str = CLIENT_KEY

    @property
    def model(self) -> str:
        return f"m-{self.kind}"

    def sent(self, text: str) -> list[dict]:
        """Bodies of the requests that reached the upstream and contain `text`."""
        return [record.body for record in self.records(text)]

    def upstream_history(self, text: str) -> list[tuple[str, str]]:
        """What the upstream was told by the one request that contains `text`."""
        (body,) = self.sent(text)
        return upstream_history(body)

    def records(self, text: str):
        found = self.recorder.containing(text)
        assert all(record.kind == self.kind for record in found), "a request reached a foreign upstream"
        return found


class Gateway:
    """A running `amalgam serve`, stopped by `stop`. `settings` go into its environment; with `mcp` it has tools,
    and `text` is its configuration in place of the one with all upstreams."""

    def __init__(
        self,
        upstreams: Upstreams,
        folder: Path,
        settings: dict[str, str],
        mcp: McpOverHttp | None = None,
        text: str | None = None,
    ) -> None:
        self.config, self.data = folder / "amalgam.toml", folder / "data"
        lines = config_lines(upstreams.url, mcp) if mcp else []
        self.config.write_text("\n".join([text or config_text(upstreams.url), *lines, ""]))
        self.log = folder / "amalgam.log"
        self.place = ["--config", self.config, "--data", self.data]
        # The key of a first start, where no other key is configured.
        self.first_key = ""
        self.settings = settings
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [binary(), "serve", "--listen", "127.0.0.1:0", *self.place],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=quiet_environment(**settings),
                text=True,
            )
        self.url = self._address()
        if mcp:
            fill_bank(self.url, CLIENT_KEY, upstreams.url, SERVICE_KEY)

    def run(self, *arguments) -> None:
        """A command of the same program beside the server, on the same data."""
        command = [binary(), *arguments, *self.place]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=quiet_environment(**self.settings)
        )
        if done.returncode != 0:
            raise RuntimeError(f"{arguments} failed: {done.stderr}")

    def stop(self) -> int:
        """Asks the server to end and returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _address(self) -> str:
        """Where the server listens. A first start names the file of its key before that."""
        prefix = "amalgam listening on "
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            for line in self.process.stdout:
                lines.put(line)
                if line.startswith(prefix):
                    return
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        try:
            while line := lines.get(timeout=START_SECONDS):
                if line.startswith(KEY_PREFIX):
                    self.first_key = Path(line.removeprefix(KEY_PREFIX).strip()).read_text().strip()
                if line.startswith(prefix):
                    return line.removeprefix(prefix).strip()
        except queue.Empty:
            pass
        self.process.kill()
        self.process.wait()
        raise RuntimeError(f"amalgam did not start; it logged:\n{self.log.read_text()}")


def binary() -> Path:
    """The program under test."""
    return Path(os.environ.get("AMALGAM_BIN") or ROOT / "target/debug/amalgam").resolve()


def config_text(upstreams_url: str) -> str:
    """A configuration with one upstream of each kind and a model name on each."""
    lines = ["[tenants.demo]", "id = 1", f'keys = ["{CLIENT_KEY}"]']
    for kind in KINDS:
        lines += [
            f"[upstreams.{kind}]",
            f'kind = "{UPSTREAM_KIND[kind]}"',
            f'base_url = "{upstreams_url}/{kind}/v1"',
            f'api_key = "{KEYS[kind]}"',
            f'models = ["{MODELS[0]}"]',
            # The script fails on demand; a second try would only make the tests slower.
            "retries = 0",
        ]
        for name in CODEX_NAMES:
            lines += [f'[models."{name}-{kind}"]', f'upstream = "{kind}"', f'model = "{MODELS[0]}"']
        # Claude Code decides by the beginning of a model's name what it may send.
        lines += [f'[models."claude-*-{kind}"]', f'upstream = "{kind}"', f'model = "{MODELS[0]}"']
    return "\n".join(lines) + "\n"


def demo_text() -> str:
    """A configuration whose only model is the one inside the gateway, and that one quick."""
    return f'[tenants.demo]\nid = 1\nkeys = ["{CLIENT_KEY}"]\n[upstreams.demo]\nkind = "demo"\npace = "2ms"\n'


def quiet_environment(**extra: str) -> dict[str, str]:
    """An environment without settings of the machine that could change a client or lead it outside."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": tempfile.gettempdir(), "NO_PROXY": "127.0.0.1,localhost", **extra}


def main() -> None:
    arguments = sys.argv[1:]
    mcp = McpOverHttp() if "--tools" in arguments else None
    store = next((argument for argument in arguments if not argument.startswith("-")), "sqlite")
    with Upstreams() as upstreams, tempfile.TemporaryDirectory() as folder, store_settings(store) as settings:
        text = None
        if "--demo" in arguments:
            text, settings = demo_text(), {**settings, "AI_AGENT_MODEL": "demo"}
        gateway = Gateway(upstreams, Path(folder), settings, mcp, text)
        addresses = {"baseURL": f"{gateway.url}/v1", "upstreams": upstreams.url, "apiKey": CLIENT_KEY}
        print(json.dumps({**addresses, "mcp": mcp and mcp.url}), flush=True)
        # The parent holds the other end: when it dies, however it dies, both servers end too.
        sys.stdin.read()
        code = gateway.stop()
        if mcp:
            mcp.stop()
        if code != 0:
            sys.exit(f"amalgam ended with {code}:\n{gateway.log.read_text()}")


if __name__ == "__main__":
    main()
