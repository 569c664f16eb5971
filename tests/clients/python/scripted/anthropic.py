"""The Anthropic Messages wire, as strict as the API it stands for.

Thinking blocks are signed; one that comes back without its signature, or is missing where a tool call followed it, is
refused, because that is where a careless translation breaks.
"""

import hashlib
import json
import re
import secrets

from . import model
from .media import encoded
from .model import Answer, Ask, Failure, Offer

KNOWN_FIELDS = {
    "cache_control", "container", "context_management", "diagnostics", "inference_geo", "max_tokens", "mcp_servers",
    "messages", "metadata", "model", "output_config", "service_tier", "speed", "stop_sequences", "stream", "system",
    "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
}  # fmt: skip
VERSIONS = ("2023-06-01", "2026-10-21")
REMOVED_FIELDS = {"2026-10-21": {"temperature", "top_k", "top_p"}}
TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
TOOL_USE_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
IMAGE_TYPES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
STOP = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}


def credential(headers) -> str | None:
    """The key that the caller presents: in the header that this API has for it, or as a bearer token."""
    return headers.get("x-api-key") or (headers.get("authorization") or "").removeprefix("Bearer ") or None


def read(body: dict, headers) -> Ask:
    """Reads a request, refusing what the real API refuses."""
    version = headers.get("anthropic-version")
    if version not in VERSIONS:
        raise _bad("anthropic-version: header is required")
    for name in body:
        if name not in KNOWN_FIELDS or name in REMOVED_FIELDS.get(version, ()):
            raise _bad(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        raise _bad("max_tokens: Field required")
    if not 0 <= body.get("temperature", 1) <= 1:
        raise _bad("temperature: range: 0..1")
    thinking = (body.get("thinking") or {"type": "disabled"})["type"] != "disabled"
    _check_thinking(body, thinking)
    messages = body.get("messages")
    if not messages or messages[0]["role"] != "user":
        raise _bad('messages: first message must use the "user" role')
    ask = Ask(model=body["model"], user_text="", stream=body.get("stream") is True)
    # A model that decides by itself whether it thinks need not have thought.
    _check_pairs(messages, thinking and body["thinking"]["type"] == "enabled")
    for index, message in enumerate(messages):
        _read_message(ask, message, index)
    _read_tools(ask, body)
    form = (body.get("output_config") or {}).get("format")
    if form:
        ask.schema = form["schema"]
    ask.thinking = thinking and "think" in ask.user_text.lower()
    return ask


def whole(ask: Ask, answer: Answer, body: dict) -> dict:
    """The answer as one message object."""
    return {
        **_head(ask),
        "content": [_closed(block) for block in _blocks(answer)],
        "stop_reason": "refusal" if answer.refusal else STOP[answer.stop],
        "usage": {**_input_usage(), **_output_usage(answer)},
    }


def frames(ask: Ask, answer: Answer, body: dict):
    """The answer as server-sent events; yields `(frame, carries output)`."""
    message = {**_head(ask), "content": [], "stop_reason": None, "usage": {**_input_usage(), "output_tokens": 1}}
    yield _frame({"type": "message_start", "message": message}), False
    yield _frame({"type": "ping"}), False
    for index, block in enumerate(_blocks(answer)):
        opened, deltas = _opened(block)
        yield _frame({"type": "content_block_start", "index": index, "content_block": opened}), False
        for delta in deltas:
            yield _frame({"type": "content_block_delta", "index": index, "delta": delta}), True
        yield _frame({"type": "content_block_stop", "index": index}), False
    reason = "refusal" if answer.refusal else STOP[answer.stop]
    yield _frame({
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": _output_usage(answer),
    }), False  # fmt: skip
    yield _frame({"type": "message_stop"}), False


def overload_frames(_body: dict) -> list[bytes]:
    """What this wire sends when a stream breaks down on the model's side."""
    return [_frame({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})]


def error_body(failure: Failure) -> dict:
    """The published error shape."""
    kinds = {
        "rate_limit": "rate_limit_error",
        "server": "api_error",
        "credential": "authentication_error",
        "model": "not_found_error",
    }
    message = failure.message
    if failure.kind == "context_length":
        message = "prompt is too long: 210001 tokens > 200000 maximum"
    error = {"type": kinds.get(failure.kind, "invalid_request_error"), "message": message}
    return {"type": "error", "error": error, "request_id": f"req_{secrets.token_hex(12)}"}


def models(names: list[str]) -> dict:
    """The list of models."""
    data = [{"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in names]
    return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def _read_message(ask: Ask, message: dict, index: int) -> None:
    blocks = _content(message)
    if message["role"] == "assistant":
        ask.images = []
        return
    # What the application says between the messages; clients send it with a beta flag.
    if message["role"] == "system":
        return
    texts, images = [], []
    for number, block in enumerate(blocks):
        path = f"messages.{index}.content.{number}"
        if block["type"] == "text":
            if not block["text"].strip():
                raise _bad(f"{path}: text content blocks must contain non-whitespace text")
            # What an application says behind a tool's result has no role of its own here, and is not the user's.
            if not block["text"].startswith("<developer>"):
                texts.append(block["text"])
        elif block["type"] == "image":
            images.append(_image(block["source"], path))
        elif block["type"] == "tool_result":
            content = block.get("content") or ""
            shown = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            ask.results.append(shown)
        elif block["type"] != "document":
            raise _bad(f"{path}: Input tag '{block['type']}' is not one of the expected tags")
    ask.images = images or ask.images
    if texts:
        # Results that come with a new text belong to the turn before it.
        ask.user_says("".join(dict.fromkeys(texts)))


def _image(source: dict, path: str) -> tuple[str, int]:
    if source["type"] == "url":
        return ("url", 0)
    if source.get("media_type") not in IMAGE_TYPES:
        raise _bad(f"{path}.image.source.base64.media_type: Input should be an image type")
    return encoded(source["media_type"], source["data"])


def _read_tools(ask: Ask, body: dict) -> None:
    tools, choice = body.get("tools") or [], body.get("tool_choice") or {"type": "auto"}
    for index, tool in enumerate(tools):
        if not TOOL_NAME.match(tool["name"]):
            raise _bad(f"tools.{index}.custom.name: String should match pattern '{TOOL_NAME.pattern}'")
        if tool.get("type", "custom") == "custom" and tool["input_schema"].get("type") != "object":
            raise _bad(f"tools.{index}.custom.input_schema.type: Field required")
    if "tool_choice" in body and not tools:
        raise _bad("tool_choice may only be specified while providing tools")
    if choice["type"] != "none":
        ask.offers = [Offer(tool["name"], tool.get("input_schema", {})) for tool in tools]
    ask.parallel = not choice.get("disable_parallel_tool_use", False)
    if choice["type"] == "any":
        ask.forced = "any"
    elif choice["type"] == "tool":
        ask.forced = choice["name"]
    if ask.results:
        ask.forced = None


def _check_thinking(body: dict, thinking: bool) -> None:
    if not thinking:
        return
    settings = body["thinking"]
    if settings["type"] == "enabled":
        if settings["budget_tokens"] < 1024:
            raise _bad("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if settings["budget_tokens"] >= body["max_tokens"]:
            raise _bad("`max_tokens` must be greater than `thinking.budget_tokens`")
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise _bad("Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1:
        raise _bad("`temperature` may only be set to 1 when thinking is enabled.")


def _check_pairs(messages: list[dict], thinking: bool) -> None:
    waiting: list[str] = []
    for index, message in enumerate(messages):
        blocks = _content(message)
        results = [block for block in blocks if block["type"] == "tool_result"]
        answered = [block["tool_use_id"] for block in results]
        for orphan in set(answered) - set(waiting):
            raise _bad(f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {orphan}")
        for missing in set(waiting) - set(answered):
            raise _bad(f"messages.{index}: `tool_use` ids were found without `tool_result` blocks after: {missing}")
        if blocks[: len(results)] != results:
            raise _bad(f"messages.{index}: `tool_result` blocks must come first")
        waiting = []
        for block in blocks:
            if block["type"] == "thinking" and block.get("signature") != _signature(block["thinking"]):
                raise _bad(f"messages.{index}: Invalid `signature` in `thinking` block")
            if block["type"] == "tool_use":
                if not TOOL_USE_ID.match(block["id"]) or not isinstance(block["input"], dict):
                    raise _bad(f"messages.{index}: malformed `tool_use` block")
                waiting.append(block["id"])
        last_turn = index == len(messages) - 2
        if thinking and waiting and last_turn and blocks[0]["type"] not in ("thinking", "redacted_thinking"):
            found = blocks[0]["type"]
            raise _bad(
                f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`."
            )
    if waiting:
        raise _bad("`tool_use` ids were found without `tool_result` blocks immediately after")


def _content(message: dict) -> list[dict]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _blocks(answer: Answer) -> list[dict]:
    blocks = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": answer.reasoning, "signature": _signature(answer.reasoning)})
    if answer.text or answer.refusal:
        blocks.append({"type": "text", "text": answer.text or answer.refusal})
    for call in answer.calls:
        use_id = f"toolu_{secrets.token_hex(12)}"
        blocks.append({"type": "tool_use", "id": use_id, "name": call.name, "input": call.arguments})
    return blocks


def _closed(block: dict) -> dict:
    return {**block, "input": json.loads(block["input"])} if block["type"] == "tool_use" else block


def _opened(block: dict) -> tuple[dict, list[dict]]:
    """A block as it starts, and the deltas that fill it."""
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in model.pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [
            {"type": "text_delta", "text": piece} for piece in model.pieces(block["text"])
        ]
    parts = [""] + [block["input"][start : start + 8] for start in range(0, len(block["input"]), 8)]
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]


def _head(ask: Ask) -> dict:
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "stop_sequence": None,
    }


def _input_usage() -> dict:
    # Cached tokens are counted apart here, not inside `input_tokens`.
    return {
        "input_tokens": model.INPUT_TOKENS - model.CACHED_TOKENS,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": model.CACHED_TOKENS,
        "service_tier": "standard",
    }


def _output_usage(answer: Answer) -> dict:
    thinking = model.REASONING_TOKENS if answer.reasoning else 0
    return {"output_tokens": model.OUTPUT_TOKENS, "output_tokens_details": {"thinking_tokens": thinking}}


def _signature(thought: str) -> str:
    return "sig-" + hashlib.sha256(thought.encode()).hexdigest()


def _frame(event: dict) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _bad(message: str) -> Failure:
    return Failure(400, "invalid", message)
