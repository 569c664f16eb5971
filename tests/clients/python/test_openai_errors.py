"""The official Python client: typed errors, models, request ids, and callers that leave."""

import http.client
import json
import select
import socket
import time
from urllib.parse import urlsplit

import openai
import pytest
from harness import CLIENT_KEY
from openai import OpenAI
from scripted.model import RETRY_AFTER_SECONDS

STREAMED = pytest.mark.parametrize("stream", [False, True])


def test_missing_model_names_the_parameter(client, target):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(input="hello")

    error = caught.value
    assert (error.param, error.code, error.type) == ("model", "missing_required_parameter", "invalid_request_error")


def test_missing_input_names_the_parameter(client, target):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=target.model)

    assert (caught.value.param, caught.value.code) == ("input", "missing_required_parameter")


def test_wrong_type_deep_inside_names_its_path(client, target):
    content = [{"type": "input_text", "text": 5}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=target.model, input=[{"role": "user", "content": content}])

    assert caught.value.param == "input[0].content[0].text"


def test_wrong_key_is_an_authentication_error(target):
    for key in ("am_wrong_key", "Bearer"):
        with OpenAI(base_url=target.base_url, api_key=key, max_retries=0) as stranger:
            with pytest.raises(openai.AuthenticationError) as caught:
                stranger.responses.create(model=target.model, input="hello")
            assert caught.value.code == "invalid_api_key"
            with pytest.raises(openai.AuthenticationError):
                stranger.models.list()


@pytest.mark.parametrize(
    ("line", "key"),
    [("POST /v1/responses", "am_wrong_key"), ("POST /v1/nothing", CLIENT_KEY), ("POST /v1/models", CLIENT_KEY)],
)
def test_refusal_before_the_body_closes_the_connection_only_when_it_says_so(gateway, line, key):
    # Clients send head and body apart and keep connections: one that closes unannounced breaks their next request.
    url, body = urlsplit(gateway.url), b'{"model":"m-chat","input":"hello"}'
    head = (
        f"{line} HTTP/1.1\r\nhost: {url.netloc}\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(head.encode())
        # A server may also want to see the body before it answers.
        answered_early = bool(select.select([connection], [], [], 0.5)[0])
        first = read_answer(connection) if answered_early else None
        if first and "connection: close" in first.lower():
            return
        connection.sendall(body)
        first = first or read_answer(connection)
        assert first.startswith("HTTP/1.1 4")
        if "connection: close" not in first.lower():
            connection.sendall(f"GET /healthz HTTP/1.1\r\nhost: {url.netloc}\r\n\r\n".encode())
            assert read_answer(connection).startswith("HTTP/1.1 200 OK")


def read_answer(connection: socket.socket) -> str:
    """The head of the next answer; its body, which is short, is read and left out."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return f"HTTP/1.1 {answer.status} {answer.reason}\r\n{answer.headers}"


@STREAMED
def test_unknown_model_is_not_found(client, target, stream):
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="no-such-model", input="hello", stream=stream)

    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


@STREAMED
def test_rate_limit_of_the_upstream_keeps_its_retry_after(client, target, tag, stream):
    with pytest.raises(openai.RateLimitError) as caught:
        client.responses.create(model=target.model, input=f"please fail with 429 {tag}", stream=stream)

    assert caught.value.response.headers["retry-after"] == str(RETRY_AFTER_SECONDS)
    assert caught.value.code == "rate_limit_exceeded"
    assert len(target.sent(tag)) == 1


@STREAMED
def test_too_long_a_context_is_a_bad_request_with_its_code(client, target, tag, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=target.model, input=f"please fail with 400 {tag}", stream=stream)

    assert caught.value.code == "context_length_exceeded"


@STREAMED
def test_fault_of_the_upstream_is_a_server_error(client, target, tag, stream):
    with pytest.raises(openai.InternalServerError) as caught:
        client.responses.create(model=target.model, input=f"please fail with 500 {tag}", stream=stream)

    assert caught.value.status_code >= 500
    assert {"message", "type", "param", "code"} <= caught.value.response.json()["error"].keys()


@pytest.mark.parametrize("script", ["cut mid-stream", "overload mid-stream"])
def test_broken_stream_raises_after_what_had_arrived(client, target, tag, script):
    kinds, words = [], []
    with pytest.raises(openai.APIError) as caught:
        for event in client.responses.create(model=target.model, input=f"{script} {tag}", stream=True):
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                words.append(event.delta)

    assert "".join(words) == "These words arrive and"
    assert "response.completed" not in kinds
    assert caught.value.message


@pytest.mark.parametrize("script", ["cut mid-stream", "overload mid-stream"])
def test_broken_stream_ends_with_error_failed_and_done(client, target, tag, script):
    with client.responses.with_streaming_response.create(
        model=target.model, input=f"{script} {tag}", stream=True
    ) as response:
        frames = response.read().decode().removesuffix("\n\n").split("\n\n")

    assert frames[-1] == "data: [DONE]"
    error, failed = (json.loads(frame.split("data: ", 1)[1]) for frame in frames[-3:-1])
    assert (error["type"], failed["type"]) == ("error", "response.failed")
    # Both shapes at once: the nested one of the specification and the flat one of the official clients.
    assert error["message"] == error["error"]["message"]
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["message"]
    assert failed["sequence_number"] == error["sequence_number"] + 1 == len(frames) - 2


@pytest.mark.parametrize("script", ["cut mid-stream", "overload mid-stream"])
def test_broken_answer_without_a_stream_is_a_server_error(client, target, tag, script):
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model=target.model, input=f"{script} {tag}")


def test_caller_that_leaves_cancels_the_upstream(client, target, tag):
    stream = client.responses.create(model=target.model, input=f"talk slowly {tag}", stream=True)
    seen = 0
    for event in stream:
        seen += event.type == "response.output_text.delta"
        if seen == 3:
            break
    stream.close()
    left_at = time.monotonic()

    (record,) = target.records(tag)
    while record.outcome == "open" and time.monotonic() < left_at + 5:
        time.sleep(0.02)
    assert record.outcome == "left"
    assert record.frames < 300


def test_caller_that_gives_up_on_a_whole_answer_cancels_the_upstream(client, target, tag):
    hasty = client.with_options(timeout=0.3)
    # The upstream answers a whole request only after the time it would take to say it.
    with pytest.raises(openai.APITimeoutError):
        hasty.responses.create(model=target.model, input=f"talk slowly {tag}")

    (record,) = target.records(tag)
    deadline = time.monotonic() + 5
    while record.outcome == "open" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert record.outcome == "left"


def test_models_are_listed_and_described(client, target):
    listed = {model.id for model in client.models.list()}
    described = client.models.retrieve(target.model)

    assert {"m-chat", "m-resp", "m-anthropic"} <= listed
    assert (described.id, described.object) == (target.model, "model")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_request_id_is_given_back_or_made(client, target, tag):
    made = client.responses.with_raw_response.create(model=target.model, input=f"hello {tag}")
    echoed = client.responses.with_raw_response.create(
        model=target.model, input=f"hello {tag}", extra_headers={"x-request-id": tag}
    )

    assert made.headers["x-request-id"]
    assert made.parse()._request_id == made.headers["x-request-id"]
    assert echoed.headers["x-request-id"] == tag
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="no-such-model", input="hello", extra_headers={"x-request-id": tag})
    assert caught.value.request_id == tag
