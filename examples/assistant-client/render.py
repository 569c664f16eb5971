"""An answer as text: the assistant's words, and below them what its tools gave."""

from textwrap import shorten, wrap

WIDTH = 72


def render(answer: dict) -> str:
    """Everything that a front end would draw. Words come from `message`, cards from `tool_results` and from nowhere else."""
    parts = [answer["message"]]
    for result in answer.get("tool_results", []):
        drawn = tool_result(result)
        if drawn:
            parts.append(drawn)
    return "\n\n".join(parts)


def tool_result(result: dict) -> str:
    """One result by the name of its tool. A tool that failed is a hint, one that is unknown nothing.

    An output may be anything: a tenant can have a tool of the same name that gives other fields, and a call that was not run
    has an `error` instead of its result. What does not look like a course is left out."""
    name, output = result.get("name", "tool"), result.get("output")
    if not isinstance(output, dict):
        return ""
    if "error" in output:
        return f"({name}: {output['error']})"
    if name == "get_course_detail" and is_course(output.get("course")):
        return detail(output["course"])
    if name == "get_course_recommendation" and isinstance(output.get("results"), list):
        return cards(output)
    return ""


def is_course(course: object) -> bool:
    return isinstance(course, dict) and "id" in course and "title" in course


def detail(course: dict) -> str:
    tags = course.get("tags")
    facts = [course.get("modality"), course.get("status") or "not started", ", ".join(map(str, tags)) if isinstance(tags, list) else ""]
    return box(f"{course['title']} (#{course['id']})", [*wrap(text(course, "description"), WIDTH - 4), " | ".join(map(str, filter(None, facts)))])


def cards(page: dict) -> str:
    courses = [course for course in page.get("results", []) if is_course(course)]
    drawn = [card(course) for course in courses]
    drawn.append(f"{len(courses)} of {page.get('count', len(courses))}" + (", there is more" if page.get("next") else ""))
    return "\n".join(drawn)


def card(course: dict) -> str:
    facts = [text(course, "type"), text(course, "status") or "new", f"{course.get('progress') or 0} %"]
    if course.get("in_playlist"):
        facts.append("on your list")
    if course.get("is_eligible") is False:
        facts.append("not for you yet")
    lines = [shorten(text(course, "description"), WIDTH - 4, placeholder=" …"), " | ".join(filter(None, facts))]
    if course.get("url"):
        lines.append(str(course["url"]))
    return box(f"{course['title']} (#{course['id']})", lines)


def text(course: dict, field: str) -> str:
    """A field as text; nothing where it is missing or null."""
    value = course.get(field)
    return "" if value is None else str(value)


def box(title: str, lines: list[str]) -> str:
    head = f"┌ {shorten(title, WIDTH - 6, placeholder=' …')} "
    return "\n".join([head + "─" * max(0, WIDTH - len(head)), *(f"│ {line}" for line in lines), "└" + "─" * (WIDTH - 1)])
