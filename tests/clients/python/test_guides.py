"""The guides in docs/ are true: their commands run in order against a fresh server, and print what the page shows."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from documents import ADDRESS, SECONDS, Example, assert_output, blocks, examples, in_language, pages, run
from harness import ROOT, Gateway, binary, quiet_environment
from stores import SERVER, STORES, is_there, store_settings

GUIDES = [page for page in sorted((ROOT / "docs").glob("*.md")) if examples(page)]
# Separates what the commands of a page print.
MARK = "\x1e"
# Tells the status of every request without changing what the command prints.
CURL = "curl() { command curl --silent --show-error --write-out '%{stderr}HTTP %{http_code}\\n' \"$@\"; }\n"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(params=STORES)
def server(request, tmp_path):
    """A server that was just started on an empty store, without keys and upstreams."""
    if not is_there(request.param):
        pytest.skip(f"{SERVER} names no server")
    with store_settings(request.param) as settings:
        running = Gateway(None, tmp_path, settings, text="# Nothing is configured.\n")
        yield running
        assert running.stop() == 0


def run_in_order(shown: list[Example], server: Gateway, folder: Path) -> list[tuple[str, str]]:
    """Runs commands in one shell. Gives what each printed on its standard output and error."""
    commands = folder / "bin"
    commands.mkdir()
    (commands / "amalgam").symlink_to(binary())
    mark = f"printf '{MARK}'; printf '{MARK}' >&2\n"
    script = CURL + "".join(mark + example.command.code.replace(ADDRESS, server.url) for example in shown)
    environment = quiet_environment(
        AMALGAM_KEY=server.first_key,
        AMALGAM_CONFIG=str(server.config),
        AMALGAM_DATA=str(server.data),
        **server.settings,
    )
    environment["PATH"] = f"{commands}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    printed, errors = (text.split(MARK)[1:] for text in (done.stdout, done.stderr))
    assert done.returncode == 0, f"{shown[len(printed) - 1].command.code}{printed[-1]}{errors[-1]}"
    return list(zip(printed, errors, strict=True))


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_the_commands_of_a_guide_print_what_stands_below_them(page, server, tmp_path):
    assert shutil.which("jq"), "jq is missing; scripts/setup.sh test installs it"
    shown = examples(page)
    folder = tmp_path / "reader"
    folder.mkdir()
    for example, (printed, errors) in zip(shown, run_in_order(shown, server, folder), strict=True):
        statuses = [int(status) for status in re.findall(r"^HTTP (\d+)$", errors, re.MULTILINE)]
        if example.status:
            assert statuses[-1] == example.status, f"{example.command.code}{printed}"
        else:
            assert all(status < 400 for status in statuses), f"{example.command.code}{printed}"
        if example.output:
            assert_output(printed, example.output, server.url)


@pytest.mark.parametrize("page", [page for page in GUIDES if in_language(page, "toml")], ids=name)
def test_the_configurations_of_a_guide_are_valid(page, tmp_path):
    for block in in_language(page, "toml"):
        config = tmp_path / "amalgam.toml"
        config.write_text(block.code)
        keys = {
            "ACME_KEY": "am_0123456789abcdef",
            "OTHER_KEY": "am_fedcba9876543210",
            "OPENAI_API_KEY": "x",
            "ANTHROPIC_API_KEY": "x",
            "CONSOLE_CLIENT_SECRET": "x",
            "JWT_SECRET": "a secret of more than thirty-two characters",
        }
        run([str(binary()), "check", "--config", str(config)], cwd=tmp_path, env=quiet_environment(**keys))


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_command_of_a_page_is_marked_as_run_or_not(page):
    languages = {block.language for block in blocks(page)}
    assert languages.isdisjoint({"bash", "shell", "console"}), "commands are `sh`, or `sh no-run`"


def anchor(heading: str) -> str:
    """The anchor that a heading gets on the page."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_link_of_a_page_leads_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    missing = []
    for target, place in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        linked = (page.parent / target).resolve() if target else page
        if not linked.exists() or (place and place not in anchors(linked)):
            missing.append(f"{target}#{place}")
    assert missing == []


def test_the_glossary_names_types_and_files_that_exist():
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", (ROOT / "docs/GLOSSARY.md").read_text(), re.MULTILINE)
    places = [place for row in rows for place in re.findall(r"((?:`\w+`(?: and )?)+ in )?`([\w/]+\.rs)`", row)]
    assert len(places) > 60
    for types, file in places:
        source = (ROOT / "crates" / file).read_text()
        for word in re.findall(r"`(\w+)`", types):
            assert re.search(rf"\b(struct|enum|trait|fn) {word}\b", source), f"{word} in {file}"


def sources() -> dict[str, str]:
    """Every file of the crates that a page may name, by its path in the project."""
    files = [path for ending in ("rs", "json", "toml") for path in (ROOT / "crates").rglob(f"*.{ending}")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in files if "target" not in path.parts}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("adding-*.md")), ids=name)
def test_a_check_list_names_types_functions_and_files_that_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    # `acme` and `NAME` stand for what is to be added.
    spans = [span for span in re.findall(r"`([^`\n]+)`", text) if not re.search(r"NAME|acme", span)]
    found = sources()
    words = {word for source in found.values() for word in re.findall(r"\w+", source)}
    missing = []
    for span in spans:
        if re.fullmatch(r"[\w/]+\.(rs|json)", span) and not span.startswith("docs/"):
            usual = {"convert.rs", "decode.rs", "convert_tests.rs", "decode_tests.rs", "sql_tests.rs", "error.rs"}
            if span not in usual and not any(f"/{path}".endswith(f"/{span}") for path in found):
                missing.append(span)
        elif re.fullmatch(r"(\w+::)*[A-Z]\w*(::\w+)?!?|\w+(::\w+)+", span):
            missing += [word for word in re.findall(r"\w+", span) if word not in words]
    assert missing == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/decisions").glob("*.md")), ids=name)
def test_a_decision_has_the_number_of_its_file_in_its_title(page):
    assert page.read_text().startswith(f"# {page.name[:4]}: ")
