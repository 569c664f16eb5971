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
    """One result by the name of its tool. A tool that failed is a hint, one that is unknown nothing."""
    output = result["output"]
    if "error" in output:
        return f"({result['name']}: {output['error']})"
    match result["name"]:
        case "get_course_detail":
            return detail(output["course"])
        case "get_course_recommendation":
            return cards(output)
        case _:
            return ""


def detail(course: dict) -> str:
    facts = [course["modality"], course["status"] or "not started", ", ".join(course["tags"])]
    return box(f"{course['title']} (#{course['id']})", [*wrap(course["description"], WIDTH - 4), " | ".join(filter(None, facts))])


def cards(page: dict) -> str:
    drawn = [card(course) for course in page["results"]]
    shown = len(page["results"])
    drawn.append(f"{shown} of {page['count']}" + (", there is more" if page["next"] else ""))
    return "\n".join(drawn)


def card(course: dict) -> str:
    facts = [course["type"], course["status"] or "new", f"{course['progress']} %"]
    if course["in_playlist"]:
        facts.append("on your list")
    if not course["is_eligible"]:
        facts.append("not for you yet")
    lines = [shorten(course["description"], WIDTH - 4, placeholder=" …"), " | ".join(facts)]
    if course["url"]:
        lines.append(course["url"])
    return box(f"{course['title']} (#{course['id']})", lines)


def box(title: str, lines: list[str]) -> str:
    head = f"┌ {shorten(title, WIDTH - 6, placeholder=' …')} "
    return "\n".join([head + "─" * max(0, WIDTH - len(head)), *(f"│ {line}" for line in lines), "└" + "─" * (WIDTH - 1)])
