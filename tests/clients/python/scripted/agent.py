"""The script of a coding agent: look at a file with the shell, patch it, say that it is done.

Which tools are on offer is the client's choice (Codex offers others for other model names), so each step looks for a
tool that can do it instead of naming one.
"""

import json
from dataclasses import dataclass

# A user text with this marker starts the script.
MARKER = "AGENT-TASK"
TASK_FILE = "greeting.txt"
OLD_LINE = "hello world"
NEW_LINE = "hello amalgam"
LOOK_TEXT = "I look at the file first."
DONE_TEXT = "Done: the greeting is new."

PATCH = f"""*** Begin Patch
*** Update File: {TASK_FILE}
@@
-{OLD_LINE}
+{NEW_LINE}
*** End Patch
"""


@dataclass
class Step:
    text: str | None
    tool: str | None = None
    arguments: str = ""
    free_form: bool = False


@dataclass
class Tool:
    name: str
    schema: dict
    free_form: bool

    def is_called(self, name: str) -> bool:
        """A tool of a namespace may arrive with the namespace in front of its name."""
        return self.name == name or self.name.endswith(f"__{name}")


def step(tools: list[Tool], results: list[str]) -> Step:
    """The next step, given the tools on offer and the results so far."""
    if {"Read", "Edit", "Bash"} <= {tool.name for tool in tools}:
        return _edit(results)
    if not results:
        return _look(tools)
    if OLD_LINE not in results[0]:
        return Step(f"I could not read the file: {results[0]}")
    if len(results) == 1:
        return _patch(tools)
    return Step(DONE_TEXT)


def _edit(results: list[str]) -> Step:
    """The steps for a client that edits files by a tool of its own, and only those that it has read."""
    steps = [
        Step(LOOK_TEXT, "Read", json.dumps({"file_path": TASK_FILE})),
        Step(None, "Edit", json.dumps({"file_path": TASK_FILE, "old_string": OLD_LINE, "new_string": NEW_LINE})),
        Step(None, "Bash", json.dumps({"command": f"cat {TASK_FILE}", "description": "Show the file"})),
    ]
    if len(results) < len(steps):
        return steps[len(results)]
    return Step(DONE_TEXT if NEW_LINE in results[-1] else f"The file is not new: {results}")


def _look(tools: list[Tool]) -> Step:
    for tool in tools:
        if tool.is_called("exec"):
            script = f'const seen = await tools.exec_command({{cmd: "cat {TASK_FILE}"}});\ntext(seen.output ?? seen);\n'
            return _free_form(tool, script, LOOK_TEXT)
    return _shell(tools, f"cat {TASK_FILE}", LOOK_TEXT)


def _patch(tools: list[Tool]) -> Step:
    for tool in tools:
        if tool.is_called("apply_patch"):
            return _free_form(tool, PATCH, None)
    for tool in tools:
        if tool.is_called("exec"):
            return _free_form(tool, f"text(await tools.apply_patch({json.dumps(PATCH)}));\n", None)
    return _shell(tools, f"apply_patch <<'EOF'\n{PATCH}EOF\n", None)


def _free_form(tool: Tool, value: str, text: str | None) -> Step:
    """Calls a tool that takes plain text, also where it had to be wrapped in a function of one argument."""
    if tool.free_form:
        return Step(text, tool.name, value, free_form=True)
    argument = next(iter(tool.schema.get("properties") or {"input": {}}))
    return Step(text, tool.name, json.dumps({argument: value}))


def _shell(tools: list[Tool], command: str, text: str | None) -> Step:
    for tool in tools:
        name, properties = tool.name, tool.schema.get("properties", {})
        if "cmd" in properties:
            return Step(text, name, json.dumps({"cmd": command}))
        if "command" in properties:
            listed = properties["command"].get("type") == "array"
            return Step(text, name, json.dumps({"command": ["bash", "-lc", command] if listed else command}))
    return Step(f"I have no shell among {[tool.name for tool in tools]}")
