"""The official Python client: tools that the server runs, its own and those of a real MCP server."""

import json

import pytest
from openai import APIStatusError
from stores import STORES
from toolshop import DESK

# The client warns of items whose fields have not the types that it knows.
pytestmark = pytest.mark.filterwarnings("error::UserWarning")

REPORT = {"type": "function", "name": "weather_report"}
SAID = "The tools say: "


def remote(mcp, **extra) -> dict:
    return {"type": "mcp", "server_label": "town", "server_url": mcp.url, "require_approval": "never", **extra}


def whole(client, **request):
    return client.responses.create(**request)


def streamed(client, **request):
    """The response of the last event, whose items are those that the stream showed."""
    events = list(client.responses.create(stream=True, **request))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    final = events[-1].response
    assert [item.to_dict() for item in done] == [item.to_dict() for item in final.output]
    return final


def helped(client, **request):
    with client.responses.stream(**request) as stream:
        return stream.get_final_response()


WAYS = pytest.mark.parametrize("ask", [whole, streamed, helped])


def kinds(response) -> list[str]:
    return [item.type for item in response.output]


@WAYS
@pytest.mark.parametrize("store", STORES)
def test_tool_of_the_bank_runs_within_one_response(client, target, tag, ask, upstreams):
    before = len(upstreams.recorder.service)
    response = ask(client, model=target.model, input=f"weather in Paris and Rome {tag}", tools=[REPORT])

    assert (response.status, kinds(response)) == ("completed", ["mcp_call", "mcp_call", "message"])
    assert response.output_text == f"{SAID}sunny in Paris; sunny in Rome"
    assert [(item.server_label, item.name, item.output, item.error) for item in response.output[:2]] == [
        ("bank", "weather_report", "sunny in Paris", None),
        ("bank", "weather_report", "sunny in Rome", None),
    ]
    assert sorted(body["city"] for _, body in upstreams.recorder.service[before:]) == ["Paris", "Rome"]
    assert len(target.sent(tag)) == 2
    # What is stored goes on, with the calls as the model made them.
    client.responses.create(model=target.model, input=f"thanks {tag}", previous_response_id=response.id)
    told = target.upstream_history(f"thanks {tag}")
    assert [who for who, _ in told if who in ("call", "result")] == ["call", "call", "result", "result"]
    assert [item.type for item in client.responses.retrieve(response.id).output] == kinds(response)


@WAYS
def test_remote_server_is_listed_and_called(client, target, tag, ask, mcp):
    before = len(mcp.calls())
    response = ask(client, model=target.model, input=f"weather in Oslo {tag}", tools=[remote(mcp)])

    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    listed, call, _ = response.output
    assert [tool.name for tool in listed.tools] == ["get_weather", "order_weather", "forecast"]
    assert listed.tools[0].input_schema["required"] == ["city"]
    assert listed.tools[0].annotations["readOnlyHint"] is True
    assert (call.server_label, call.name, json.loads(call.arguments)) == ("town", "get_weather", {"city": "Oslo"})
    assert call.output == "sunny in Oslo"
    assert response.output_text == f"{SAID}sunny in Oslo"
    assert mcp.calls()[before:] == [["get_weather", "Oslo"]]


def test_server_that_the_gateway_starts_is_named_by_its_label(client, target, tag):
    tool = {"type": "mcp", "server_label": DESK, "require_approval": "never"}
    response = streamed(client, model=target.model, input=f"weather in Tokyo {tag}", tools=[tool])

    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert (response.output[1].server_label, response.output[1].output) == (DESK, "sunny in Tokyo")


@WAYS
def test_bank_lends_a_tool_of_that_server(client, target, tag, ask):
    tool = {"type": "function", "name": "weather_desk"}
    response = ask(client, model=target.model, input=f"weather in Tokyo {tag}", tools=[tool])

    assert kinds(response) == ["mcp_call", "message"]
    assert (response.output[0].server_label, response.output[0].name) == ("bank", "weather_desk")
    assert response.output_text == f"{SAID}sunny in Tokyo"


def test_structured_output_of_a_remote_tool_is_told_whole(client, target, tag, mcp):
    tool = remote(mcp, allowed_tools=["forecast"])
    response = whole(client, model=target.model, input=f"weather in Rome {tag}", tools=[tool])

    assert [tool.name for tool in response.output[0].tools] == ["forecast"]
    assert json.loads(response.output[1].output) == {"day 0": 20}


def test_allowed_tools_bound_what_is_offered(client, target, tag, mcp):
    tool = remote(mcp, allowed_tools={"tool_names": ["order_weather"]})
    response = whole(client, model=target.model, input=f"weather in Rome {tag}", tools=[tool])

    assert [tool.name for tool in response.output[0].tools] == ["order_weather"]
    assert response.output[1].name == "order_weather"
    assert "get_weather" not in json.dumps(target.sent(tag)[0]["tools"])


def test_choice_of_a_remote_tool_forces_the_first_call_only(client, target, tag, mcp):
    choice = {"type": "mcp", "server_label": "town", "name": "get_weather"}
    response = whole(client, model=target.model, input=f"hello {tag}", tools=[remote(mcp)], tool_choice=choice)

    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert response.output_text == f"{SAID}sunny in some city"


@pytest.mark.parametrize("ask", [whole, helped])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("approve", [True, False])
def test_call_waits_for_an_approval(client, target, tag, ask, mcp, approve):
    before = len(mcp.calls())
    tools = [remote(mcp, require_approval="always")]
    first = ask(client, model=target.model, input=f"weather in Rome {tag}", tools=tools)
    assert (first.status, kinds(first)) == ("completed", ["mcp_list_tools", "mcp_approval_request"])
    asked = first.output[1]
    assert (asked.server_label, asked.name, json.loads(asked.arguments)) == ("town", "get_weather", {"city": "Rome"})
    assert mcp.calls()[before:] == []

    word = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": approve}
    second = ask(client, model=target.model, input=[word], previous_response_id=first.id, tools=tools)

    # right A9: a denied call shows no item, and the model is told.
    assert kinds(second) == (["mcp_call", "message"] if approve else ["message"])
    if approve:
        assert second.output[0].approval_request_id == asked.id
    assert mcp.calls()[before:] == ([["get_weather", "Rome"]] if approve else [])
    assert (second.output_text == f"{SAID}sunny in Rome") is approve
    assert ("denied" in second.output_text) is not approve


def test_filter_says_which_calls_need_an_approval(client, target, tag, mcp):
    free = {"never": {"tool_names": ["get_weather"]}}
    response = whole(
        client, model=target.model, input=f"weather in Rome {tag}", tools=[remote(mcp, require_approval=free)]
    )
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    bound = remote(mcp, require_approval=free, allowed_tools=["order_weather"])
    response = whole(client, model=target.model, input=f"weather in Rome {tag}", tools=[bound])
    assert kinds(response) == ["mcp_list_tools", "mcp_approval_request"]


@pytest.mark.parametrize("store", STORES)
def test_approval_of_the_bank_is_asked_in_a_stream_and_answered_in_the_next(client, target, tag, upstreams):
    tools = [{"type": "function", "name": "weather_order"}]
    before = len(upstreams.recorder.service)
    first = streamed(client, model=target.model, input=f"weather in Oslo {tag}", tools=tools)
    assert kinds(first) == ["mcp_approval_request"]
    word = {"type": "mcp_approval_response", "approval_request_id": first.output[0].id, "approve": True}
    second = streamed(client, model=target.model, input=[word], previous_response_id=first.id, tools=tools)
    assert kinds(second) == ["mcp_call", "message"]
    assert len(upstreams.recorder.service) - before == 1


def test_tools_of_the_server_and_of_the_client_share_a_turn(client, target, tag):
    own = {
        "type": "function",
        "name": "my_weather",
        "description": "The weather here.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
    # The scripted model takes the first one that fits.
    first = whole(client, model=target.model, input=f"weather in Rome {tag}", tools=[own, REPORT])
    (call,) = first.output
    assert (call.type, call.name) == ("function_call", "my_weather")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "fog"}
    second = whole(client, model=target.model, input=[output], previous_response_id=first.id, tools=[own, REPORT])
    assert second.output_text == f"{SAID}fog"


@WAYS
def test_thoughts_survive_the_rounds(client, target, tag, ask):
    response = ask(
        client,
        model=target.model,
        input=f"think about the weather in Oslo {tag}",
        tools=[REPORT],
        reasoning={"effort": "low", "summary": "auto"},
    )
    assert response.output_text == f"{SAID}sunny in Oslo"
    assert [kind for kind in kinds(response) if kind != "reasoning"] == ["mcp_call", "message"]
    assert "reasoning" in kinds(response)


def test_background_turn_runs_its_tools(client, target, tag):
    queued = client.responses.create(
        model=target.model, input=f"weather in Oslo {tag}", tools=[REPORT], background=True, stream=True
    )
    final = list(queued)[-1].response
    assert (final.status, kinds(final)) == ("completed", ["mcp_call", "message"])


def test_server_that_is_not_there_is_an_error_of_its_own(client, target, tag):
    tool = {"type": "mcp", "server_label": "town", "server_url": "http://127.0.0.1:9/mcp"}
    with pytest.raises(APIStatusError) as refused:
        client.responses.create(model=target.model, input=f"hello {tag}", tools=[tool])
    assert refused.value.status_code == 424
    assert "127.0.0.1" not in str(refused.value)
    assert target.sent(tag) == []
