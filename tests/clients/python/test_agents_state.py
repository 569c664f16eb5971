"""The OpenAI Agents SDK with state that the server manages: chains, conversations, sessions, compaction."""

import asyncio
import json

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from upstream_history import upstream_history
from scripted.model import SUMMARY
from stores import STORES

pytestmark = [
    pytest.mark.parametrize("store", STORES),
    pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"]),
]
set_tracing_disabled(True)

THINKING = ModelSettings(reasoning={"effort": "low", "summary": "auto"})


class Talk:
    """An agent with a tool, a client that remembers what it sent, and runs that are streamed or not."""

    def __init__(self, target, streamed: bool, settings: ModelSettings) -> None:
        self.sent: list[dict] = []
        self.streamed = streamed
        hooks = {"request": [self._remember]}
        self.client = AsyncOpenAI(
            base_url=target.base_url,
            api_key=target.key,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(event_hooks=hooks),
        )

        @function_tool
        def get_weather(city: str) -> str:
            """The weather in a city."""
            return f"sunny in {city}"

        self.agent = Agent(
            name="Forecaster",
            instructions="Use the tools.",
            model=OpenAIResponsesModel(model=target.model, openai_client=self.client),
            model_settings=settings,
            tools=[get_weather],
        )

    async def run(self, text: str, **settings):
        if not self.streamed:
            return await Runner.run(self.agent, text, **settings)
        result = Runner.run_streamed(self.agent, text, **settings)
        async for _ in result.stream_events():
            pass
        return result

    async def _remember(self, request) -> None:
        if request.method == "POST" and request.url.path == "/v1/responses":
            self.sent.append(json.loads(request.content))


def talk(target, streamed: bool, scene, settings: ModelSettings | None = None):
    """Plays a scene with an agent; returns what it returned and what the client sent."""

    async def play():
        stage = Talk(target, streamed, settings or ModelSettings())
        async with stage.client:
            return await scene(stage), stage.sent

    return asyncio.run(play())


def kinds_of(body: dict) -> list[str]:
    items = body["input"]
    return ["message"] if isinstance(items, str) else [item.get("type", "message") for item in items]


def story(tag: str) -> list[tuple[str, str]]:
    """What the model is told in the second turn of every scene here."""
    return [
        ("system", "Use the tools."),
        ("user", f"think about the weather in Oslo {tag}"),
        ("call", 'get_weather({"city": "Oslo"})'),
        ("result", "sunny in Oslo"),
        ("assistant", "The tools say: sunny in Oslo"),
        ("user", f"thanks {tag}"),
    ]


def test_a_chain_of_responses_is_gone_on_with(target, tag, streamed):
    async def scene(stage: Talk):
        first = await stage.run(f"think about the weather in Oslo {tag}", auto_previous_response_id=True)
        second = await stage.run(f"thanks {tag}", previous_response_id=first.last_response_id)
        return first, second

    (first, second), sent = talk(target, streamed, scene, THINKING)

    assert first.final_output == "The tools say: sunny in Oslo"
    assert second.final_output == f"You said: thanks {tag} ☕"
    # Each request has only what is new.
    assert [kinds_of(body) for body in sent] == [["message"], ["function_call_output"], ["message"]]
    answers = [response.response_id for response in (*first.raw_responses, *second.raw_responses)]
    assert [body.get("previous_response_id") for body in sent] == [None, answers[0], answers[1]]
    assert target.upstream_history(f"thanks {tag}") == story(tag)


def test_a_conversation_is_gone_on_with(target, tag, streamed):
    async def scene(stage: Talk):
        conversation = await stage.client.conversations.create()
        first = await stage.run(f"think about the weather in Oslo {tag}", conversation_id=conversation.id)
        second = await stage.run(f"thanks {tag}", conversation_id=conversation.id)
        items = [item async for item in stage.client.conversations.items.list(conversation.id, order="asc")]
        return first, second, [item.type for item in items], conversation.id

    (first, second, kinds, conversation_id), sent = talk(target, streamed, scene, THINKING)

    assert first.final_output == "The tools say: sunny in Oslo"
    assert second.final_output == f"You said: thanks {tag} ☕"
    assert [kinds_of(body) for body in sent] == [["message"], ["function_call_output"], ["message"]]
    assert [body["conversation"] for body in sent] == [conversation_id] * 3
    assert target.upstream_history(f"thanks {tag}") == story(tag)
    loop = ["message", "reasoning", "function_call", "function_call_output", "reasoning", "message"]
    assert kinds == [*loop, "message", "message"]


def test_a_session_keeps_its_items_in_a_conversation(target, tag, streamed):
    async def scene(stage: Talk):
        session = OpenAIConversationsSession(openai_client=stage.client)
        first = await stage.run(f"think about the weather in Oslo {tag}", session=session)
        # Another process continues it later, with nothing but its id.
        other = OpenAIConversationsSession(conversation_id=session.session_id, openai_client=stage.client)
        second = await stage.run(f"thanks {tag}", session=other)
        items = await session.get_items()
        popped = await session.pop_item()
        left = await session.get_items(limit=3)
        conversation_id = session.session_id
        await session.clear_session()
        return first, second, items, popped, left, conversation_id

    (first, second, items, popped, left, _), sent = talk(target, streamed, scene, THINKING)

    assert first.final_output == "The tools say: sunny in Oslo"
    assert second.final_output == f"You said: thanks {tag} ☕"
    assert target.upstream_history(f"thanks {tag}") == story(tag)
    loop = ["message", "reasoning", "function_call", "function_call_output", "reasoning", "message"]
    assert [item["type"] for item in items] == [*loop, "message", "message"]
    assert items[-1]["content"][0]["text"] == second.final_output
    assert popped == items[-1]
    assert left == items[-4:-1]
    # It sends its history in full: the conversation is where it reads it from.
    assert [len(body["input"]) for body in sent] == [1, 4, 7]


def test_many_items_are_added_to_a_session(target, tag, streamed):
    async def scene(stage: Talk):
        session = OpenAIConversationsSession(openai_client=stage.client)
        await session.add_items([{"role": "user", "content": f"item {number} {tag}"} for number in range(45)])
        return await session.get_items()

    items, _ = talk(target, streamed, scene)

    assert [item["content"][0]["text"] for item in items] == [f"item {number} {tag}" for number in range(45)]


@pytest.mark.parametrize("mode", ["input", "previous_response_id"])
def test_a_session_is_compacted_when_it_grows(target, tag, streamed, mode):
    async def scene(stage: Talk):
        session = OpenAIResponsesCompactionSession(
            tag,
            SQLiteSession(tag),
            client=stage.client,
            # It takes only names of OpenAI's models.
            model=f"gpt-5.5-{target.kind}",
            compaction_mode=mode,
            should_trigger_compaction=lambda state: len(state["session_items"]) >= 4,
        )
        await stage.run(f"first {tag}", session=session)
        before = await session.get_items()
        await stage.run(f"second {tag}", session=session)
        compacted = await session.get_items()
        third = await stage.run(f"third {tag}", session=session)
        return before, compacted, third

    (before, compacted, third), _ = talk(target, streamed, scene)

    assert len(before) == 2
    assert [item.get("type", "message") for item in compacted] == ["message", "message", "compaction"]
    assert third.final_output.endswith(f"third {tag} ☕")
    told = upstream_history(target.sent(f"third {tag}")[0])
    assert any(SUMMARY in what for _, what in told)
    assert [what for _, what in told if SUMMARY not in what] == [
        "Use the tools.",
        f"first {tag}",
        f"second {tag}",
        f"third {tag}",
    ]
