"""The official Python client and uploaded files: kept, listed, given back, deleted, and named in what is asked."""

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError
from stores import STORES
from test_openai_text import png

pytestmark = pytest.mark.parametrize("store", STORES)

# Where no model has a part in it, one way through is enough.
one_wire = pytest.mark.parametrize("target", ["chat"], indirect=True)


@one_wire
def test_a_file_is_uploaded_shown_given_back_and_deleted(client, tag, tmp_path):
    path = tmp_path / f"käse {tag}.txt"
    path.write_bytes(b"one\r\ntwo\0\xff")

    made = client.files.create(file=path, purpose="user_data")

    assert made.id.startswith("file_AM-")
    assert (made.object, made.filename, made.purpose) == ("file", path.name, "user_data")
    assert (made.bytes, made.status, made.expires_at) == (10, "processed", None)
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == path.read_bytes()
    deleted = client.files.delete(made.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (made.id, "file", True)
    for attempt in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(NotFoundError):
            attempt(made.id)


@one_wire
def test_files_are_listed_page_by_page(client, tag):
    purpose = tag  # No other test uses this purpose.
    made = [client.files.create(file=(f"{number}.txt", b"x"), purpose=purpose).id for number in range(5)]

    assert sorted(file.id for file in client.files.list(purpose=purpose)) == sorted(made)
    pages = list(client.files.list(purpose=purpose, limit=2, order="asc"))
    assert [file.id for file in pages] == sorted(made)
    page = client.files.list(purpose=purpose, limit=2)
    assert (len(page.data), page.has_more) == (2, True)


@one_wire
def test_a_file_can_be_said_to_expire_and_mistakes_have_their_types(client, tag):
    life = {"anchor": "created_at", "seconds": 3600}
    made = client.files.create(file=("a.txt", b"x"), purpose="user_data", expires_after=life)
    assert made.expires_at == made.created_at + 3600
    with pytest.raises(BadRequestError) as short:
        client.files.create(
            file=("a.txt", b"x"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 1}
        )
    assert short.value.param == "expires_after[seconds]"
    with pytest.raises(APIStatusError) as large:
        client.files.create(file=("a.bin", bytes(33 * 1024 * 1024)), purpose="user_data")
    assert large.value.status_code == 413


def test_an_uploaded_image_reaches_every_model_in_every_turn(client, target, tag):
    image = png()
    file = client.files.create(file=("seen.png", image), purpose="vision")
    content = [
        {"type": "input_text", "text": f"what is this? {tag}"},
        {"type": "input_image", "file_id": file.id, "detail": "low"},
    ]

    response = client.responses.create(model=target.model, input=[{"role": "user", "content": content}])

    assert response.output_text == f"I see image/png of {len(image)} bytes."
    (item,) = client.responses.input_items.list(response.id).data
    assert item.content[1].file_id == file.id
    client.responses.create(model=target.model, input=f"and now? {tag}", previous_response_id=response.id)
    first, second = target.sent(tag)
    assert "file_AM-" not in str(second)
    assert str(second).count("iVBORw0KGgo") == str(first).count("iVBORw0KGgo") == 1


def test_an_uploaded_text_is_told(client, target, tag):
    file = client.files.create(file=(f"{tag}.md", f"# Notes of {tag}".encode()), purpose="user_data")
    content = [{"type": "input_file", "file_id": file.id}, {"type": "input_text", "text": f"hello {tag}"}]

    with client.responses.stream(model=target.model, input=[{"role": "user", "content": content}]) as stream:
        response = stream.get_final_response()

    assert response.status == "completed"
    (body,) = target.sent(tag)
    assert f"{tag}.md" in str(body)
    assert "file_AM-" not in str(body)


def test_a_file_that_is_not_there_is_named(client, target, tag):
    content = [{"type": "input_file", "file_id": "file_AM-aaaaaaaaaaaaaaaaaaaaaaaa"}]
    with pytest.raises(BadRequestError) as missing:
        client.responses.create(model=target.model, input=[{"role": "user", "content": content}])
    assert (missing.value.code, missing.value.param) == ("file_not_found", "input[0].content[0].file_id")
