"""The OpenAI Agents SDK: its own loop calls a Python function and goes on, streamed and not."""

import asyncio

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)


def agent_with(target, client: AsyncOpenAI, asked: list[str], **settings) -> Agent:
    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return f"sunny in {city}"

    return Agent(
        name="Forecaster",
        instructions="Use the tools.",
        model=OpenAIResponsesModel(model=target.model, openai_client=client),
        model_settings=ModelSettings(**settings),
        tools=[get_weather],
    )


def test_streamed_tool_loop_ends_with_the_answer(target, tag):
    async def run():
        asked, kinds, deltas = [], [], []
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            agent = agent_with(target, client, asked)
            result = Runner.run_streamed(agent, input=f"weather in Paris and Rome {tag}")
            async for event in result.stream_events():
                if event.type == "run_item_stream_event":
                    kinds.append(event.item.type)
                elif event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    deltas.append(event.data.delta)
        return asked, kinds, "".join(deltas), result

    asked, kinds, text, result = asyncio.run(run())

    assert sorted(asked) == ["Paris", "Rome"]
    assert kinds.count("tool_call_item") == kinds.count("tool_call_output_item") == 2
    assert kinds[-1] == "message_output_item"
    assert result.final_output == text == "The tools say: sunny in Paris; sunny in Rome"
    assert len(target.sent(tag)) == 2


def test_next_turn_goes_on_from_the_items_of_the_last(target, tag):
    async def run():
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            agent = agent_with(target, client, [], store=False)
            first = await Runner.run(agent, input=f"weather in Oslo {tag}")
            return await Runner.run(agent, input=[*first.to_input_list(), {"role": "user", "content": f"thanks {tag}"}])

    result = asyncio.run(run())

    assert result.final_output == f"You said: thanks {tag} ☕"


def test_reasoning_survives_the_tool_loop(target, tag):
    async def run():
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            agent = agent_with(
                target,
                client,
                [],
                store=False,
                reasoning={"effort": "low", "summary": "auto"},
                response_include=["reasoning.encrypted_content"],
            )
            return await Runner.run(agent, input=f"think about the weather in Tokyo {tag}")

    result = asyncio.run(run())

    assert "reasoning_item" in [item.type for item in result.new_items]
    assert result.final_output == "The tools say: sunny in Tokyo"
