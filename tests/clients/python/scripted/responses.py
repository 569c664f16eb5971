"""The Responses wire, with the event order, ids and item checks of the API it stands for."""

import base64
import json
import re
import secrets
import time

from . import model
from .media import data_uri
from .model import Answer, Ask, Failure, Offer

ID_PREFIX = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
CALL_KINDS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def credential(headers) -> str | None:
    """The key that the caller presents."""
    return (headers.get("authorization") or "").removeprefix("Bearer ") or None


def read(body: dict, headers) -> Ask:
    """Reads a request, refusing what the real API refuses."""
    items = body.get("input", [])
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not items and not body.get("instructions"):
        raise _bad("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    _check_items(items)
    ask = Ask(
        model=body["model"],
        user_text="",
        stream=body.get("stream") is True,
        parallel=body.get("parallel_tool_calls") is not False,
    )
    for index, item in enumerate(items):
        _read_item(ask, item, index)
    choice = body.get("tool_choice") or "auto"
    if choice != "none":
        ask.offers += _offers(body.get("tools") or [])
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        allowed = {tool.get("name") for tool in choice["tools"]}
        ask.offers = [offer for offer in ask.offers if offer.name in allowed]
        choice = choice["mode"]
    if choice == "required":
        ask.forced = "any"
    elif isinstance(choice, dict) and "name" in choice:
        ask.forced = choice["name"]
    if ask.results:
        ask.forced = None
    form = (body.get("text") or {}).get("format") or {"type": "text"}
    if form["type"] == "json_schema":
        ask.schema = form["schema"]
    elif form["type"] == "json_object":
        ask.schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    ask.thinking = bool((body.get("reasoning") or {}).get("summary") and "think" in ask.user_text.lower())
    return ask


def whole(ask: Ask, answer: Answer, body: dict) -> dict:
    """The answer as one response object: the last one of the stream."""
    last = None
    for kind, event in _events(ask, answer, body):
        if kind in ("response.completed", "response.incomplete"):
            last = event["response"]
    return last


def frames(ask: Ask, answer: Answer, body: dict):
    """The answer as server-sent events; yields `(frame, carries output)`."""
    for number, (kind, event) in enumerate(_events(ask, answer, body)):
        yield _frame({"type": kind, "sequence_number": number, **event}), kind.endswith(".delta")


def overload_frames(body: dict) -> list[bytes]:
    """What this wire sends when a stream breaks down on the model's side."""
    error = {"type": "server_error", "code": "server_error", "message": "The model is overloaded.", "param": None}
    failed = {**_response(body, f"resp_{secrets.token_hex(24)}"), "status": "failed"}
    failed["error"] = {"code": "server_error", "message": "The model is overloaded."}
    return [
        _frame({"type": "error", "sequence_number": 90, "error": error}),
        _frame({"type": "response.failed", "sequence_number": 91, "response": failed}),
    ]


def error_body(failure: Failure) -> dict:
    """The published error shape."""
    kinds = {"rate_limit": "rate_limit_exceeded", "server": "server_error"}
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


def _read_item(ask: Ask, item: dict, index: int) -> None:
    kind = item.get("type", "message")
    if kind in CALL_KINDS.values():
        ask.results.append(_text(item["output"]))
    elif kind == "reasoning":
        _check_reasoning(item)
    elif kind == "additional_tools":
        ask.offers += _offers(item["tools"])
    elif kind == "message" and item["role"] == "user":
        content = item["content"]
        for number, part in enumerate(content if isinstance(content, list) else []):
            if part.get("type") not in ("input_text", "input_image", "input_file", "input_audio"):
                path = f"input[{index}].content[{number}]"
                raise _bad(f"Invalid value: '{part.get('type')}'.", path, "invalid_value")
        images = [
            data_uri(part["image_url"])
            for part in (content if isinstance(content, list) else [])
            if part["type"] == "input_image"
        ]
        text = _text(content)
        ask.images = images or ask.images
        if text:
            ask.user_says(text)
    elif kind == "message" and item["role"] == "assistant":
        ask.images = []
    elif kind == "message" and item["role"] not in ("system", "developer"):
        raise _bad(f"Invalid value: '{item['role']}'.", f"input[{index}].role", "invalid_value")


def _check_items(items: list[dict]) -> None:
    called, answered = set(), set()
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        prefix = ID_PREFIX.get(kind)
        if prefix and item.get("id") and not item["id"].startswith(prefix):
            message = f"Invalid 'input[{index}].id': '{item['id']}'. Expected an ID that begins with '{prefix}'."
            raise _bad(message, f"input[{index}].id", "invalid_value")
        if kind in CALL_KINDS:
            called.add(item["call_id"])
            if kind == "function_call" and not isinstance(item["arguments"], str):
                raise _bad("Invalid type for 'arguments'.", f"input[{index}].arguments", "invalid_type")
        if kind in CALL_KINDS.values():
            if item["call_id"] not in called:
                raise _bad(f"No tool call found for function call output with call_id {item['call_id']}.", "input")
            answered.add(item["call_id"])
    for call_id in sorted(called - answered):
        raise _bad(f"No tool output found for function call {call_id}.", "input")


def _check_reasoning(item: dict) -> None:
    sealed = item.get("encrypted_content")
    if not sealed:
        message = f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
        raise Failure(404, "invalid", message, param="input")
    if _unseal(sealed) != model.THOUGHT:
        raise _bad("The encrypted content could not be verified.", "input", "invalid_encrypted_content")


def _offers(tools: list[dict], namespace: str | None = None) -> list[Offer]:
    offers = []
    for index, tool in enumerate(tools):
        if tool.get("type") == "namespace":
            offers += _offers(tool["tools"], tool["name"])
        elif tool.get("type") in ("function", "custom"):
            if not TOOL_NAME.match(tool.get("name", "")):
                raise _bad("Invalid name of a tool.", f"tools[{index}].name", "invalid_value")
            offers.append(Offer(tool["name"], tool.get("parameters") or {}, tool["type"] == "custom", namespace))
    return offers


def _events(ask: Ask, answer: Answer, body: dict):
    response = _response(body, f"resp_{secrets.token_hex(24)}")
    yield "response.created", {"response": _copy(response)}
    yield "response.in_progress", {"response": _copy(response)}
    output = response["output"]
    if answer.reasoning:
        yield from _reasoning_events(answer.reasoning, body, output)
    if answer.text or answer.refusal:
        yield from _message_events(answer, output)
    for call in answer.calls:
        namespace = next((offer.namespace for offer in ask.offers if offer.name == call.name), None)
        cut = answer.stop == "length" and call is answer.calls[-1]
        yield from _call_events(call, namespace, output, "incomplete" if cut else "completed")
    response["usage"] = _usage(answer)
    if answer.stop == "length":
        response["status"] = output[-1]["status"] = "incomplete"
        response["incomplete_details"] = {"reason": "max_output_tokens"}
        yield "response.incomplete", {"response": _copy(response)}
    else:
        response["status"] = "completed"
        response["completed_at"] = int(time.time())
        yield "response.completed", {"response": _copy(response)}


def _reasoning_events(thought: str, body: dict, output: list):
    item = {"id": f"rs_{secrets.token_hex(24)}", "type": "reasoning", "summary": []}
    if "reasoning.encrypted_content" in (body.get("include") or []):
        item["encrypted_content"] = _seal(thought)
    at = {"item_id": item["id"], "output_index": len(output), "summary_index": 0}
    yield "response.output_item.added", {"output_index": len(output), "item": _copy(item)}
    yield "response.reasoning_summary_part.added", {**at, "part": {"type": "summary_text", "text": ""}}
    for piece in model.pieces(thought):
        yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
    yield "response.reasoning_summary_text.done", {**at, "text": thought}
    part = {"type": "summary_text", "text": thought}
    yield "response.reasoning_summary_part.done", {**at, "part": part}
    item["summary"].append(part)
    yield "response.output_item.done", {"output_index": len(output), "item": _copy(item)}
    output.append(item)


def _message_events(answer: Answer, output: list):
    item = {"id": f"msg_{secrets.token_hex(24)}", "type": "message", "status": "in_progress", "role": "assistant"}
    item["content"] = []
    at = {"item_id": item["id"], "output_index": len(output), "content_index": 0}
    yield "response.output_item.added", {"output_index": len(output), "item": _copy(item)}
    if answer.refusal:
        part, name, field, extra = {"type": "refusal", "refusal": answer.refusal}, "refusal", "refusal", {}
        empty = {"type": "refusal", "refusal": ""}
    else:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": answer.text}
        name, field, empty, extra = "output_text", "text", {**part, "text": ""}, {"logprobs": []}
    yield "response.content_part.added", {**at, "part": empty}
    for piece in model.pieces(part[field]):
        yield f"response.{name}.delta", {**at, "delta": piece, **extra}
    yield f"response.{name}.done", {**at, field: part[field], **extra}
    yield "response.content_part.done", {**at, "part": part}
    item["content"].append(part)
    item["status"] = "incomplete" if answer.stop == "length" else "completed"
    yield "response.output_item.done", {"output_index": len(output), "item": _copy(item)}
    output.append(item)


def _call_events(call: model.Call, namespace: str | None, output: list, status: str):
    if call.free_form:
        kind, prefix, field, name = "custom_tool_call", "ctc", "input", "custom_tool_call_input"
    else:
        kind, prefix, field, name = "function_call", "fc", "arguments", "function_call_arguments"
    item = {"id": f"{prefix}_{secrets.token_hex(24)}", "type": kind, "status": "in_progress"}
    item |= {field: "", "call_id": f"call_{secrets.token_hex(12)}", "name": call.name}
    if namespace:
        item["namespace"] = namespace
    at = {"item_id": item["id"], "output_index": len(output)}
    yield "response.output_item.added", {"output_index": len(output), "item": _copy(item)}
    for start in range(0, len(call.arguments), 8):
        yield f"response.{name}.delta", {**at, "delta": call.arguments[start : start + 8]}
    yield f"response.{name}.done", {**at, field: call.arguments}
    item |= {field: call.arguments, "status": status}
    yield "response.output_item.done", {"output_index": len(output), "item": _copy(item)}
    output.append(item)


def _response(body: dict, response_id: str) -> dict:
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": body.get("model"),
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or {})},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": body.get("temperature") or 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **(body.get("text") or {})},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": 0,
        "top_p": body.get("top_p") or 1.0,
        "truncation": body.get("truncation") or "disabled",
        "usage": None,
        "user": None,
        "metadata": body.get("metadata") or {},
    }


def _usage(answer: Answer) -> dict:
    return {
        "input_tokens": model.INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": model.CACHED_TOKENS},
        "output_tokens": model.OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": model.REASONING_TOKENS if answer.reasoning else 0},
        "total_tokens": model.INPUT_TOKENS + model.OUTPUT_TOKENS,
    }


def _text(content) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if "text" in part)


def _seal(thought: str) -> str:
    return "sealed-" + base64.b64encode(thought.encode()).decode()


def _unseal(sealed: str) -> str | None:
    if not sealed.startswith("sealed-"):
        return None
    return base64.b64decode(sealed.removeprefix("sealed-")).decode()


def _copy(value: dict) -> dict:
    return json.loads(json.dumps(value))


def _frame(event: dict) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _bad(message: str, param: str | None, code: str | None = None) -> Failure:
    return Failure(400, "invalid", message, param=param, code=code)
