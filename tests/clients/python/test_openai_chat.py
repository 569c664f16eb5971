"""The official Python client on Chat Completions and embeddings, over every kind of upstream."""

import json

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel
from stores import STORES

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
# Inputs that parse into tools have to promise the shape of the arguments.
STRICT_WEATHER = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}


class Guest(BaseModel):
    name: str
    age: int


class Event(BaseModel):
    title: str
    guests: list[Guest]


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def test_create_answers_with_text_reason_and_usage(client, target, tag):
    completion = client.chat.completions.create(model=target.model, messages=user(f"hello {tag}"))

    (choice,) = completion.choices
    assert (choice.message.role, choice.message.content) == ("assistant", f"You said: hello {tag} ☕")
    assert (choice.finish_reason, choice.message.tool_calls, choice.message.refusal) == ("stop", None, None)
    assert completion.id.startswith("chatcmpl-")
    assert (completion.object, completion.model) == ("chat.completion", target.model)
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (42, 17, 59)
    assert usage.prompt_tokens_details.cached_tokens == 8


def test_stream_gives_pieces_and_usage(client, target, tag):
    stream = client.chat.completions.create(
        model=target.model, messages=user(f"hello {tag}"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)

    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    pieces = [delta.content for delta in deltas if delta.content]
    assert len(pieces) > 1
    assert "".join(pieces) == f"You said: hello {tag} ☕"
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 59)
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_stream_helper_collects_the_completion(client, target, tag):
    with client.chat.completions.stream(model=target.model, messages=user(f"hello {tag}")) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()

    assert final.choices[0].message.content == text == f"You said: hello {tag} ☕"


@pytest.mark.parametrize("streamed", [False, True])
def test_tool_round_trip(client, target, tag, streamed):
    messages = user(f"weather in Paris and Rome {tag}")
    request = {"model": target.model, "messages": messages, "tools": [STRICT_WEATHER]}
    if streamed:
        with client.chat.completions.stream(**request) as stream:
            first = stream.get_final_completion()
    else:
        first = client.chat.completions.create(**request)
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]

    messages.append(
        {
            "role": "assistant",
            "content": choice.message.content,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in calls
            ],
        }
    )
    for call in calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"sunny {call.function.arguments}"})
    second = client.chat.completions.create(model=target.model, messages=messages, tools=[STRICT_WEATHER])

    expected = 'The tools say: sunny {"city": "Paris"}; sunny {"city": "Rome"}'
    assert second.choices[0].message.content.replace('":"', '": "') == expected
    assert second.choices[0].finish_reason == "stop"


def test_older_functions_are_called(client, target, tag):
    function = WEATHER["function"]
    messages = user(f"weather in Oslo {tag}")
    first = client.chat.completions.create(model=target.model, messages=messages, functions=[function])
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "function_call"
    assert (message.function_call.name, json.loads(message.function_call.arguments)) == ("get_weather", {"city": "Oslo"})

    call = {"name": message.function_call.name, "arguments": message.function_call.arguments}
    messages.append({"role": "assistant", "content": None, "function_call": call})
    messages.append({"role": "function", "name": "get_weather", "content": "rain"})
    second = client.chat.completions.create(model=target.model, messages=messages, functions=[function])
    assert second.choices[0].message.content == "The tools say: rain"


def test_parse_gives_a_typed_answer(client, target, tag):
    completion = client.chat.completions.parse(
        model=target.model, messages=user(f"plan a party {tag}"), response_format=Event
    )

    assert isinstance(completion.choices[0].message.parsed, Event)


def test_errors_are_typed_and_name_the_field(client, target, tag):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=target.model, messages=[{"role": "critic", "content": "x"}])
    assert (caught.value.param, caught.value.code) == ("messages[0].role", "invalid_value")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=target.model, messages=user("hello"), n=2)
    assert caught.value.param == "n"
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nowhere/m", messages=user("hello"))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model=target.model, messages=user(f"fail with 429 {tag}"))
    with OpenAI(base_url=target.base_url, api_key="am_wrong_key", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.chat.completions.create(model=target.model, messages=user("hello"))


def test_a_stream_that_breaks_raises(client, target, tag):
    stream = client.chat.completions.create(model=target.model, messages=user(f"cut mid-stream {tag}"), stream=True)
    with pytest.raises(openai.APIError):
        list(stream)


@pytest.mark.parametrize("store", STORES)
def test_stored_completions_are_listed_read_changed_and_deleted(client, target, tag):
    create = client.chat.completions.create
    kept = create(model=target.model, messages=user(f"hello {tag}"), store=True, metadata={"tag": tag})
    create(model=target.model, messages=user(f"hello {tag}"))

    assert [one.id for one in client.chat.completions.list(metadata={"tag": tag})] == [kept.id]
    assert client.chat.completions.retrieve(kept.id).choices[0].message.content == f"You said: hello {tag} ☕"
    (message,) = client.chat.completions.messages.list(kept.id)
    assert (message.role, message.content, message.id) == ("user", f"hello {tag}", f"{kept.id}-0")
    changed = client.chat.completions.update(kept.id, metadata={"tag": "another"})
    assert changed.metadata == {"tag": "another"}
    assert list(client.chat.completions.list(metadata={"tag": tag})) == []
    assert client.chat.completions.delete(kept.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(kept.id)


def test_a_conversation_of_the_server_goes_on(client, target, tag):
    conversation = client.conversations.create(items=[{"role": "user", "content": f"I am Ada {tag}"}])
    completion = client.chat.completions.create(
        model=target.model, messages=user("who am I?"), extra_headers={"amalgam-conversation": conversation.id}
    )

    assert completion.choices[0].message.content.endswith("who am I? ☕")
    assert len(target.sent(tag)) == 1
    items = client.conversations.items.list(conversation.id, order="asc")
    assert [item.role for item in items] == ["user", "user", "assistant"]


def test_embeddings_as_numbers_and_base64(client, target, tag):
    if target.kind == "anthropic":
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model=target.model, input="hello")
        assert caught.value.param == "model"
        return
    # The client asks for base64 unless it is told otherwise.
    packed = client.embeddings.create(model=target.model, input=[f"one {tag}", "three"], dimensions=4)
    plain = client.embeddings.create(
        model=target.model, input=[f"one {tag}", "three"], dimensions=4, encoding_format="float"
    )

    assert [one.index for one in packed.data] == [0, 1]
    assert [list(one.embedding) for one in packed.data] == [one.embedding for one in plain.data]
    assert len(plain.data[0].embedding) == 4
    assert (packed.usage.prompt_tokens, packed.usage.total_tokens) == (2, 2)
