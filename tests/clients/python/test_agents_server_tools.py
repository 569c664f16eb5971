"""The OpenAI Agents SDK with tools that the server runs: it shows their calls and runs none of them itself."""

import asyncio

import pytest
from agents import Agent, HostedMCPTool, ModelSettings, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)

# The client warns of items whose fields have not the types that it knows.
pytestmark = pytest.mark.filterwarnings("error::UserWarning")


def run(target, prompt: str, streamed: bool = True, **parts):
    """The result and the kinds of the items that the run showed."""

    async def inside():
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            model = OpenAIResponsesModel(model=target.model, openai_client=client)
            agent = Agent(name="Forecaster", instructions="Use the tools.", model=model, **parts)
            if not streamed:
                result = await Runner.run(agent, input=prompt)
                return result, [item.type for item in result.new_items]
            kinds = []
            result = Runner.run_streamed(agent, input=prompt)
            async for event in result.stream_events():
                if event.type == "run_item_stream_event":
                    kinds.append(event.item.type)
            return result, kinds

    return asyncio.run(inside())


def hosted(mcp, **extra) -> HostedMCPTool:
    approval = extra.pop("on_approval_request", None)
    config = {"type": "mcp", "server_label": "town", "server_url": mcp.url, "require_approval": "never", **extra}
    return HostedMCPTool(tool_config=config, on_approval_request=approval)


@pytest.mark.parametrize("streamed", [True, False])
def test_hosted_server_is_called_by_the_gateway(target, tag, mcp, streamed):
    before = len(mcp.calls())
    result, kinds = run(target, f"weather in Paris and Rome {tag}", streamed, tools=[hosted(mcp)])

    assert result.final_output == "The tools say: sunny in Paris; sunny in Rome"
    assert "mcp_list_tools_item" in kinds
    assert kinds[-1] == "message_output_item"
    assert "tool_call_output_item" not in kinds, "the client ran a call that was not its own"
    assert sorted(mcp.calls()[before:]) == [["get_weather", "Paris"], ["get_weather", "Rome"]]
    assert len(target.sent(tag)) == 2


@pytest.mark.parametrize("approve", [True, False])
def test_run_asks_its_own_code_for_an_approval(target, tag, mcp, approve):
    asked = []

    def decide(request):
        asked.append((request.data.server_label, request.data.name))
        return {"approve": approve} if approve else {"approve": False, "reason": "not today"}

    before = len(mcp.calls())
    tool = hosted(mcp, require_approval="always", on_approval_request=decide)
    result, _ = run(target, f"weather in Oslo {tag}", tools=[tool])

    assert asked == [("town", "get_weather")]
    assert mcp.calls()[before:] == ([["get_weather", "Oslo"]] if approve else [])
    assert ("sunny in Oslo" in result.final_output) is approve
    assert ("not today" in result.final_output) is not approve


@pytest.mark.parametrize("streamed", [True, False])
def test_tool_of_the_bank_is_named_in_the_body(target, tag, upstreams, streamed):
    before = len(upstreams.recorder.service)
    settings = ModelSettings(extra_body={"tools": [{"type": "function", "name": "weather_report"}]})
    result, kinds = run(target, f"weather in Oslo {tag}", streamed, model_settings=settings)

    assert result.final_output == "The tools say: sunny in Oslo"
    assert "tool_call_output_item" not in kinds
    assert upstreams.recorder.service[before:] == [("/service/weather", {"city": "Oslo"})]
