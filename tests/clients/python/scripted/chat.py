"""The Chat Completions wire, as strict as the API it stands for.

A reasoning model shows its reasoning as `reasoning_content`, the field most compatible servers use.
"""

import json
import re
import secrets
import time

from . import model
from .media import data_uri
from .model import Answer, Ask, Failure, Offer

KNOWN_FIELDS = {
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
    "max_tokens", "messages", "metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction",
    "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "response_format",
    "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options", "temperature",
    "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
}  # fmt: skip
TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
FINISH = {"stop": "stop", "calls": "tool_calls", "length": "length"}


def credential(headers) -> str | None:
    """The key that the caller presents."""
    return (headers.get("authorization") or "").removeprefix("Bearer ") or None


def read(body: dict, headers) -> Ask:
    """Reads a request, refusing what the real API refuses."""
    for name in body:
        if name not in KNOWN_FIELDS:
            raise _bad(f"Unrecognized request argument supplied: {name}", name, "unknown_parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _bad("Invalid 'messages': empty array.", "messages", "empty_array")
    if "stream_options" in body and not body.get("stream"):
        raise _bad("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    _check_tools(body)
    _check_pairs(messages)
    ask = Ask(
        model=body["model"],
        user_text="",
        stream=body.get("stream") is True,
        parallel=body.get("parallel_tool_calls", True),
    )
    for index, message in enumerate(messages):
        _read_message(ask, message, index)
    if body.get("tool_choice") != "none":
        ask.offers = [
            Offer(tool["function"]["name"], tool["function"].get("parameters") or {}) for tool in body.get("tools", [])
        ]
    choice = body.get("tool_choice", "auto")
    if choice == "required":
        ask.forced = "any"
    elif isinstance(choice, dict):
        ask.forced = choice["function"]["name"]
    if ask.results:
        ask.forced = None
    ask.schema = _schema(body.get("response_format"))
    # A local reasoning model thinks whether or not the request has a setting for it.
    ask.thinking = "think" in ask.user_text.lower()
    return ask


def whole(ask: Ask, answer: Answer, body: dict) -> dict:
    """The answer as one JSON object."""
    message = {"role": "assistant", "content": answer.text, "refusal": answer.refusal, "annotations": []}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": _call_id(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH[answer.stop]}
    return {**_head("chat.completion", ask), "choices": [choice], "usage": _usage(answer)}


def frames(ask: Ask, answer: Answer, body: dict):
    """The answer as server-sent events; yields `(frame, carries output)`."""
    head = _head("chat.completion.chunk", ask)
    counted = (body.get("stream_options") or {}).get("include_usage") is True

    def chunk(delta: dict, finish: str | None = None) -> bytes:
        value = {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        return _frame({**value, "usage": None} if counted else value)

    yield chunk({"role": "assistant", "content": None if answer.calls else "", "refusal": None}), False
    for piece in model.pieces(answer.reasoning) if answer.reasoning else []:
        yield chunk({"reasoning_content": piece}), True
    for piece in model.pieces(answer.text) if answer.text else []:
        yield chunk({"content": piece}), True
    for piece in model.pieces(answer.refusal) if answer.refusal else []:
        yield chunk({"refusal": piece}), True
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        yield (
            chunk({"tool_calls": [{"index": index, "id": _call_id(), "type": "function", "function": function}]}),
            True,
        )
        for start in range(0, len(call.arguments), 8):
            part = {"arguments": call.arguments[start : start + 8]}
            yield chunk({"tool_calls": [{"index": index, "function": part}]}), True
    yield chunk({}, FINISH[answer.stop]), False
    if counted:
        yield _frame({**head, "choices": [], "usage": _usage(answer)}), False
    yield b"data: [DONE]\n\n", False


def overload_frames(_body: dict) -> list[bytes]:
    """What this wire sends when a stream breaks down on the model's side."""
    error = {"message": "The model is overloaded.", "type": "server_error", "param": None, "code": "overloaded"}
    return [_frame({"error": error})]


def error_body(failure: Failure) -> dict:
    """The published error shape."""
    kinds = {"rate_limit": "requests", "server": "server_error"}
    return {
        "error": {
            "message": failure.message,
            "type": kinds.get(failure.kind, "invalid_request_error"),
            "param": failure.param,
            "code": failure.code,
        }
    }


def models(names: list[str]) -> dict:
    """The list of models."""
    data = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "script"} for name in names]
    return {"object": "list", "data": data}


def _read_message(ask: Ask, message: dict, index: int) -> None:
    role, content = message["role"], message.get("content")
    if role == "tool":
        ask.results.append(_text(content, index, "text"))
    elif role == "user":
        text = _text(content, index, "text", "image_url", "file", "input_audio")
        images = [
            data_uri(part["image_url"]["url"])
            for part in (content if isinstance(content, list) else [])
            if part["type"] == "image_url"
        ]
        # What is shown together is seen together: images and text may come as two messages.
        ask.images = images or ask.images
        if text:
            ask.user_says(text)
    elif role == "assistant":
        if content is None and not message.get("tool_calls") and not message.get("refusal"):
            raise _bad("Invalid value for 'content': expected a string, got null.", f"messages.[{index}].content")
        if content is not None:
            _text(content, index, "text", "refusal")
        ask.images = []
    elif role in ("system", "developer"):
        _text(content, index, "text")
    else:
        raise _bad(f"Invalid value: '{role}'.", f"messages[{index}].role", "invalid_value")


def _text(content, index: int, *allowed: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _bad("Invalid type for 'content': expected a string or an array.", f"messages[{index}].content")
    for number, part in enumerate(content):
        if part.get("type") not in allowed:
            path = f"messages[{index}].content[{number}].type"
            raise _bad(f"Invalid value: '{part.get('type')}'.", path, "invalid_value")
    return "".join(part["text"] for part in content if part["type"] == "text")


def _check_tools(body: dict) -> None:
    tools = body.get("tools")
    if tools is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in body:
                raise _bad(f"'{name}' is only allowed when 'tools' are specified.", name)
        return
    if not tools:
        raise _bad("Invalid 'tools': empty array.", "tools", "empty_array")
    for index, tool in enumerate(tools):
        if tool.get("type") != "function":
            raise _bad(f"Invalid value: '{tool.get('type')}'.", f"tools[{index}].type", "invalid_value")
        if not TOOL_NAME.match(tool["function"]["name"]):
            raise _bad("Invalid name of a function.", f"tools[{index}].function.name", "invalid_value")


def _check_pairs(messages: list[dict]) -> None:
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                raise _bad(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    "messages",
                )
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            break
        for call in message.get("tool_calls") or []:
            if not isinstance(call["function"]["arguments"], str):
                raise _bad("Invalid type for 'arguments': expected a string.", "messages")
            waiting.add(call["id"])
    if waiting:
        raise _bad(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(sorted(waiting))}",
            "messages",
        )


def _schema(response_format: dict | None) -> dict | None:
    if not response_format or response_format["type"] == "text":
        return None
    if response_format["type"] == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    return response_format["json_schema"]["schema"]


def _usage(answer: Answer) -> dict:
    return {
        "prompt_tokens": model.INPUT_TOKENS,
        "completion_tokens": model.OUTPUT_TOKENS,
        "total_tokens": model.INPUT_TOKENS + model.OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": model.CACHED_TOKENS, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": model.REASONING_TOKENS if answer.reasoning else 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _head(kind: str, ask: Ask) -> dict:
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": ask.model,
        "service_tier": "default",
        "system_fingerprint": "fp_5cr1p7ed",
    }


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _frame(value: dict) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _bad(message: str, param: str | None, code: str | None = None) -> Failure:
    return Failure(400, "invalid", message, param=param, code=code)
