"""The official Python client over a WebSocket: responses one after the other, memory of what is not stored, errors."""

import asyncio
import json

import pytest
from openai import AsyncOpenAI, OpenAI
from stores import STORES
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.parametrize("store", STORES)

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
LAST = ("response.completed", "response.incomplete", "response.failed", "error")


def events_of(connection) -> list:
    """The events up to the end of a response."""
    events = [connection.recv()]
    while events[-1].type not in LAST:
        events.append(connection.recv())
    return events


def ask(connection, **settings):
    """Asks for a response and returns it."""
    connection.response.create(**settings)
    last = events_of(connection)[-1]
    assert last.type == "response.completed", last
    return last.response


def refused(connection, **settings):
    """Asks for what cannot be had and returns the event that says so."""
    connection.response.create(**settings)
    event = connection.recv()
    assert event.type == "error", event
    return event


def test_a_socket_carries_the_events_of_a_stream(client, target, tag):
    with client.responses.connect() as connection:
        connection.response.create(model=target.model, input=f"hello {tag}")
        events = events_of(connection)

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == f"You said: hello {tag} ☕"
    kept = client.responses.retrieve(events[-1].response.id)
    assert kept.output_text == text


def test_a_library_that_offers_compression_is_declined_and_understood(target, tag):
    url = target.base_url.replace("http://", "ws://") + "/responses"
    instructions = f"Be kind. {tag} " * 400
    ask = {"type": "response.create", "model": target.model, "input": f"hello {tag}", "instructions": instructions}
    with connect(url, additional_headers={"Authorization": f"Bearer {target.key}"}) as socket:
        assert "Sec-WebSocket-Extensions" not in socket.response.headers
        for _ in range(2):
            socket.send(json.dumps(ask))
            events = [json.loads(socket.recv(timeout=30))]
            while events[-1]["type"] not in LAST:
                events.append(json.loads(socket.recv(timeout=30)))
            response = events[-1]["response"]
            assert (events[-1]["type"], response["instructions"]) == ("response.completed", instructions)
            assert response["output"][-1]["content"][0]["text"] == f"You said: hello {tag} ☕"


def test_a_tool_loop_sends_only_what_is_new(client, target, tag):
    with client.responses.connect() as connection:
        settings = {"model": target.model, "store": False, "tools": [WEATHER]}
        first = ask(connection, input=f"weather in Paris {tag}", **settings)
        (call,) = [item for item in first.output if item.type == "function_call"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": f"sunny {tag}"}
        second = ask(connection, input=[output], previous_response_id=first.id, **settings)
        third = ask(connection, input=f"thanks {tag}", previous_response_id=second.id, **settings)

    assert f"sunny {tag}" in second.output_text
    assert third.previous_response_id == second.id
    assert len(target.records(tag)) == 3
    assert "weather in Paris" in str(target.sent(tag)[-1])


def test_what_is_not_stored_stays_on_its_connection(client, target, tag):
    settings = {"model": target.model, "store": False}
    with client.responses.connect() as connection, client.responses.connect() as other:
        first = ask(connection, input=f"hello {tag}", **settings)
        event = refused(other, input="who?", previous_response_id=first.id, **settings)
        assert (event.status, event.error.code) == (400, "previous_response_not_found")
        ask(connection, input="again", previous_response_id=first.id, **settings)


def test_getting_ready_asks_no_model(client, target, tag):
    with client.responses.connect() as connection:
        ready = ask(connection, model=target.model, input=f"remember {tag}", store=False, generate=False)
        assert (ready.output, target.records(tag)) == ([], [])
        answer = ask(connection, model=target.model, input="go on", store=False, previous_response_id=ready.id)

    # One upstream hears two messages of the user in a row, another one hears them joined.
    assert answer.output_text.endswith("go on ☕")
    assert len(target.records(tag)) == 1


def test_a_fault_is_an_event_and_the_connection_goes_on(client, target, tag):
    with client.responses.connect() as connection:
        event = refused(connection, model="unknown", input="hello")
        assert (event.status, event.error.code, event.error.param) == (404, "model_not_found", "model")
        event = refused(connection, model=target.model, input=f"please fail with 429 {tag}")
        assert (event.status, event.error.code) == (429, "rate_limit_exceeded")
        connection.response.create(model=target.model, input=f"cut mid-stream {tag}")
        events = events_of(connection)
        # The event that tells of it comes first, then the response that has failed.
        assert events[-1].type == "error" and connection.recv().type == "response.failed"
        assert ask(connection, model=target.model, input="hello").output_text == "You said: hello ☕"


def test_several_sockets_work_at_once(target, tag):
    async def talk(client: AsyncOpenAI, number: int) -> str:
        async with client.responses.connect() as connection:
            await connection.response.create(model=target.model, input=f"hello {number} {tag}", store=False)
            async for event in connection:
                if event.type == "response.completed":
                    return event.response.output_text
        raise AssertionError("the connection ended before the response")

    async def all_of_them() -> list[str]:
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            return await asyncio.gather(*(talk(client, number) for number in range(8)))

    assert asyncio.run(all_of_them()) == [f"You said: hello {number} {tag} ☕" for number in range(8)]


def test_an_unknown_key_opens_no_socket(target):
    with OpenAI(base_url=target.base_url, api_key="am_wrong", max_retries=0) as client:
        with pytest.raises(InvalidStatus) as refusal, client.responses.connect():
            pass
    assert refusal.value.response.status_code == 401
