"""What the scripted model says: a pure function from one request to one answer.

The wires read their own request shape into an `Ask` and write an `Answer` or a `Failure` in their own shape. Nothing
here knows HTTP or a wire. The last text of the user and the tools on offer drive the script, so a test reads as
an ordinary conversation.
"""

import json
import re
from dataclasses import dataclass, field

from . import agent
from .schema import instance_of

# Fixed usage, so that tests can compare exact numbers on every wire.
INPUT_TOKENS = 42
CACHED_TOKENS = 8
OUTPUT_TOKENS = 17
REASONING_TOKENS = 5

RETRY_AFTER_SECONDS = 7

THOUGHT = "The user wants a careful answer. I weigh the options."
SUMMARY = "So far the user was greeted, and nothing is left to do."
WORDS = 40


@dataclass
class Offer:
    """A tool on offer: `free_form` ones take plain text instead of JSON arguments."""

    name: str
    schema: dict
    free_form: bool = False
    # The namespace it was offered in, on the one wire that has them.
    namespace: str | None = None


@dataclass
class Ask:
    """One request, read from any wire."""

    model: str
    user_text: str
    images: list[tuple[str, int]] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    # None, "any" or the name of the tool that has to be called.
    forced: str | None = None
    parallel: bool = True
    schema: dict | None = None
    # Texts of the tool results that came after the last text of the user, oldest first.
    results: list[str] = field(default_factory=list)
    thinking: bool = False
    stream: bool = False

    def user_says(self, text: str) -> None:
        """Takes a text of the user. One that repeats the last one is the same question, and so is the gateway's filler behind
        words of the assistant: results since then still count."""
        if text not in (self.user_text, "(Please go on.)"):
            self.user_text, self.results = text, []


@dataclass
class Call:
    name: str
    arguments: str
    free_form: bool = False


@dataclass
class Answer:
    reasoning: str | None = None
    text: str | None = None
    refusal: str | None = None
    calls: list[Call] = field(default_factory=list)
    # "stop", "calls" or "length".
    stop: str = "stop"
    # Seconds between two pieces of a stream.
    pace: float = 0.0
    # Pieces after which the connection is cut; None lets the answer end well.
    cut_after: int | None = None
    # Pieces after which the wire's own error event ends the stream.
    overload_after: int | None = None


@dataclass
class Failure(Exception):
    """A refusal of the whole request. `kind` is one of the keys that each wire translates."""

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    headers: dict = field(default_factory=dict)


def decide(ask: Ask) -> Answer:
    """Says what the model answers; raises `Failure` where the script asks for one."""
    text = ask.user_text.lower()
    _fail_on_demand(text)
    answer = _answer(ask, text)
    if ask.thinking:
        answer.reasoning = THOUGHT
    return answer


def pieces(text: str) -> list[str]:
    """Cuts a text as a model streams it: a word with its leading space at a time."""
    return re.findall(r"\s*\S+|\s+$", text) or [text]


def _answer(ask: Ask, text: str) -> Answer:
    if agent.MARKER in ask.user_text:
        return _agent_step(ask)
    if "answer with the summary alone" in text:
        return Answer(text=SUMMARY)
    if "look it up" in text and any(offer.name == "file_search" for offer in ask.offers):
        return _search(ask)
    if ask.results:
        return Answer(text="The tools say: " + "; ".join(ask.results))
    if ask.forced:
        return _forced_call(ask)
    if "weather" in text and ask.offers:
        return _weather_calls(ask)
    if ask.schema is not None:
        return Answer(text=json.dumps(instance_of(ask.schema)))
    if ask.images:
        seen = ", ".join(f"{media_type} of {size} bytes" for media_type, size in ask.images)
        return Answer(text=f"I see {seen}.")
    if "cut mid-stream" in text:
        return Answer(text="These words arrive and the rest of them never does.", cut_after=4)
    if "overload mid-stream" in text:
        return Answer(text="These words arrive and then the model is overloaded.", overload_after=4)
    if "talk slowly" in text:
        return Answer(text=" ".join(f"word{n}" for n in range(2000)), pace=0.02)
    if "take your time" in text:
        return Answer(text=" ".join(f"word{n}" for n in range(WORDS)), pace=0.05)
    if "talk too long" in text:
        return Answer(text="one two three", stop="length")
    if "please refuse" in text:
        return Answer(refusal="I can not help with that.")
    return Answer(text=f"You said: {ask.user_text} ☕")


def _fail_on_demand(text: str) -> None:
    if "fail with 429" in text:
        raise Failure(
            429,
            "rate_limit",
            "Rate limit reached for requests. Please try again later.",
            code="rate_limit_exceeded",
            headers={"retry-after": str(RETRY_AFTER_SECONDS)},
        )
    if "fail with 400" in text:
        raise Failure(
            400,
            "context_length",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
            code="context_length_exceeded",
        )
    if "fail with 500" in text:
        raise Failure(500, "server", "The server had an error while processing your request.")


def _weather_calls(ask: Ask) -> Answer:
    offer = next((offer for offer in ask.offers if "weather" in offer.name), ask.offers[0])
    cities = re.findall(r"\b(Paris|Rome|Oslo|Tokyo)\b", ask.user_text) or ["Paris"]
    if not ask.parallel:
        cities = cities[:1]
    if offer.free_form:
        calls = [Call(offer.name, f"weather of {city}", free_form=True) for city in cities]
    else:
        key = next(iter(offer.schema.get("properties") or {"city": {}}))
        calls = [Call(offer.name, json.dumps({key: city})) for city in cities]
    if "talk too long" in ask.user_text.lower():
        # The limit falls into the arguments of the last call.
        calls[-1].arguments = calls[-1].arguments[:9]
        return Answer(calls=calls, stop="length")
    spoken = "Let me look that up." if "say so first" in ask.user_text.lower() else None
    return Answer(text=spoken, calls=calls, stop="calls")


def _search(ask: Ask) -> Answer:
    """Searches once, and then cites what was found first and something that was not."""
    if not ask.results:
        return Answer(calls=[Call("file_search", json.dumps({"queries": ["keel"]}))], stop="calls")
    (marker, *_) = re.findall(r"\[kb:[^\]]+\]", ask.results[-1]) or ["[kb:none]"]
    return Answer(text=f"It is of oak{marker}, and not of tin [kb:0-0].")


def _forced_call(ask: Ask) -> Answer:
    offer = next((offer for offer in ask.offers if offer.name == ask.forced), ask.offers[0])
    arguments = "free text" if offer.free_form else json.dumps(instance_of(offer.schema))
    return Answer(calls=[Call(offer.name, arguments, offer.free_form)], stop="calls")


def _agent_step(ask: Ask) -> Answer:
    step = agent.step([agent.Tool(offer.name, offer.schema, offer.free_form) for offer in ask.offers], ask.results)
    if step.tool is None:
        return Answer(text=step.text)
    return Answer(text=step.text, calls=[Call(step.tool, step.arguments, step.free_form)], stop="calls")
