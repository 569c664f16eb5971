"""The official Python client and long conversations: what was compacted goes on over any wire."""

import pytest
from harness import KINDS
from openai import BadRequestError
from upstream_history import upstream_history
from scripted.model import SUMMARY
from stores import STORES

pytestmark = pytest.mark.parametrize("store", STORES)


def dumped(compacted) -> list[dict]:
    """The output as a caller sends it back."""
    return [item.to_dict(warnings=False) for item in compacted.output]


def history_of(tag: str) -> list[dict]:
    return [
        {"role": "developer", "content": f"Be brief {tag}."},
        {"role": "user", "content": f"weather in Rome {tag}"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": f"rain {tag}"},
        {"role": "assistant", "content": f"It rains {tag}."},
        {"role": "user", "content": f"thanks {tag}"},
    ]


def test_what_was_compacted_goes_on_over_every_wire(client, target, upstreams, tag):
    compacted = client.responses.compact(model=target.model, input=history_of(tag))

    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "message", "message", "compaction"]
    assert compacted.usage.total_tokens == 59
    (asked,) = target.sent(tag)
    # Anthropic wants the tools of a history declared; nothing is offered all the same.
    assert "tools" not in asked or asked["tool_choice"] == {"type": "none"}
    assert ("result", f"rain {tag}") in target.upstream_history(tag)
    sealed = compacted.output[-1].encrypted_content
    assert SUMMARY not in sealed

    for kind in KINDS:
        text = f"go on {kind} {tag}"
        again = client.responses.create(
            model=f"m-{kind}", input=[*dumped(compacted), {"role": "user", "content": text}]
        )
        assert again.output_text.endswith(f"{text} ☕")
        (record,) = upstreams.recorder.containing(text)
        told = upstream_history(record.body)
        assert sealed not in str(record.body)
        assert [what for _, what in told if SUMMARY in what] != []
        assert [pair for pair in told if SUMMARY not in pair[1]] == [
            ("system", f"Be brief {tag}."),
            ("user", f"weather in Rome {tag}"),
            ("user", f"thanks {tag}"),
            ("user", text),
        ]
        # It stays with whatever is built on it.
        later = client.responses.create(
            model=target.model, input=f"later {kind} {tag}", previous_response_id=again.id
        )
        assert later.output_text.endswith(f"later {kind} {tag} ☕")
        assert any(SUMMARY in what for _, what in target.upstream_history(f"later {kind} {tag}"))


def test_a_stored_chain_is_compacted_where_it_is(client, target, tag):
    first = client.responses.create(model=target.model, input=f"first {tag}")
    second = client.responses.create(model=target.model, input=f"second {tag}", previous_response_id=first.id)

    compacted = client.responses.compact(model=target.model, previous_response_id=second.id)

    kept = [item.content[0].text for item in compacted.output[:-1]]
    assert kept == [f"first {tag}", f"second {tag}"]
    assert compacted.output[-1].type == "compaction"
    third = client.responses.create(
        model=target.model, input=[*dumped(compacted), {"role": "user", "content": f"third {tag}"}]
    )
    assert third.output_text.endswith(f"third {tag} ☕")
    told = target.upstream_history(f"third {tag}")
    assert ("assistant", first.output_text) not in told
    assert [who for who, _ in told] == ["user"] * 4


def test_compacting_again_keeps_the_earlier_summary(client, target, tag):
    once = client.responses.compact(model=target.model, input=f"first {tag}")
    again = client.responses.compact(
        model=target.model, input=[*dumped(once), {"role": "user", "content": f"second {tag}"}]
    )

    assert any(SUMMARY in what for _, what in target.upstream_history(f"second {tag}"))
    assert [item.type for item in again.output] == ["message", "message", "compaction"]


@pytest.mark.parametrize("target", ["chat"], indirect=True)
def test_a_summary_that_was_changed_is_refused(client, target, tag):
    compacted = client.responses.compact(model=target.model, input=f"hello {tag}")
    *_, item = dumped(compacted)
    sealed = item["encrypted_content"]
    middle = len(sealed) // 2
    changed = sealed[:middle] + ("A" if sealed[middle] != "A" else "B") + sealed[middle + 1 :]

    with pytest.raises(BadRequestError) as refusal:
        client.responses.create(model=target.model, input=[{**item, "encrypted_content": changed}])

    assert (refusal.value.code, refusal.value.param) == ("invalid_encrypted_content", "input[0].encrypted_content")
    with pytest.raises(BadRequestError) as refusal:
        client.responses.compact(model=target.model)
    assert refusal.value.param == "input"
