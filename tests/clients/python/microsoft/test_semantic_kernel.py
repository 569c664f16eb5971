"""Semantic Kernel: its loop calls a function and goes on, with the response stored and with its own history.

With a stored response it sends the question once more between a call and its output.
"""

import asyncio
from typing import Annotated

import pytest
from openai import AsyncOpenAI
from semantic_kernel.agents import OpenAIResponsesAgent
from semantic_kernel.functions import kernel_function


class Weather:
    def __init__(self) -> None:
        self.asked: list[str] = []

    @kernel_function(description="The weather in a city.")
    def get_weather(self, city: Annotated[str, "The city."]) -> str:
        self.asked.append(city)
        return f"sunny in {city}"


def agent_with(target, client: AsyncOpenAI, weather: Weather, stored: bool) -> OpenAIResponsesAgent:
    return OpenAIResponsesAgent(
        ai_model_id=target.model,
        client=client,
        name="Forecaster",
        instructions="Use the tools.",
        plugins=[weather],
        store_enabled=stored,
    )


@pytest.mark.parametrize("question", ["weather in Paris and Rome", "say so first, weather in Paris and Rome"])
@pytest.mark.parametrize("stored", [True, False])
def test_tool_loop_ends_with_the_answer(target, tag, stored, question):
    # right A1
    async def run():
        weather = Weather()
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            agent = agent_with(target, client, weather, stored)
            response = await agent.get_response(messages=f"{question} {tag}")
        return weather.asked, response

    asked, response = asyncio.run(run())

    assert sorted(asked) == ["Paris", "Rome"], "every call ran once"
    assert str(response) == "The tools say: sunny in Paris; sunny in Rome"
    sent = target.sent(tag)
    assert len(sent) == 2
    assert "[Tool history]" not in str(sent[-1]), "nothing is torn apart"


@pytest.mark.parametrize("stored", [True, False])
def test_streamed_tool_loop_ends_with_the_answer(target, tag, stored):
    # right A1
    async def run():
        weather, text = Weather(), []
        async with AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0) as client:
            agent = agent_with(target, client, weather, stored)
            async for piece in agent.invoke_stream(messages=f"weather in Oslo {tag}"):
                text.append(str(piece))
        return weather.asked, "".join(text)

    asked, text = asyncio.run(run())

    assert asked == ["Oslo"]
    assert text.endswith("The tools say: sunny in Oslo")
    assert len(target.sent(tag)) == 2
