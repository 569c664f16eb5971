"""The official Python client and what a server keeps for it: retrieve, delete, chains, items, counts, retries."""

import asyncio
import json

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI, UnprocessableEntityError
from upstream_history import reasoning_count, upstream_history
from scripted.model import THOUGHT
from stores import STORES

pytestmark = pytest.mark.parametrize("store", STORES)

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
# Where no model has a part in it, one way through is enough.
one_wire = pytest.mark.parametrize("target", ["chat"], indirect=True)


def echo(text: str) -> str:
    return f"You said: {text} ☕"


def without_thoughts(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without the paragraphs that tell what another model once thought."""
    bare = [(who, "\n\n".join(part for part in what.split("\n\n") if THOUGHT not in part)) for who, what in told]
    return [(who, what) for who, what in bare if what]


def test_retrieve_gives_what_create_gave(client, target, tag):
    settings = {"model": target.model, "input": f"hello {tag}", "metadata": {"run": tag}, "temperature": 0.5}

    created = client.responses.with_raw_response.create(**settings)
    streamed = list(client.responses.create(stream=True, **settings))[-1].response

    kept = client.responses.with_raw_response.retrieve(created.parse().id)
    assert json.loads(kept.text) == json.loads(created.text)
    assert kept.parse().output_text == echo(f"hello {tag}")
    assert (kept.parse().store, kept.parse().metadata) == (True, {"run": tag})
    assert client.responses.retrieve(streamed.id) == streamed
    assert client.responses.retrieve(streamed.id, include=["message.output_text.logprobs"]) == streamed


def test_a_response_can_be_retrieved_as_soon_as_its_id_is_known(client, target, tag):
    with client.responses.create(model=target.model, input=f"talk slowly {tag}", stream=True) as stream:
        first = next(iter(stream))
        running = client.responses.retrieve(first.response.id)

    assert (running.id, running.status, running.output) == (first.response.id, "in_progress", [])


@one_wire
def test_what_was_deleted_is_gone(client, target, tag):
    first = client.responses.create(model=target.model, input=f"first {tag}")
    second = client.responses.create(model=target.model, input=f"second {tag}", previous_response_id=first.id)

    assert client.responses.delete(first.id) is None

    for attempt in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(NotFoundError) as missing:
            attempt(first.id)
        assert missing.value.body["type"] == "invalid_request_error"
    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(model=target.model, input="on", previous_response_id=first.id)
    assert (refusal.value.code, refusal.value.param) == ("previous_response_not_found", "previous_response_id")
    # What was built on it stays whole.
    third = client.responses.create(model=target.model, input=f"third {tag}", previous_response_id=second.id)
    assert third.output_text == echo(f"third {tag}")
    assert ("user", f"first {tag}") in target.upstream_history(f"third {tag}")


@one_wire
def test_what_was_not_stored_cannot_be_had_again(client, target, tag):
    for store in (False, True):
        response = client.responses.create(model=target.model, input=f"hello {tag}", store=store)
        assert response.store is store
        if store:
            assert client.responses.retrieve(response.id).id == response.id
            continue
        with pytest.raises(NotFoundError):
            client.responses.retrieve(response.id)
        with pytest.raises(BadRequestError) as refusal:
            client.responses.create(model=target.model, input="on", previous_response_id=response.id)
        assert refusal.value.code == "previous_response_not_found"


@one_wire
def test_another_user_of_the_same_key_finds_nothing(client, target, tag):
    response = client.responses.create(
        model=target.model, input=f"hello {tag}", extra_headers={"X-Amalgam-User": "alice"}
    )

    with pytest.raises(NotFoundError) as foreign:
        client.responses.retrieve(response.id, extra_headers={"X-Amalgam-User": "bob"})
    with pytest.raises(NotFoundError) as missing:
        client.responses.retrieve(response.id[:-1] + "_")
    assert foreign.value.body["code"] == missing.value.body["code"]
    kept = client.responses.retrieve(response.id, extra_headers={"X-Amalgam-User": "alice"})
    assert kept.output_text == response.output_text


def test_a_chain_tells_the_model_everything_in_order(client, target, tag):
    ask = {"model": target.model}
    first = client.responses.create(input=f"first {tag}", instructions="Be brief.", **ask)
    second = client.responses.create(input=f"second {tag}", previous_response_id=first.id, **ask)
    with client.responses.stream(
        input=[{"role": "user", "content": f"third {tag}"}], previous_response_id=second.id, **ask
    ) as stream:
        third = stream.get_final_response()

    assert third.output_text == echo(f"third {tag}")
    assert (second.previous_response_id, third.previous_response_id) == (first.id, second.id)
    # Items carry over, instructions do not.
    assert target.upstream_history(f"third {tag}") == [
        ("user", f"first {tag}"),
        ("assistant", echo(f"first {tag}")),
        ("user", f"second {tag}"),
        ("assistant", echo(f"second {tag}")),
        ("user", f"third {tag}"),
    ]
    assert second.instructions is None


def test_two_children_of_one_response_never_meet(client, target, tag):
    root = client.responses.create(model=target.model, input=f"root {tag}")

    async def fork():
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as forker:
            settings = {"model": target.model, "previous_response_id": root.id}
            asked = [forker.responses.create(input=f"branch {number} {tag}", **settings) for number in range(6)]
            return await asyncio.gather(*asked)

    branches = asyncio.run(fork())
    leaves = [
        client.responses.create(model=target.model, input=f"leaf {number} {tag}", previous_response_id=branch.id)
        for number, branch in enumerate(branches)
    ]

    for number, leaf in enumerate(leaves):
        assert leaf.output_text == echo(f"leaf {number} {tag}")
        assert target.upstream_history(f"leaf {number} {tag}") == [
            ("user", f"root {tag}"),
            ("assistant", echo(f"root {tag}")),
            ("user", f"branch {number} {tag}"),
            ("assistant", echo(f"branch {number} {tag}")),
            ("user", f"leaf {number} {tag}"),
        ]


def test_a_tool_loop_with_thoughts_sends_only_what_is_new(client, target, tag):
    settings = {
        "model": target.model,
        "tools": [WEATHER],
        "reasoning": {"effort": "low", "summary": "auto"},
    }
    first = client.responses.create(input=f"think about the weather in Rome {tag}", **settings)
    reasoning, call = first.output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": f"rain {tag}"}

    # The scripted upstreams refuse reasoning that comes back without its seal, and calls without their reasoning.
    second = client.responses.create(input=[output], previous_response_id=first.id, **settings)
    third = client.responses.create(input=f"thanks {tag}", previous_response_id=second.id, **settings)

    assert reasoning.summary[0].text == THOUGHT
    assert second.output_text == f"The tools say: rain {tag}"
    assert reasoning_count(target.sent(f"rain {tag}")[0]) == 1
    assert third.output_text == echo(f"thanks {tag}")
    assert target.upstream_history(f"thanks {tag}") == [
        ("user", f"think about the weather in Rome {tag}"),
        ("call", 'get_weather({"city": "Rome"})'),
        ("result", f"rain {tag}"),
        ("assistant", f"The tools say: rain {tag}"),
        ("user", f"thanks {tag}"),
    ]
    with pytest.raises(BadRequestError) as refusal:
        orphan = {**output, "call_id": "call_unknown"}
        client.responses.create(input=[orphan], previous_response_id=first.id, **settings)
    assert (refusal.value.param, refusal.value.code) == ("input[0]", "tool_call_not_found")


@one_wire
def test_a_chain_goes_on_with_another_model(client, target, upstreams, tag):
    settings = {"tools": [WEATHER], "reasoning": {"effort": "low", "summary": "auto"}}
    last, told = None, []
    for turn, kind in enumerate(["anthropic", "resp", "chat", "anthropic", "chat", "resp"]):
        ask = {"model": f"m-{kind}", "previous_response_id": last.id if last else None, **settings}
        text = f"think about the weather in Oslo {turn} {tag}"
        asked = client.responses.create(input=text, **ask)
        (call,) = [item for item in asked.output if item.type == "function_call"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": f"snow {turn} {tag}"}
        last = client.responses.create(input=[output], **{**ask, "previous_response_id": asked.id})
        assert last.output_text == f"The tools say: snow {turn} {tag}"
        told += [("user", text), ("call", 'get_weather({"city": "Oslo"})'), ("result", f"snow {turn} {tag}")]
        body = upstreams.recorder.containing(f"snow {turn} {tag}")[0].body
        assert without_thoughts(upstream_history(body)) == told
        told.append(("assistant", last.output_text))


@one_wire
def test_input_items_come_page_by_page(client, target, tag):
    items = [{"role": "user", "content": f"item {number} {tag}"} for number in range(45)]
    response = client.responses.create(model=target.model, input=items)
    texts = [item["content"] for item in items]

    def text_of(item) -> str:
        return item.content[0].text

    # Iterating goes from page to page by itself.
    ascending = list(client.responses.input_items.list(response.id, order="asc"))
    assert [text_of(item) for item in ascending] == texts
    assert len({item.id for item in ascending}) == len(items)
    descending = list(client.responses.input_items.list(response.id, limit=7))
    assert [item.id for item in descending] == [item.id for item in reversed(ascending)]
    page = client.responses.input_items.list(response.id, order="asc", limit=10, after=ascending[4].id)
    assert [item.id for item in page.data] == [item.id for item in ascending[5:15]]
    assert (page.has_more, page.has_next_page()) == (True, True)
    usual = client.responses.input_items.list(response.id)
    assert len(usual.data) == 20
    with pytest.raises(BadRequestError) as refusal:
        client.responses.input_items.list(response.id, limit=101)
    assert refusal.value.param == "limit"


@one_wire
def test_items_can_be_referred_to(client, target, tag):
    first = client.responses.create(model=target.model, input=f"first {tag}")
    (message,) = first.output
    (question,) = client.responses.input_items.list(first.id)

    references = [{"type": "item_reference", "id": item.id} for item in (question, message)]
    second = client.responses.create(
        model=target.model, input=[*references, {"role": "user", "content": f"second {tag}"}]
    )

    assert second.output_text == echo(f"second {tag}")
    assert target.upstream_history(f"second {tag}") == [
        ("user", f"first {tag}"),
        ("assistant", echo(f"first {tag}")),
        ("user", f"second {tag}"),
    ]
    kept = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.id for item in kept[:2]] == [question.id, message.id]
    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(model=target.model, input=[{"type": "item_reference", "id": "msg_unknown"}])
    assert (refusal.value.param, refusal.value.code) == ("input[0]", "item_not_found")


@one_wire
def test_metadata_is_kept_within_its_limits(client, target, tag):
    good = {f"key-{number}": "v" * 512 for number in range(16)}
    response = client.responses.create(model=target.model, input=f"hello {tag}", metadata=good)

    assert client.responses.retrieve(response.id).metadata == good
    for bad in ({**good, "one-more": "v"}, {"k" * 65: "v"}, {"k": "v" * 513}):
        with pytest.raises(BadRequestError) as refusal:
            client.responses.create(model=target.model, input=f"refused {tag}", metadata=bad)
        assert refusal.value.param.startswith("metadata")
    assert target.records(f"refused {tag}") == []


def test_counting_tokens_calls_no_model(client, target, tag):
    text = "A sentence of some length, said again and again. " * 20
    short = client.responses.input_tokens.count(model=target.model, input=f"hello {tag}")
    long = client.responses.input_tokens.count(model=target.model, input=f"{text} {tag}", instructions="Be brief.")
    assert short.object == "response.input_tokens"
    assert 0 < short.input_tokens < 60
    assert 200 < long.input_tokens < 400
    assert target.records(tag) == []

    first = client.responses.create(model=target.model, input=text)
    chained = client.responses.input_tokens.count(
        model=target.model, input=f"hello {tag}", previous_response_id=first.id
    )
    # The text, its echo, and what was counted above.
    assert chained.input_tokens > short.input_tokens + 2 * (long.input_tokens - 60)
    with_tool = client.responses.input_tokens.count(model=target.model, input=f"hello {tag}", tools=[WEATHER])
    assert with_tool.input_tokens > short.input_tokens


def test_a_key_makes_one_response_of_many_requests(client, target, tag):
    settings = {"model": target.model, "input": f"hello {tag}", "extra_headers": {"Idempotency-Key": f"once {tag}"}}

    first = client.responses.with_raw_response.create(**settings)
    again = client.responses.with_raw_response.create(**settings)

    assert json.loads(again.text) == json.loads(first.text)
    assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
    assert len(target.records(tag)) == 1
    with pytest.raises(UnprocessableEntityError) as refusal:
        client.responses.create(**{**settings, "input": f"other {tag}"})
    assert refusal.value.code == "idempotency_mismatch"
    assert target.records(f"other {tag}") == []


def test_a_key_holds_while_the_first_request_runs(target, tag):
    async def ask_six_times():
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            settings = {"model": target.model, "extra_headers": {"Idempotency-Key": f"once {tag}"}}
            asked = [client.responses.create(input=f"take your time {tag}", **settings) for _ in range(6)]
            return await asyncio.gather(*asked)

    first, *others = asyncio.run(ask_six_times())

    assert first.output_text.startswith("word0 word1 ")
    assert all(other == first for other in others)
    assert len(target.records(tag)) == 1


def test_a_key_repeats_a_stream_event_by_event(client, target, tag):
    settings = {"model": target.model, "extra_headers": {"Idempotency-Key": f"once {tag}"}, "stream": True}

    first = list(client.responses.create(input=f"hello {tag}", **settings))
    again = list(client.responses.create(input=f"hello {tag}", **settings))

    assert again == first
    assert first[-1].type == "response.completed"
    assert len(target.records(tag)) == 1


@one_wire
def test_retries_of_the_client_itself_make_one_response(target, tag):
    # The client tries again after a broken answer, with the key that it was given.
    with OpenAI(base_url=target.base_url, api_key=target.key, max_retries=2, timeout=1) as client:
        settings = {"model": target.model, "extra_headers": {"Idempotency-Key": f"once {tag}"}}
        response = client.responses.create(input=f"take your time {tag}", **settings)

    assert response.output_text.endswith(" word39")
    assert len(target.records(tag)) == 1
