"""The official Python client: plain answers, streams, history, structured output, images, reasoning."""

import asyncio
import base64
import json
import re
import struct
import zlib
from enum import Enum

from openai import AsyncOpenAI
from pydantic import BaseModel
from scripted.model import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, REASONING_TOKENS, THOUGHT

RESPONSE_KEYS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
}  # fmt: skip


def test_create_answers_with_a_whole_response_object(client, target, tag):
    raw = client.responses.with_raw_response.create(model=target.model, input=f"hello {tag}", metadata={"run": tag})
    body, response = json.loads(raw.text), raw.parse()

    assert body.keys() >= RESPONSE_KEYS
    assert response.output_text == f"You said: hello {tag} ☕"
    assert (response.status, response.error, response.object) == ("completed", None, "response")
    assert re.fullmatch(r"resp_AM-\d{13}-[a-z0-9]{24}", response.id)
    assert (response.model, response.metadata) == (target.model, {"run": tag})
    assert [item.type for item in response.output] == ["message"]
    assert body["usage"]["input_tokens"] == INPUT_TOKENS
    assert body["usage"]["output_tokens"] == OUTPUT_TOKENS
    assert body["usage"]["total_tokens"] == INPUT_TOKENS + OUTPUT_TOKENS
    assert body["usage"]["input_tokens_details"]["cached_tokens"] == CACHED_TOKENS
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] == 0


def test_upstream_sees_its_own_key_and_model_and_never_the_callers_key(client, target, tag):
    client.responses.create(model=target.model, input=f"hello {tag}")

    (record,) = target.records(tag)
    assert record.body["model"] == "scripted-1"
    assert target.key not in json.dumps(record.headers)


def test_settings_reach_the_model_in_its_own_words(client, target, tag):
    client.responses.create(
        model=target.model,
        instructions="Answer like a pirate.",
        input=f"hello {tag}",
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=321,
    )

    (body,) = target.sent(tag)
    assert (body["temperature"], body["top_p"]) == (0.5, 0.9)
    if target.kind == "chat":
        assert body.get("max_completion_tokens", body.get("max_tokens")) == 321
        assert body["messages"][0] == {"role": "system", "content": "Answer like a pirate."}
    elif target.kind == "resp":
        assert (body["max_output_tokens"], body["instructions"]) == (321, "Answer like a pirate.")
    else:
        assert body["max_tokens"] == 321
        assert "Answer like a pirate." in json.dumps(body["system"])


def test_stream_tells_the_whole_life_of_a_message_in_order(client, target, tag):
    events = list(client.responses.create(model=target.model, input=f"hello {tag}", stream=True))

    kinds = [event.type for event in events]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * len(deltas),
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert len(deltas) > 1
    assert "".join(deltas) == f"You said: hello {tag} ☕"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    responses = [event.response for event in events if hasattr(event, "response")]
    assert len({response.id for response in responses}) == 1
    final = responses[-1]
    assert (final.status, final.output_text) == ("completed", "".join(deltas))
    assert final.usage.total_tokens == INPUT_TOKENS + OUTPUT_TOKENS
    item_ids = {event.item_id for event in events if hasattr(event, "item_id")}
    assert item_ids == {final.output[0].id}


def test_stream_and_create_give_the_same_items(client, target, tag):
    whole = client.responses.create(model=target.model, input=f"hello {tag}")
    with client.responses.stream(model=target.model, input=f"hello {tag}") as stream:
        streamed = stream.get_final_response()

    def bare(response):
        items = [item.model_dump(mode="json", exclude={"id", "parsed"}) for item in response.output]
        for item in items:
            for part in item.get("content") or []:
                part.pop("parsed", None)
        return items

    assert bare(whole) == bare(streamed)
    assert whole.usage == streamed.usage


def test_stream_helper_collects_snapshots_and_the_final_response(client, target, tag):
    snapshots = []
    with client.responses.stream(model=target.model, input=f"hello {tag}") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                snapshots.append(event.snapshot)
        final = stream.get_final_response()

    assert snapshots[-1] == final.output_text == f"You said: hello {tag} ☕"


def test_raw_stream_is_made_of_named_frames_and_ends_with_done(client, target, tag):
    with client.responses.with_streaming_response.create(
        model=target.model, input=f"hello {tag}", stream=True
    ) as response:
        text = response.read().decode()

    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    for frame in frames:
        name, data = frame.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


def test_history_sent_in_full_continues_the_conversation(client, target, tag):
    history = [{"role": "user", "content": f"first {tag}"}]
    first = client.responses.create(model=target.model, input=history, store=False)
    history += [item.model_dump(exclude_none=True) for item in first.output]
    history.append({"role": "user", "content": [{"type": "input_text", "text": f"second {tag}"}]})

    second = client.responses.create(model=target.model, input=history, store=False)

    assert second.output_text == f"You said: second {tag} ☕"
    assert f"You said: first {tag} ☕" in json.dumps(target.sent(f"second {tag}")[0], ensure_ascii=False)


def test_answer_that_ran_into_its_limit_is_incomplete(client, target, tag):
    whole = client.responses.create(model=target.model, input=f"talk too long {tag}")
    events = list(client.responses.create(model=target.model, input=f"talk too long {tag}", stream=True))

    for response in (whole, events[-1].response):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert response.output[-1].status == "incomplete"
        assert response.output_text == "one two three"
    assert events[-1].type == "response.incomplete"


class Mood(Enum):
    calm = "calm"
    wild = "wild"


class Person(BaseModel):
    name: str
    age: int


class CalendarEvent(BaseModel):
    title: str
    mood: Mood
    participants: list[Person]


def test_structured_output_is_parsed_into_the_callers_type(client, target, tag):
    response = client.responses.parse(model=target.model, input=f"an event {tag}", text_format=CalendarEvent)

    assert isinstance(response.output_parsed, CalendarEvent)
    assert response.output_parsed.participants[0].age == 7
    assert response.text.format.type == "json_schema"
    (body,) = target.sent(tag)
    assert '"participants"' in json.dumps(body)


def test_structured_output_is_parsed_from_a_stream_too(client, target, tag):
    with client.responses.stream(model=target.model, input=f"an event {tag}", text_format=CalendarEvent) as stream:
        final = stream.get_final_response()

    assert isinstance(final.output_parsed, CalendarEvent)
    assert json.loads(final.output_text)["mood"] == "calm"


def png(width: int = 2, height: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_image_reaches_the_model_byte_for_byte(client, target, tag):
    image = png()
    content = [
        {"type": "input_text", "text": f"what is this? {tag}"},
        {
            "type": "input_image",
            "image_url": f"data:image/png;base64,{base64.b64encode(image).decode()}",
            "detail": "low",
        },
    ]

    response = client.responses.create(model=target.model, input=[{"role": "user", "content": content}])

    assert response.output_text == f"I see image/png of {len(image)} bytes."


def test_reasoning_arrives_as_a_summary_and_can_be_sent_back(client, target, tag):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"type": "function", "name": "get_weather", "parameters": parameters, "strict": False}]
    history = [{"role": "user", "content": f"think about the weather in Rome {tag}"}]
    settings = {
        "model": target.model,
        "tools": tools,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "store": False,
    }

    with client.responses.stream(input=history, **settings) as stream:
        deltas = [event.delta for event in stream if event.type == "response.reasoning_summary_text.delta"]
        first = stream.get_final_response()
    reasoning, call = first.output
    assert (reasoning.type, call.type) == ("reasoning", "function_call")
    assert "".join(deltas) == reasoning.summary[0].text == THOUGHT
    assert first.usage.output_tokens_details.reasoning_tokens == REASONING_TOKENS

    # Anthropic refuses a tool result whose thinking block lost its signature; the scripted upstream does the same.
    history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    second = client.responses.create(input=history, **settings)
    assert second.output_text == "The tools say: rain"
    if target.kind == "anthropic":
        blocks = [block for message in target.sent(tag)[-1]["messages"] for block in message["content"]]
        assert [block["thinking"] for block in blocks if "thinking" in block] == [THOUGHT]


def test_refusal_is_told_apart_from_an_answer(client, target, tag):
    response = client.responses.create(model=target.model, input=f"please refuse {tag}")

    (part,) = response.output[0].content
    if target.kind == "anthropic":
        # This wire has no refusal text, only a reason for which the model stopped.
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "content_filter")
    else:
        assert (part.type, part.refusal) == ("refusal", "I can not help with that.")


def test_many_streams_at_once_stay_apart(target, tag):
    streams = 24

    async def one(client: AsyncOpenAI, number: int) -> str:
        async with client.responses.stream(model=target.model, input=f"hello {tag} {number}") as stream:
            return (await stream.get_final_response()).output_text

    async def all_of_them() -> list[str]:
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            return await asyncio.gather(*(one(client, number) for number in range(streams)))

    assert asyncio.run(all_of_them()) == [f"You said: hello {tag} {number} ☕" for number in range(streams)]
