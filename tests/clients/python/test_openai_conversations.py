"""The official Python client and the Conversations API: objects, items, and responses that add to them."""

import pytest
from openai import APIError, BadRequestError, NotFoundError
from stores import STORES

pytestmark = pytest.mark.parametrize("store", STORES)

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
# Where no model has a part in it, one way through is enough.
one_wire = pytest.mark.parametrize("target", ["chat"], indirect=True)


def message(text: str, role: str = "user") -> dict:
    return {"type": "message", "role": role, "content": text}


def texts(items) -> list[str]:
    return [item.content[0].text for item in items]


@one_wire
def test_a_conversation_is_made_changed_and_deleted(client, target, tag):
    made = client.conversations.create(metadata={"topic": tag})
    assert (made.object, made.metadata) == ("conversation", {"topic": tag})
    assert client.conversations.retrieve(made.id) == made

    changed = client.conversations.update(made.id, metadata={"topic": "other", "more": "yes"})

    assert changed.metadata == {"topic": "other", "more": "yes"}
    assert (changed.id, changed.created_at) == (made.id, made.created_at)
    assert client.conversations.retrieve(made.id) == changed
    deleted = client.conversations.delete(made.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (made.id, "conversation.deleted", True)
    for attempt in (client.conversations.retrieve, client.conversations.delete, client.conversations.items.list):
        with pytest.raises(NotFoundError):
            attempt(made.id)
    with pytest.raises(NotFoundError) as missing:
        client.responses.create(model=target.model, input="hello", conversation=made.id)
    assert missing.value.code == "conversation_not_found"


@one_wire
def test_items_are_added_listed_shown_and_deleted(client, target, tag):
    made = client.conversations.create(items=[message(f"first {tag}"), message("answer", role="assistant")])
    for start in range(0, 40, 20):
        added = client.conversations.items.create(
            made.id, items=[message(f"item {start + number} {tag}") for number in range(20)]
        )
        assert texts(added.data) == [f"item {start + number} {tag}" for number in range(20)]
        assert (added.first_id, added.last_id) == (added.data[0].id, added.data[-1].id)

    items = list(client.conversations.items.list(made.id, order="asc"))
    expected = [f"first {tag}", "answer", *(f"item {number} {tag}" for number in range(40))]
    assert texts(items) == expected
    assert [item.role for item in items[:2]] == ["user", "assistant"]
    newest = list(client.conversations.items.list(made.id, limit=9))
    assert [item.id for item in newest] == [item.id for item in reversed(items)]
    page = client.conversations.items.list(made.id, order="asc", after=items[3].id, limit=2)
    assert ([item.id for item in page.data], page.has_more) == ([items[4].id, items[5].id], True)

    one = client.conversations.items.retrieve(items[5].id, conversation_id=made.id)
    assert one == items[5]
    conversation = client.conversations.items.delete(items[5].id, conversation_id=made.id)
    assert conversation.id == made.id
    with pytest.raises(NotFoundError):
        client.conversations.items.retrieve(items[5].id, conversation_id=made.id)
    left = list(client.conversations.items.list(made.id, order="asc"))
    assert [item.id for item in left] == [item.id for item in items if item != items[5]]
    with pytest.raises(BadRequestError):
        client.conversations.items.create(made.id, items=[message("too many")] * 21)


def test_responses_add_to_their_conversation(client, target, tag):
    made = client.conversations.create(items=[message(f"before {tag}")])

    first = client.responses.create(model=target.model, input=f"first {tag}", conversation=made.id)
    with client.responses.stream(
        model=target.model, input=[message(f"second {tag}")], conversation={"id": made.id}
    ) as stream:
        second = stream.get_final_response()
    client.responses.create(model=target.model, input=f"apart {tag}")

    assert first.conversation.id == second.conversation.id == made.id
    assert second.output_text == f"You said: second {tag} ☕"
    assert target.upstream_history(f"second {tag}") == [
        ("user", f"before {tag}"),
        ("user", f"first {tag}"),
        ("assistant", first.output_text),
        ("user", f"second {tag}"),
    ]
    items = list(client.conversations.items.list(made.id, order="asc"))
    assert texts(items) == [
        f"before {tag}",
        f"first {tag}",
        first.output_text,
        f"second {tag}",
        second.output_text,
    ]
    assert items[2].id == first.output[0].id
    assert client.responses.retrieve(second.id).conversation.id == made.id


def test_a_tool_loop_and_its_thoughts_live_in_a_conversation(client, target, tag):
    made = client.conversations.create()
    settings = {
        "model": target.model,
        "conversation": made.id,
        "tools": [WEATHER],
        "reasoning": {"effort": "low", "summary": "auto"},
    }
    first = client.responses.create(input=f"think about the weather in Rome {tag}", **settings)
    (call,) = [item for item in first.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": f"rain {tag}"}
    second = client.responses.create(input=[output], **settings)

    assert second.output_text == f"The tools say: rain {tag}"
    kinds = [item.type for item in client.conversations.items.list(made.id, order="asc")]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output", "reasoning", "message"]


def test_what_was_deleted_is_not_told_again(client, target, tag):
    made = client.conversations.create()
    client.responses.create(model=target.model, input=f"secret {tag}", conversation=made.id)
    for item in client.conversations.items.list(made.id):
        client.conversations.items.delete(item.id, conversation_id=made.id)

    response = client.responses.create(model=target.model, input=f"hello {tag}", conversation=made.id)

    assert response.output_text == f"You said: hello {tag} ☕"
    assert target.upstream_history(f"hello {tag}") == [("user", f"hello {tag}")]


def test_a_turn_that_failed_leaves_its_conversation_as_it_was(client, target, tag):
    made = client.conversations.create(items=[message(f"before {tag}")])

    with pytest.raises(BadRequestError):
        client.responses.create(model=target.model, input=f"fail with 400 {tag}", conversation=made.id)
    with pytest.raises(APIError):
        list(
            client.responses.create(
                model=target.model, input=f"cut mid-stream {tag}", conversation=made.id, stream=True
            )
        )

    assert texts(client.conversations.items.list(made.id)) == [f"before {tag}"]


@one_wire
def test_responses_and_their_conversation_are_deleted_apart(client, target, tag):
    made = client.conversations.create()
    first = client.responses.create(model=target.model, input=f"first {tag}", conversation=made.id)
    second = client.responses.create(model=target.model, input=f"second {tag}", conversation=made.id)

    client.responses.delete(first.id)
    assert texts(client.conversations.items.list(made.id, order="asc"))[1] == first.output_text
    client.conversations.delete(made.id)

    assert client.responses.retrieve(second.id) == second


@one_wire
def test_a_conversation_and_a_chain_exclude_each_other(client, target, tag):
    made = client.conversations.create()
    first = client.responses.create(model=target.model, input=f"hello {tag}")

    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(
            model=target.model, input=f"refused {tag}", conversation=made.id, previous_response_id=first.id
        )

    assert refusal.value.code == "mutually_exclusive_parameters"
    assert target.records(f"refused {tag}") == []
