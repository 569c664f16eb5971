"""The official Python client: tools that the caller runs."""

import json

import pytest

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
CLOCK = {
    "type": "function",
    "name": "get_time",
    "description": "The time.",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
    "strict": False,
}


def dumped(response) -> list[dict]:
    """Output items as a client sends them back."""
    return [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]


def result(call, text: str) -> dict:
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}


def test_tool_round_trip_with_the_full_history(client, target, tag):
    history = [{"role": "user", "content": f"weather in Paris {tag}"}]
    first = client.responses.create(model=target.model, input=history, tools=[WEATHER])
    (call,) = first.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert call.id != call.call_id
    assert first.tools[0].name == "get_weather"

    history += [*dumped(first), result(call, "sunny, 21 degrees")]
    second = client.responses.create(model=target.model, input=history, tools=[WEATHER])

    assert second.output_text == "The tools say: sunny, 21 degrees"
    assert len(target.sent(tag)) == 2


def test_streamed_call_gives_its_arguments_piece_by_piece(client, target, tag):
    events = list(
        client.responses.create(model=target.model, input=f"weather in Rome {tag}", tools=[WEATHER], stream=True)
    )

    added = next(event for event in events if event.type == "response.output_item.added")
    done = next(event for event in events if event.type == "response.function_call_arguments.done")
    finished = next(event for event in events if event.type == "response.output_item.done")
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert (added.item.type, added.item.arguments, added.item.status) == ("function_call", "", "in_progress")
    assert "".join(deltas) == done.arguments == finished.item.arguments
    assert json.loads(done.arguments) == {"city": "Rome"}
    assert added.item.call_id == finished.item.call_id == events[-1].response.output[0].call_id
    assert finished.item.status == "completed"


def test_stream_helper_collects_a_call(client, target, tag):
    with client.responses.stream(model=target.model, input=f"weather in Oslo {tag}", tools=[WEATHER]) as stream:
        final = stream.get_final_response()

    assert json.loads(final.output[0].arguments) == {"city": "Oslo"}


@pytest.mark.parametrize("streamed", [False, True])
def test_parallel_calls_are_answered_in_any_order(client, target, tag, streamed):
    history = [{"role": "user", "content": f"weather in Paris and Rome and Oslo {tag}"}]
    if streamed:
        with client.responses.stream(model=target.model, input=history, tools=[WEATHER]) as stream:
            first = stream.get_final_response()
    else:
        first = client.responses.create(model=target.model, input=history, tools=[WEATHER])
    calls = first.output
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Rome", "Oslo"]
    assert len({call.call_id for call in calls}) == 3

    texts = ["sun", "rain", "snow"]
    outputs = [result(call, text) for call, text in zip(calls, texts, strict=True)]
    second = client.responses.create(
        model=target.model, input=[*history, *dumped(first), *reversed(outputs)], tools=[WEATHER]
    )

    said = second.output_text.removeprefix("The tools say: ").split("; ")
    assert sorted(said) == sorted(texts)


def test_parallel_calls_can_be_switched_off(client, target, tag):
    response = client.responses.create(
        model=target.model, input=f"weather in Paris and Rome {tag}", tools=[WEATHER], parallel_tool_calls=False
    )

    assert [item.type for item in response.output] == ["function_call"]
    assert response.parallel_tool_calls is False


def test_call_that_ran_into_its_limit_is_incomplete(client, target, tag):
    # A caller that took it for complete would run a tool with half of its arguments.
    prompt = f"weather in Paris and Rome, but talk too long {tag}"
    events = list(client.responses.create(model=target.model, input=prompt, tools=[WEATHER], stream=True))

    final = events[-1].response
    assert (events[-1].type, final.incomplete_details.reason) == ("response.incomplete", "max_output_tokens")
    assert [(item.type, item.status) for item in final.output] == [
        ("function_call", "completed"),
        ("function_call", "incomplete"),
    ]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.status for item in done] == ["completed", "incomplete"]


def test_text_before_a_call_is_an_item_of_its_own(client, target, tag):
    for response in (
        client.responses.create(model=target.model, input=f"weather in Rome, say so first {tag}", tools=[WEATHER]),
        client.responses.create(
            model=target.model, input=f"weather in Rome, say so first {tag}", tools=[WEATHER], stream=True
        ),
    ):
        final = response if hasattr(response, "output") else list(response)[-1].response
        assert [item.type for item in final.output] == ["message", "function_call"]
        assert final.output_text == "Let me look that up."


def test_tool_choice_required_and_named_force_a_call(client, target, tag):
    required = client.responses.create(
        model=target.model, input=f"hello {tag}", tools=[WEATHER, CLOCK], tool_choice="required"
    )
    named = client.responses.create(
        model=target.model,
        input=f"hello {tag}",
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "function", "name": "get_time"},
    )

    assert [item.type for item in required.output] == ["function_call"]
    assert [(item.type, item.name) for item in named.output] == [("function_call", "get_time")]


def test_tool_choice_none_gives_text(client, target, tag):
    response = client.responses.create(
        model=target.model, input=f"weather in Rome {tag}", tools=[WEATHER], tool_choice="none"
    )

    assert [item.type for item in response.output] == ["message"]


def test_allowed_tools_are_a_hard_limit(client, target, tag):
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_time"}]}
    response = client.responses.create(
        model=target.model, input=f"weather in Rome {tag}", tools=[WEATHER, CLOCK], tool_choice=choice
    )

    assert [(item.type, item.name) for item in response.output] == [("function_call", "get_time")]


@pytest.mark.parametrize("streamed", [False, True])
def test_custom_tool_takes_free_text_whatever_the_model_speaks(client, target, tag, streamed):
    tools = [{"type": "custom", "name": "weather_note", "description": "Takes a note about the weather."}]
    history = [{"role": "user", "content": f"weather in Tokyo {tag}"}]
    if streamed:
        events = list(client.responses.create(model=target.model, input=history, tools=tools, stream=True))
        first = events[-1].response
        deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
        done = next(event for event in events if event.type == "response.custom_tool_call_input.done")
        assert "".join(deltas) == done.input == first.output[0].input
    else:
        first = client.responses.create(model=target.model, input=history, tools=tools)
    (call,) = first.output
    assert (call.type, call.name) == ("custom_tool_call", "weather_note")
    assert call.input in ("Tokyo", "weather of Tokyo")

    history += [*dumped(first), {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "noted"}]
    second = client.responses.create(model=target.model, input=history, tools=tools)

    assert second.output_text == "The tools say: noted"


def test_unknown_and_hosted_tools_do_not_fail_the_request(client, target, tag):
    tools = [{"type": "web_search"}, {"type": "tool_of_next_year", "level": 3}, WEATHER]
    raw = client.responses.with_raw_response.create(model=target.model, input=f"weather in Rome {tag}", tools=tools)

    assert [item.type for item in raw.parse().output] == ["function_call"]
    if target.kind != "resp":
        assert "amalgam-losses" in raw.headers


def test_history_of_another_machine_with_lost_pairs_still_goes_through(client, target, tag):
    history = [
        {"role": "user", "content": f"weather in Rome {tag}"},
        {"type": "function_call", "call_id": "call_lost", "name": "get_weather", "arguments": '{"city":"Rome"}'},
        {"role": "user", "content": f"never mind, hello {tag}"},
        {"type": "function_call_output", "call_id": "call_orphan", "output": "late result"},
        {"role": "user", "content": f"hello again {tag}"},
    ]

    response = client.responses.create(model=target.model, input=history)

    assert response.status == "completed"
    assert "late result" in json.dumps(target.sent(tag)[0])
