"""The official Python client: `file_search` over what was imported into the gateway, with citations to read."""

import pytest
from openai import BadRequestError
from stores import STORES

# The client warns of items whose fields have not the types that it knows.
pytestmark = [
    pytest.mark.filterwarnings("error::UserWarning"),
    pytest.mark.parametrize("store", STORES),
]

RESULTS = "file_search_call.results"
TEXT = "It is of oak, and not of tin [kb:0-0]."


@pytest.fixture
def ship(gateway, tag, tmp_path) -> str:
    """A collection about a ship."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "keel.md").write_text("# The keel\n\nThe keel is of oak.\n")
    collection = f"ship-{tag}"
    gateway.run("knowledge", "import", tmp_path / "docs", "--collection", collection, "--company-id", "1")
    return collection


def search(collection: str, **extra) -> dict:
    return {"type": "file_search", "vector_store_ids": [collection], **extra}


def check(response) -> None:
    call, message = response.output
    assert (call.type, call.status, call.queries) == ("file_search_call", "completed", ["keel"])
    assert call.id.startswith("fs_")
    (part,) = message.content
    assert part.text == TEXT
    (citation,) = part.annotations
    assert (citation.type, citation.filename, citation.index) == ("file_citation", "keel.md", len("It is of oak"))


def test_an_answer_cites_the_file_that_it_relies_on(client, target, tag, ship):
    response = client.responses.create(model=target.model, input=f"look it up {tag}", tools=[search(ship)])

    check(response)
    assert response.output[0].results is None
    assert [tool.type for tool in response.tools] == ["file_search"]
    again = client.responses.retrieve(response.id, include=[RESULTS])
    (result,) = again.output[0].results
    assert (result.filename, result.text) == ("keel.md", "# The keel\n\nThe keel is of oak.")
    assert 0 < result.score < 1
    assert result.attributes["collection"] == ship
    assert result.file_id == response.output[1].content[0].annotations[0].file_id
    # The next turn knows what was found.
    client.responses.create(model=target.model, input=f"thanks {tag}", previous_response_id=response.id)
    told = dict(target.upstream_history(f"thanks {tag}"))
    assert "The keel is of oak." in told["result"]


def test_a_stream_tells_the_search_and_each_citation(client, target, tag, ship):
    request = {"model": target.model, "input": f"look it up {tag}", "tools": [search(ship)], "include": [RESULTS]}
    events = list(client.responses.create(stream=True, **request))

    steps = [event.type for event in events if ".file_search_call." in event.type]
    assert steps == [f"response.file_search_call.{step}" for step in ("in_progress", "searching", "completed")]
    (added,) = [event for event in events if event.type == "response.output_text.annotation.added"]
    assert added.annotation.type == "file_citation"
    check(events[-1].response)
    assert events[-1].response.output[0].results[0].filename == "keel.md"
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == TEXT
    with client.responses.stream(**request) as stream:
        check(stream.get_final_response())


def test_filters_are_honoured_and_mistakes_have_their_places(client, target, tag, ship):
    def ask(tool):
        response = client.responses.create(
            model=target.model, input=f"look it up {tag}", tools=[tool], include=[RESULTS], store=False
        )
        return response.output[0].results

    markdown = {"type": "eq", "key": "language", "value": "markdown"}
    rust = {"type": "eq", "key": "language", "value": "rust"}
    assert len(ask(search(ship, filters={"type": "and", "filters": [markdown]}, max_num_results=3))) == 1
    assert ask(search(ship, filters=rust)) == []
    for tool, param in [
        (search("nowhere"), "tools[0].vector_store_ids"),
        (search(ship, filters={"type": "gt", "key": "year", "value": 1}), "tools[0].filters.type"),
    ]:
        with pytest.raises(BadRequestError) as wrong:
            ask(tool)
        assert wrong.value.param == param
