"""The official Python client and turns that go on without it: polling, cancelling, streams that are taken up again."""

import time

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from scripted.model import WORDS
from stores import STORES

pytestmark = pytest.mark.parametrize("store", STORES)

TIME = " ".join(f"word{number}" for number in range(WORDS))
ENDED = ("completed", "incomplete", "failed", "cancelled")


def wait_for(client: OpenAI, response_id: str):
    """Polls until the response has ended, and gives it with the states that it was seen in."""
    states, until = [], time.monotonic() + 30
    while time.monotonic() < until:
        response = client.responses.retrieve(response_id)
        if states[-1:] != [response.status]:
            states.append(response.status)
        if response.status in ENDED:
            return response, states
        time.sleep(0.05)
    raise AssertionError(f"{response_id} did not end: {states}")


def is_left(target, tag: str) -> bool:
    """Whether the upstream saw its caller leave, soon."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        (record,) = target.records(tag)
        if record.outcome != "open":
            return record.outcome == "left"
        time.sleep(0.05)
    return False


def test_a_background_response_is_polled_until_it_is_complete(client, target, tag):
    created = client.responses.create(
        model=target.model, input=f"take your time {tag}", background=True, metadata={"run": tag}
    )
    assert (created.status, created.background, created.output) == ("queued", True, [])

    response, states = wait_for(client, created.id)

    assert response.output_text == TIME
    assert (response.background, response.metadata, response.error) == (True, {"run": tag}, None)
    assert response.usage.total_tokens == 59
    assert states[-2:] == ["in_progress", "completed"]
    assert len(target.records(tag)) == 1
    # It is a response like any other: it can be continued.
    after = client.responses.create(model=target.model, input=f"thanks {tag}", previous_response_id=created.id)
    assert after.output_text == f"You said: thanks {tag} ☕"
    assert target.upstream_history(f"thanks {tag}")[:2] == [("user", f"take your time {tag}"), ("assistant", TIME)]


def test_many_background_responses_end_each_with_its_own_answer(client, target, tag):
    created = [
        client.responses.create(model=target.model, input=f"hello {number} {tag}", background=True)
        for number in range(12)
    ]
    texts = [wait_for(client, response.id)[0].output_text for response in created]

    assert texts == [f"You said: hello {number} {tag} ☕" for number in range(12)]
    assert len(target.records(tag)) == 12


def test_cancelling_stops_the_upstream_and_can_be_repeated(client, target, tag):
    created = client.responses.create(model=target.model, input=f"talk slowly {tag}", background=True)
    until = time.monotonic() + 10
    while not target.records(tag) and time.monotonic() < until:
        time.sleep(0.02)

    cancelled = client.responses.cancel(created.id)

    assert (cancelled.id, cancelled.status) == (created.id, "cancelled")
    assert is_left(target, tag)
    assert client.responses.cancel(created.id).status == "cancelled"
    assert client.responses.retrieve(created.id).status == "cancelled"


def test_only_background_responses_can_be_cancelled(client, target, tag):
    response = client.responses.create(model=target.model, input=f"hello {tag}")

    with pytest.raises(BadRequestError):
        client.responses.cancel(response.id)
    with pytest.raises(NotFoundError):
        client.responses.cancel("resp_unknown")
    assert client.responses.retrieve(response.id) == response


def test_cancelling_what_is_complete_leaves_it_complete(client, target, tag):
    created = client.responses.create(model=target.model, input=f"hello {tag}", background=True)
    response, _ = wait_for(client, created.id)

    assert client.responses.cancel(created.id) == response


def test_a_failure_in_the_background_is_told_by_the_response(client, target, tag):
    for script, code in [("fail with 429", "rate_limit_exceeded"), ("cut mid-stream", "server_error")]:
        created = client.responses.create(model=target.model, input=f"{script} {tag}", background=True)
        response, _ = wait_for(client, created.id)
        assert (response.status, response.error.code) == ("failed", code)
        assert response.error.message
        with pytest.raises(BadRequestError):
            client.responses.create(model=target.model, input="on", previous_response_id=created.id)


def test_what_is_wrong_with_a_background_request_is_told_at_once(client, target, tag):
    with pytest.raises(NotFoundError):
        client.responses.create(model="unknown", input=f"hello {tag}", background=True)
    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(model=target.model, input=f"hello {tag}", background=True, store=False)
    assert refusal.value.param in ("store", "background")
    assert target.records(tag) == []


def test_a_background_stream_is_taken_up_again_without_loss_or_repetition(client, target, tag):
    seen = []
    with client.responses.create(
        model=target.model, input=f"take your time {tag}", background=True, stream=True
    ) as stream:
        for event in stream:
            seen.append(event)
            if sum(event.type == "response.output_text.delta" for event in seen) == 5:
                break
    response_id = seen[0].response.id

    # Once more it is left in the middle, by another connection, and then followed to the end.
    with client.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number) as stream:
        for event in stream:
            seen.append(event)
            if sum(event.type == "response.output_text.delta" for event in seen) == 12:
                break
    assert client.responses.retrieve(response_id).status == "in_progress"
    seen += client.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number)

    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.type for event in seen[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == TIME
    assert (seen[-1].type, seen[-1].response.output_text) == ("response.completed", TIME)
    assert len(target.records(tag)) == 1
    assert list(client.responses.retrieve(response_id, stream=True)) == seen
    assert client.responses.retrieve(response_id) == seen[-1].response


def test_the_stream_helper_follows_a_response_that_runs(client, target, tag):
    created = client.responses.create(
        model=target.model, input=f"take your time {tag}", background=True, stream=True
    )
    with created:
        first = next(iter(created))

    with client.responses.stream(response_id=first.response.id) as stream:
        final = stream.get_final_response()
    deltas = []
    with client.responses.stream(response_id=first.response.id, starting_after=10) as stream:
        deltas = [event.sequence_number for event in stream if event.type == "response.output_text.delta"]

    assert final.output_text == TIME
    assert deltas[0] == 11


def test_a_stored_stream_can_be_read_again(client, target, tag):
    told = list(client.responses.create(model=target.model, input=f"hello {tag}", stream=True))
    response_id = told[0].response.id

    assert list(client.responses.retrieve(response_id, stream=True)) == told
    for after in (0, 3, len(told) - 2):
        assert list(client.responses.retrieve(response_id, stream=True, starting_after=after)) == told[after + 1 :]
    # Behind the end nothing comes.
    assert list(client.responses.retrieve(response_id, stream=True, starting_after=len(told) - 1)) == []
    whole = client.responses.create(model=target.model, input=f"hello {tag}")
    with pytest.raises(BadRequestError) as refusal:
        client.responses.retrieve(whole.id, stream=True)
    assert refusal.value.param == "stream"


def test_a_cancelled_stream_tells_that_it_ended(client, target, tag):
    with client.responses.create(
        model=target.model, input=f"talk slowly {tag}", background=True, stream=True
    ) as stream:
        events = []
        for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta" and len(events) < 12:
                assert client.responses.cancel(events[0].response.id).status == "cancelled"

    assert is_left(target, tag)
    kept = client.responses.retrieve(events[0].response.id)
    assert kept.status == "cancelled"
    # The last event is one that every client knows, and later readers get the same events.
    assert (events[-1].type, events[-1].response.status) == ("response.incomplete", "cancelled")
    assert list(client.responses.retrieve(kept.id, stream=True)) == events


def test_deleting_a_running_response_stops_it(client, target, tag):
    created = client.responses.create(model=target.model, input=f"talk slowly {tag}", background=True)
    until = time.monotonic() + 10
    while not target.records(tag) and time.monotonic() < until:
        time.sleep(0.02)

    client.responses.delete(created.id)

    assert is_left(target, tag)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(created.id)
