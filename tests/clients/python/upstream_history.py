"""Reads the history in a request to an upstream into one form, so that a test compares histories and not wires."""

import json


def upstream_history(body: dict) -> list[tuple[str, str]]:
    """`(who, what)` in order: `system`, `user` and `assistant` with a text, `call` and `result` of tools.

    Instructions come first on every wire. Reasoning is left out: each wire treats it differently.
    """
    if isinstance(body.get("input"), str):
        history = [("user", body["input"])]
    elif "input" in body:
        history = [pair for item in body["input"] for pair in _item(item)]
    else:
        history = [pair for message in body["messages"] for pair in _message(message)]
    instructions = body.get("instructions") or body.get("system")
    return [("system", text) for text in _texts(instructions or [])] + history


def reasoning_count(body: dict) -> int:
    """How many reasoning items a model was sent back as its own, not as text."""
    if "input" in body:
        return sum(item.get("type") == "reasoning" for item in body["input"])
    blocks = [block for message in body["messages"] for block in _blocks(message)]
    return sum("reasoning_content" in message for message in body["messages"]) + sum(
        block["type"] == "thinking" for block in blocks
    )


def _blocks(message: dict) -> list[dict]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _item(item: dict) -> list[tuple[str, str]]:
    kind = item.get("type", "message")
    if kind == "message":
        role = "system" if item["role"] == "developer" else item["role"]
        return [(role, text) for text in _texts(item["content"])]
    if kind == "function_call":
        return [("call", _call(item["name"], item["arguments"]))]
    if kind == "function_call_output":
        return [("result", "".join(_texts(item["output"])))]
    return []


def _message(message: dict) -> list[tuple[str, str]]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        return [("result", "".join(_texts(content)))]
    if role == "developer":
        role = "system"
    history = []
    for block in _blocks(message):
        if block["type"] == "tool_use":
            history.append(("call", _call(block["name"], json.dumps(block["input"]))))
        elif block["type"] == "tool_result":
            history.append(("result", "".join(_texts(block.get("content") or ""))))
        elif "text" in block:
            history.append((role, block["text"]))
    if isinstance(content, str):
        history.append((role, content))
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return history + [("call", _call(call["name"], call["arguments"])) for call in calls]


def _call(name: str, arguments: str) -> str:
    return f"{name}({json.dumps(json.loads(arguments))})"


def _texts(content) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if "text" in part]
