"""The tools that a gateway has of its own in these tests: a real MCP server, and what is put into the bank.

The bank holds tools of the HTTP service of `upstreams.py`, one of the MCP server that the gateway starts by itself, and
traps: tools that are named like a client's own, which no client may ever set off.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

MCP_SERVER = Path(__file__).with_name("mcp_server.py")
# The label of the MCP server that the gateway's configuration starts.
DESK = "desk"
# Named like tools of Codex and of the tests of other clients.
TRAPS = ["exec_command", "shell", "apply_patch", "update_plan", "get_weather", "get_time"]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class McpOverHttp:
    """The MCP server behind an address, until `stop`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, MCP_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.origin = self.process.stdout.readline().strip()
        if not self.origin:
            raise RuntimeError("the MCP server did not start")
        self.url = f"{self.origin}/mcp"

    def calls(self) -> list[list[str]]:
        """The calls so far: names and cities."""
        with urllib.request.urlopen(f"{self.origin}/calls", timeout=10) as answer:
            return json.load(answer)

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=10)


def config_lines(upstreams_url: str, mcp: McpOverHttp) -> list[str]:
    """What the gateway's configuration says about its tools."""
    reached = [urlsplit(url).netloc for url in (upstreams_url, mcp.origin)]
    return [
        "[egress]",
        f"allow_private = {json.dumps(reached)}",
        f"[mcp.{DESK}]",
        f"command = {json.dumps(sys.executable)}",
        f"args = {json.dumps([str(MCP_SERVER), '--stdio'])}",
    ]


def fill_bank(gateway_url: str, key: str, upstreams_url: str, service_key: str) -> None:
    """Puts the tools into the bank."""

    def put(name: str, tool: dict) -> None:
        request = urllib.request.Request(
            f"{gateway_url}/admin/tools/{name}",
            data=json.dumps(tool).encode(),
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status in (200, 201)

    def http(path: str) -> dict:
        return {
            "method": "POST",
            "url": f"{upstreams_url}/service/{path}",
            "headers": {"x-service-key": {"secret": service_key}},
            "body": "arguments",
        }

    about = {"description": "The weather report of a city.", "parameters": CITY}
    put("weather_report", {**about, "kind": "http", "settings": {**http("weather"), "result_path": "report"}})
    put("weather_order", {**about, "kind": "http", "settings": http("weather"), "requires_approval": True})
    put("weather_desk", {**about, "kind": "mcp", "settings": {"server": DESK, "tool": "get_weather"}})
    trap = {"description": "A trap.", "parameters": {"type": "object"}, "kind": "http", "settings": http("trap")}
    for name in TRAPS:
        put(name, trap)
