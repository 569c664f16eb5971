"""Microsoft's agent framework: its tool loop over the Responses API, with reasoning that it sends back sealed."""

import asyncio

import pytest
from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
from openai import AsyncOpenAI


def agent_with(target, client: AsyncOpenAI, asked: list[str], **options) -> Agent:
    def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return f"sunny in {city}"

    chat = OpenAIChatClient(model=target.model, async_client=client)
    return Agent(chat, instructions="Use the tools.", tools=[get_weather], default_options=options)


@pytest.mark.parametrize("stored", [True, False])
def test_tool_loop_ends_with_the_answer(target, tag, stored):
    async def run():
        asked = []
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            result = await agent_with(target, client, asked, store=stored).run(f"weather in Paris and Rome {tag}")
        return asked, result

    asked, result = asyncio.run(run())

    assert sorted(asked) == ["Paris", "Rome"]
    assert result.text.endswith("The tools say: sunny in Paris; sunny in Rome")


@pytest.mark.parametrize("streamed", [True, False])
def test_reasoning_goes_through_the_tool_loop_sealed(target, tag, streamed):
    # right A6: without `encrypted_content` the framework refuses to go on.
    async def run():
        asked = []
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            agent = agent_with(
                target, client, asked, store=False, reasoning={"effort": "low", "summary": "auto"}
            )
            question = f"think about the weather in Tokyo {tag}"
            if not streamed:
                return asked, await agent.run(question)
            stream = agent.run(question, stream=True)
            async for _ in stream:
                pass
            return asked, await stream.get_final_response()

    asked, result = asyncio.run(run())

    assert asked == ["Tokyo"]
    assert result.text.endswith("The tools say: sunny in Tokyo")
    assert len(target.sent(tag)) == 2
