#!/usr/bin/env python3
"""Compares two recordings of the test suite (`AMALGAM_RECORD`), test by test.

    scripts/compare_turns.py OLD_FOLDER NEW_FOLDER

Exchanges are compared byte for byte after `RULES`: what differs between two runs of one binary, each with its reason. Equal
values get equal numbers, so that it is also compared which values are the same.

`--changes` names a file with what was changed deliberately. A change replaces a pattern, in both recordings, in exchanges
whose channel (`client`, `connection` or the number of an upstream) and request line match `where`.
"""

import argparse
import json
import re
import sys
from collections import Counter
from datetime import datetime
from itertools import zip_longest
from pathlib import Path

# What differs in every run, and why. A group `number` becomes the number of its value in order of appearance; a group `time`
# is replaced only if it is a time of the day around the recording; everything else of the match stays.
RULES = [
    (r"\b[a-z]+_AM-(?:(?P<time>\d{13})-)?(?P<number>[a-z0-9]{16})(?P<number2>[a-z0-9]{8})\b",
     "ids are random; the ids of items begin with the stem of their response"),
    (r"\b(?P<number>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b", "UUIDs are random"),
    (r"(?<=[\w\].]):(?P<number>[3-6]\d{4})(?![\w.])", "the system assigns ports"),
    (r"\bam_(?P<number>[0-9A-Za-z]{7})(?P<number2>[0-9A-Za-z]{36})\b", "API keys that the server makes are random"),
    (r"\"prefix\":\"am_(?P<number>[0-9A-Za-z]{7})\"", "so is the beginning of a key, which is shown in lists"),
    (r"\bkb_(?P<number>[0-9a-f]{24})\b", "ids of documents are derived from the path of a temporary folder"),
    (r"\bamalgam-(?P<number>[0-9A-Za-z]{6})-(?P<number2>[0-9a-f]{8})\b", "the name of such a folder, and a hash of its path"),
    (r"\b(?P<number>eyJ[\w-]+\.eyJ[\w-]+\.[\w-]*)", "tokens that the tests sign contain the time"),
    (r"(?:first_token|duration|average|longest)_ms\\*\":(?P<blank>\d+)", "durations"),
    (r"\bams2\.(?P<number>[\w.-]+)", "sealed values have a random nonce"),
    (r"(?<![\w.-])(?P<time>1[0-9]{9}(?:[0-9]{3})?)(?![\w.-])", "Unix times, in seconds or milliseconds"),
    (r"\b(?P<time>20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<blank>\.\d+)?(?=Z|\+)", "times of ISO 8601"),
]
PATTERN = re.compile("|".join(re.sub(r"P<(\w+)>", rf"P<\1_{i}>", rule) for i, (rule, _) in enumerate(RULES)))

# Headers whose values depend on the machine. Whether they are present is compared.
HEADERS = {"date", "content-length", "sec-websocket-key", "sec-websocket-accept"}

# Tests in which timing or chance decides what is sent. They are not compared.
UNSTABLE = {
    "admin.lists_of_keys_are_paged_without_gaps": "keys of one second are listed in the order of their random ids",
    "keys.rights_are_asked_for_by_route": "keys of one second are listed in the order of their random ids",
    "secrets.no_secret_comes_out_in_answers_logs_reports_or_the_database": "keys of one second are listed in the order of their random ids",
    "agents_admin.settings.changes_at_the_same_time_do_not_lose_each_other": "concurrent changes see each other or not",
    "assistant.racing.two_hundred_messages_of_twenty_users_and_three_tenants_at_once": "numbers of messages are in order of arrival",
    "assistant.racing.two_processes_that_race_on_one_thread_make_one_and_take_turns": "numbers of messages are in order of arrival",
    "background.cancelling_really_ends_the_upstreams_work": "the cancellation comes before or after the first text",
    "deaths.a_process_that_slept_tells_its_callers_what_the_store_says": "a stopped process wakes before or after its turn was ended",
    "deaths.deaths_under_load_and_a_restart_on_the_same_file": "requests until a process is killed",
    "deaths.deaths_under_load_beside_a_process_that_lives": "requests until a process is killed",
    "execute.mishaps.a_session_that_is_deleted_while_its_turn_runs_ends_it": "the turn ends before or after the deletion",
    "execute.mishaps.results_and_a_new_turn_at_once_never_both_go_on_from_the_same_place": "one of two requests is first",
    "execute.streams.the_same_turn_at_once_is_one_turn_and_another_one_has_to_wait": "one of two requests is first",
    "faults.lifetimes.a_turn_that_outlasts_the_drain_is_told_as_failed": "the process ends before or after the last chunk",
    "faults.streams.output_without_end_stops_at_the_deadline": "output until a deadline",
    "guessing.a_stored_key_works_at_once_whatever_was_guessed_from_its_address": "requests until a limit per second",
    "https.a_stream_that_is_cut_under_tls_is_failed_and_the_next_one_is_not": "a reset connection loses what was not read yet",
    "idempotency.a_background_turn_under_a_key_is_queued_once": "the turn is still queued or running already",
    "knowledge.import.turns_go_on_while_a_folder_is_brought_in": "requests until an import ends",
    "outage.a_database_that_restarts_is_waited_for_and_nothing_is_lost": "requests until the database is back",
    "outage.what_was_acknowledged_until_the_disk_was_full_is_there_after_a_crash": "requests until the disk is full",
    "request_memory.a_body_that_comes_too_slowly_is_let_go_whatever_came_early": "requests until the server hangs up",
    "socket.lifetimes.a_client_that_does_not_read_makes_the_upstream_wait_and_is_let_go": "looks until buffers are full",
    "socket.lifetimes.bytes_that_are_no_websocket_disturb_no_other_client": "random bytes",
    "transcripts.the_call_of_a_turn_that_was_cancelled_is_kept": "the cancellation comes before or after the model call was noted",
}

# How many exchanges of both recordings each deliberate change was applied to.
EXPLAINED = Counter()


class Exchange:
    """One request with its answer, as text in which every character is one byte."""

    def __init__(self, head, sent, received, day, changes):
        self.channel = head["channel"]
        self.begun = head["begun"]
        self.poll = head.get("poll")
        self.whole = head.get("whole", isinstance(self.channel, int))
        self.day = day
        sent, received = sent.decode("latin-1"), received.decode("latin-1")
        if self.channel == "connection":
            sent, received = read_connection(sent, received)
        elif not self.whole:
            # The test left before the end: what it had read from the socket beyond the events that it took is chance.
            top, _, body = received.partition("\r\n\r\n")
            frames = body.split("\n\n")[: head.get("taken", 0)]
            received = top + "\r\n\r\n" + "".join(frame + "\n\n" for frame in frames)
            self.whole = True
        place = f"{self.channel} {sent.partition(chr(13))[0]}"
        for reason, where, pattern, replacement in changes:
            if re.search(where, place):
                sent, count = re.subn(pattern, replacement, sent)
                received, more = re.subn(pattern, replacement, received)
                EXPLAINED[reason] += bool(count + more)
        self.pieces = self.read_tokens(read_message(sent) + "\n--> " + read_message(received))

    def read_tokens(self, text):
        """The text in pieces: what stays, and values that become numbers."""
        pieces, at = [], 0
        for match in PATTERN.finditer(text):
            for name, value in match.groupdict().items():  # in the order of the pattern
                if value is None or (name.startswith("time") and not self.is_recent(value)):
                    continue
                begin, end = match.span(name)
                # Values of one rule are numbered together.
                pieces += [text[at:begin], (name.rpartition("_")[2], value) if name.startswith("number") else None]
                at = end
        return [*pieces, text[at:]]

    def text(self, numbers):
        """The exchange without what differs in every run; `numbers` has the values that were seen before."""
        parts = list(self.pieces)
        for at in range(1, len(parts), 2):
            if parts[at] is None:
                parts[at] = "…"
            else:
                rule, value = parts[at]
                known = numbers.setdefault(rule, {})
                parts[at] = f"<{known.setdefault(value, len(known) + 1)}>"
        return "".join(parts)

    def is_recent(self, value):
        if "T" in value:
            seconds = datetime.fromisoformat(value + "+00:00").timestamp()
        else:
            seconds = int(value) / (1000 if len(value) == 13 else 1)
        return abs(seconds - self.day) < 86400


def read_message(message):
    """A request or an answer, with sorted headers: their order has no meaning."""
    head, separator, body = message.partition("\r\n\r\n")
    first, *headers = head.split("\r\n")
    for at, line in enumerate(headers):
        name, _, _ = line.partition(": ")
        if name.lower() in HEADERS:
            headers[at] = f"{name}: …"
    return "\n".join([first, *sorted(headers)]) + ("\n\n" if separator else "") + body


def read_connection(sent, received):
    """What a test wrote and read by hand, without the framing of HTTP chunks and WebSockets, which depends on timing."""
    if "\r\nupgrade: websocket\r\n" in sent.lower():
        sides = (side.partition("\r\n\r\n") for side in (sent, received))
        return tuple(head + separator + read_frames(frames) for head, separator, frames in sides)
    head, separator, body = received.partition("\r\n\r\n")
    if "transfer-encoding: chunked" in head.lower():
        chunks = []
        while True:
            size, line, rest = body.partition("\r\n")
            if not line or not size or len(rest) < (length := int(size, 16)):
                break
            chunks.append(rest[:length])
            body = rest[length + 2 :]
        body = "".join(chunks)
    return sent, head + separator + body


def read_frames(data):
    text = ""
    while len(data) >= 2:
        first, length = ord(data[0]), ord(data[1]) & 0x7F
        masked, at = ord(data[1]) & 0x80, 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length, at = int.from_bytes(data[2 : 2 + size].encode("latin-1")), 2 + size
        mask = data[at : at + 4] if masked else "\0\0\0\0"
        at += 4 if masked else 0
        if len(data) < at + length:
            break
        payload = data[at : at + length]
        if masked:
            payload = "".join(chr(ord(byte) ^ ord(mask[i % 4])) for i, byte in enumerate(payload))
        text += f"[frame {first:x}] {payload}\n"
        data = data[at + length :]
    return text


def read(path, changes=()):
    """The exchanges of a test in the order in which they began; of polls only the last attempt."""
    data, at, exchanges = path.read_bytes(), 0, []
    day = path.stat().st_mtime
    while at < len(data):
        end = data.index(b"\n", at)
        head = json.loads(data[at:end])
        middle = end + 1 + head["sent"]
        at = middle + head["received"]
        exchanges.append(Exchange(head, data[end + 1 : middle], data[middle:at], day, changes))
        at += 1
    last = {}
    for exchange in exchanges:
        if exchange.poll:
            last[exchange.poll[0]] = max(last.get(exchange.poll[0], 0), exchange.poll[1])
    exchanges = [one for one in exchanges if not one.poll or last[one.poll[0]] == one.poll[1]]
    # The client's requests, then those of each upstream: what a server sends by itself may come before or after an answer.
    return sorted(exchanges, key=lambda one: (one.channel if isinstance(one.channel, int) else -1, one.begun))


def equal(old, new):
    """Whether the exchanges are the same. Connections that a test closed early are compared as far as both were read."""

    def same(one, other):
        (before, a), (after, b) = one, other
        return a == b or (not (before.whole and after.whole) and (a.startswith(b) or b.startswith(a)))

    return len(old) == len(new) and all(map(same, old, new))


def compare(old, new):
    """How two recordings of a test are equal, or none; and their texts."""

    def in_order(exchanges):
        numbers = {}
        return [(one, one.text(numbers)) for one in exchanges]

    def alone(exchanges):
        return sorted(((one, one.text({})) for one in exchanges), key=lambda pair: (str(pair[0].channel), pair[1]))

    first = in_order(old), in_order(new)
    if equal(*first):
        return "equal", first
    sides = alone(old), alone(new)
    again = tuple(in_order([one for one, _ in side]) for side in sides)
    if equal(*again):
        return "equal in another order", again
    if equal(*sides):
        return "equal in another order, ids compared within each exchange only", sides
    return None, (sides if len(old) != len(new) else first)


def difference(texts, limit):
    """Where the first exchanges part that have no equal on the other side."""
    old, new = (Counter(text for _, text in side) for side in texts)
    alone = [list((old - new).elements()), list((new - old).elements())]
    lines = [f"{len(alone[0])} exchanges are only in old, {len(alone[1])} only in new"]
    for a, b in list(zip_longest(*alone, fillvalue=""))[:limit]:
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        line = (a or b).split("\n", 1)[0]
        for side, text in (("-", a), ("+", b)):
            lines.append(f"{side} {line} … {text[max(0, at - 60) : at + 140]!r}" if text else f"{side} nothing")
    return "\n".join(lines)


def failed(folder):
    log = folder.parent / f"{folder.name}.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    failure = r"^ +(?:FAIL|TIMEOUT|SIG\w+|ABORT) \[[^\]]+\] (?:\([^)]*\) )?\S+ (\S+)$"
    return {name.replace("::", ".") for name in re.findall(failure, text, re.M)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--differences", type=int, default=3, help="how many differences of a test to print")
    parser.add_argument("--only", default="", help="compare tests whose name contains this")
    parser.add_argument("--changes", type=Path, help="a JSON list of deliberate changes: [reason, where, pattern, replacement]")
    arguments = parser.parse_args()
    changes = json.loads(arguments.changes.read_text()) if arguments.changes else []
    for rule, reason in RULES:
        print(f"replaced: {reason}")
    print(f"replaced: values of the headers {', '.join(sorted(HEADERS))}: they depend on the machine")
    names = {folder: {path.name for path in folder.iterdir() if arguments.only in path.name} for folder in (arguments.old, arguments.new)}
    broken = {folder: failed(folder) for folder in names}
    counts, exchanges, early, size, differ = Counter(), 0, 0, 0, []
    for name in sorted(set.union(*names.values())):
        if name in UNSTABLE:
            counts["not compared: timing decides what is sent"] += 1
        elif any(name in failures for failures in broken.values()):
            which = [folder.name for folder, failures in broken.items() if name in failures]
            counts[f"not compared: failed ({', '.join(which)})"] += 1
            print(f"failed ({', '.join(which)}): {name}")
        else:
            old = read(arguments.old / name, changes) if name in names[arguments.old] else []
            new = read(arguments.new / name, changes) if name in names[arguments.new] else []
            result, texts = compare(old, new)
            counts[result or "different"] += 1
            if result:
                exchanges += len(new)
                size += sum(len(text) for _, text in texts[1])
                early += sum(not (a.whole and b.whole) and before != after for (a, before), (b, after) in zip(*texts))
            else:
                differ.append(name)
                print(f"\n=== {name}: {len(old)} and {len(new)} exchanges\n{difference(texts, arguments.differences)}")
    print()
    for result, count in sorted(counts.items()):
        print(f"{count:5} tests {result}")
    print(f"{exchanges} exchanges, {size:,} bytes are equal; {early} of them as far as both tests read them")
    for reason, count in EXPLAINED.items():
        print(f"{count} exchanges contain what was changed deliberately: {reason}")
    for folder, failures in broken.items():
        print(f"{len(failures)} tests failed with {folder.name}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
