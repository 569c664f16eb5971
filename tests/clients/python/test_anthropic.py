"""The official Python client of the Messages API: messages, streams, tools, thinking, counts, models and errors."""

import anthropic
import pytest
from anthropic import Anthropic, beta_tool
from harness import CLIENT_KEY
from scripted.model import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, RETRY_AFTER_SECONDS, THOUGHT

WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def claude(target):
    url = target.base_url.removesuffix("/v1")
    with Anthropic(base_url=url, api_key=target.key, max_retries=0, timeout=30) as claude:
        yield claude


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def test_create_answers_with_text_and_usage(claude, target, tag):
    message = claude.messages.create(model=target.model, max_tokens=500, system="Be kind.", messages=user(f"hello {tag}"))

    (block,) = message.content
    assert (block.type, block.text) == ("text", f"You said: hello {tag} ☕")
    assert (message.stop_reason, message.model, message.role) == ("end_turn", target.model, "assistant")
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == INPUT_TOKENS
    assert (usage.cache_read_input_tokens, usage.output_tokens) == (CACHED_TOKENS, OUTPUT_TOKENS)
    assert message._request_id.startswith("req_")
    (body,) = target.sent(tag)
    assert "Be kind." in str(body)


def test_stream_adds_up_to_the_message(claude, target, tag):
    prompt = user(f"hello {tag}")
    with claude.messages.stream(model=target.model, max_tokens=500, messages=prompt) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()

    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert message.content[0].text == f"You said: hello {tag} ☕"
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == OUTPUT_TOKENS


def test_stream_begins_with_the_tokens_of_the_prompt(claude, target, tag):
    prompt = user("lorem ipsum dolor " * 200 + tag)
    few = claude.messages.count_tokens(model=target.model, messages=user("hello")).input_tokens
    many = claude.messages.count_tokens(model=target.model, messages=prompt).input_tokens
    with claude.messages.create(model=target.model, max_tokens=500, messages=prompt, stream=True) as stream:
        first, *_ = list(stream)

    assert first.type == "message_start"
    assert 0 < few < many
    assert first.message.usage.input_tokens > 0


def test_tool_runner_runs_tools_until_the_answer(claude, target, tag):
    asked = []

    @beta_tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: The name of the city.
        """
        asked.append(city)
        return f"sunny in {city}"

    runner = claude.beta.messages.tool_runner(
        model=target.model, max_tokens=500, tools=[get_weather], messages=user(f"weather in Paris and Rome {tag}")
    )
    message = runner.until_done()

    assert asked == ["Paris", "Rome"]
    assert message.content[-1].text == "The tools say: sunny in Paris; sunny in Rome"
    assert len(target.records(tag)) == 2, "a thread is refused before the model is called"


def test_streamed_calls_have_whole_inputs(claude, target, tag):
    prompt = user(f"weather in Oslo, say so first {tag}")
    with claude.messages.stream(model=target.model, max_tokens=500, tools=[WEATHER], messages=prompt) as stream:
        message = stream.get_final_message()

    text, call = message.content
    assert (text.text, call.name, call.input) == ("Let me look that up.", "get_weather", {"city": "Oslo"})
    assert message.stop_reason == "tool_use"


def test_thinking_is_signed_and_goes_back(claude, target, tag):
    thinking = {"type": "enabled", "budget_tokens": 2048}
    settings = {"model": target.model, "max_tokens": 8000, "tools": [WEATHER], "thinking": thinking}
    prompt = user(f"think, then tell the weather in Oslo {tag}")
    first = claude.messages.create(messages=prompt, **settings)
    thought, call = first.content
    assert (thought.type, thought.thinking, call.type) == ("thinking", THOUGHT, "tool_use")
    assert thought.signature.startswith("ams")

    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]
    history = [*prompt, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = claude.messages.create(messages=history, **settings)

    assert second.content[-1].text == "The tools say: sunny"
    *_, body = target.sent(tag)
    assert THOUGHT in str(body), "the model got its reasoning back"


def test_an_image_reaches_the_model(claude, target, tag):
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": f"what is it {tag}"}, {"type": "image", "source": source}]
    message = claude.messages.create(
        model=target.model, max_tokens=500, messages=[{"role": "user", "content": content}]
    )

    assert message.content[0].text.startswith("I see image/png of ")


def test_structured_output_follows_its_schema(claude, target, tag):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    message = claude.messages.create(
        model=target.model,
        max_tokens=500,
        messages=user(f"answer in JSON {tag}"),
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )

    assert '"city"' in message.content[0].text


def test_models_are_listed_and_found(claude, target):
    listed = [model.id for model in claude.models.list(limit=5)]

    assert target.model in [*listed, *(model.id for model in claude.models.list())]
    model = claude.models.retrieve("m-chat")
    assert (model.id, model.type, model.created_at.year >= 2024) == ("m-chat", "model", True)


def test_errors_have_their_types(claude, target, tag):
    settings = {"model": target.model, "max_tokens": 500}
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(messages=[{"role": "user", "content": [{"type": "text"}]}], **settings)
    error = caught.value.body["error"]
    assert error == {"type": "invalid_request_error", "message": "messages.0.content.0.text: Field required"}
    assert caught.value.request_id.startswith("req_")
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        claude.messages.create(messages=user(f"fail with 400 {tag}"), **settings)
    with pytest.raises(anthropic.RateLimitError) as limited:
        claude.messages.create(messages=user(f"fail with 429 {tag}"), **settings)
    assert limited.value.response.headers["retry-after"] == str(RETRY_AFTER_SECONDS)
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="absent", max_tokens=5, messages=user("hello"))
    with pytest.raises(anthropic.InternalServerError):
        claude.messages.create(messages=user(f"fail with 500 {tag}"), **settings)
    with pytest.raises(anthropic.AuthenticationError):
        claude.with_options(api_key="am_wrong").messages.create(messages=user("hello"), **settings)


def test_a_bearer_token_opens_the_door_too(target, tag):
    url = target.base_url.removesuffix("/v1")
    with Anthropic(base_url=url, auth_token=CLIENT_KEY, max_retries=0) as claude:
        message = claude.messages.create(model=target.model, max_tokens=50, messages=user(f"hello {tag}"))
    assert message.content[0].text == f"You said: hello {tag} ☕"


def test_a_stream_that_breaks_raises(claude, target, tag):
    with pytest.raises(anthropic.APIStatusError) as caught:
        prompt = user(f"overload mid-stream {tag}")
        with claude.messages.stream(model=target.model, max_tokens=500, messages=prompt) as stream:
            stream.get_final_message()
    assert caught.value.body["error"]["type"] in ("overloaded_error", "rate_limit_error", "api_error")
