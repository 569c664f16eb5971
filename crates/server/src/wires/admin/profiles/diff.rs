//! What changed between two versions of a profile: its prompt line by line, its tools by name.

use amalgam_core::store::AgentProfile;
use schemars::JsonSchema;
use serde::Serialize;
use similar::{Algorithm, ChangeTag, capture_diff_slices};

use crate::wires::admin::fields::ProfileDiffKind;

/// The most lines to compare, since the work grows with the square of their number. Beyond it, everything between the common
/// start and end is reported as replaced.
const COMPARED_LINES: usize = 4000;

/// The differences between two versions of a profile.
#[derive(Serialize, JsonSchema)]
pub(in crate::wires::admin) struct ProfileDiff<'a> {
    object: ProfileDiffKind,
    /// The profile.
    slug: &'a str,
    #[schemars(with = "i64")]
    version: u64,
    /// The version compared with; null for the first version.
    #[schemars(with = "Option<i64>")]
    against: Option<u64>,
    /// The lines of both prompts.
    prompt: Vec<Line<'a>>,
    /// Tools that only this version has.
    tools_added: Vec<&'a str>,
    /// Tools that only the other version has.
    tools_removed: Vec<&'a str>,
    /// The model.
    model: TextChange<'a>,
    /// The tool that must be called first.
    tool_choice: TextChange<'a>,
    /// Whether the profile can be used.
    active: ActiveChange,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct TextChange<'a> {
    /// In the other version.
    before: Option<&'a str>,
    /// In this version.
    after: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct ActiveChange {
    before: Option<bool>,
    after: bool,
}

/// A line of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
struct Line<'a> {
    change: Change,
    /// The text of the line.
    line: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Change {
    Same,
    Removed,
    Added,
}

impl<'a> ProfileDiff<'a> {
    /// What `after` changed; `before` is none for the first version of all.
    pub(super) fn between(before: Option<&'a AgentProfile>, after: &'a AgentProfile) -> Self {
        let (old_prompt, old_tools) = before.map_or(("", &[][..]), |before| (&before.prompt, &before.tools));
        Self {
            object: ProfileDiffKind,
            slug: &after.slug,
            version: after.version,
            against: before.map(|before| before.version),
            prompt: lines(old_prompt, &after.prompt),
            tools_added: only_in(&after.tools, old_tools),
            tools_removed: only_in(old_tools, &after.tools),
            model: TextChange {
                before: before.and_then(|before| before.model.as_deref()),
                after: after.model.as_deref(),
            },
            tool_choice: TextChange {
                before: before.and_then(|before| before.tool_choice.as_deref()),
                after: after.tool_choice.as_deref(),
            },
            active: ActiveChange { before: before.map(|before| before.active), after: after.active },
        }
    }
}

fn only_in<'a>(here: &'a [String], there: &[String]) -> Vec<&'a str> {
    here.iter().filter(|tool| !there.contains(tool)).map(String::as_str).collect()
}

impl<'a> From<similar::Change<&'a str>> for Line<'a> {
    fn from(change: similar::Change<&'a str>) -> Self {
        match change.tag() {
            ChangeTag::Equal => Self::same(change.value()),
            ChangeTag::Delete => Self::removed(change.value()),
            ChangeTag::Insert => Self::added(change.value()),
        }
    }
}

impl<'a> Line<'a> {
    fn same(line: &'a str) -> Self {
        Self { change: Change::Same, line }
    }

    fn removed(line: &'a str) -> Self {
        Self { change: Change::Removed, line }
    }

    fn added(line: &'a str) -> Self {
        Self { change: Change::Added, line }
    }
}

/// Both texts as one list of lines. Without those that were added it is `old`, without those that were removed `new`.
fn lines<'a>(old: &'a str, new: &'a str) -> Vec<Line<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let pairs = || old.iter().zip(&new);
    let start = pairs().take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (old.get(start..).unwrap_or_default(), new.get(start..).unwrap_or_default());
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old_middle, tail) = old_rest.split_at(old_rest.len() - end);
    let (new_middle, _) = new_rest.split_at(new_rest.len() - end);

    let mut lines: Vec<Line<'a>> = old.iter().take(start).map(|line| Line::same(line)).collect();
    match old_middle.len() + new_middle.len() <= COMPARED_LINES {
        true => {
            let changes = capture_diff_slices(Algorithm::Myers, old_middle, new_middle);
            let changes = changes.iter().flat_map(|change| change.iter_changes(old_middle, new_middle));
            lines.extend(changes.map(Line::from));
        }
        false => {
            lines.extend(old_middle.iter().map(|line| Line::removed(line)));
            lines.extend(new_middle.iter().map(|line| Line::added(line)));
        }
    }
    lines.extend(tail.iter().map(|line| Line::same(line)));
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_that_stay_are_told_once_and_changes_in_their_place() {
        let (same, removed, added) = (Line::same, Line::removed, Line::added);
        assert_eq!(
            lines("You help.\nBe short.\nBe kind.\n", "You help.\nBe brief.\nBe kind.\nNever guess."),
            [same("You help."), removed("Be short."), added("Be brief."), same("Be kind."), added("Never guess.")]
        );
        assert_eq!(lines("", "a\nb"), [added("a"), added("b")]);
        assert_eq!(lines("a\nb", ""), [removed("a"), removed("b")]);
        assert_eq!(lines("a", "a"), [same("a")]);
        assert_eq!(lines("", ""), []);
    }

    #[test]
    fn texts_that_are_too_long_to_compare_are_told_as_replaced() {
        let text = |word: &str| vec![word; 3000].join("\n");
        let (old, new) = (format!("first\n{}", text("a")), format!("first\n{}", text("b")));
        let told = lines(&old, &new);
        assert_eq!(told.len(), 1 + 3000 + 3000);
        assert_eq!((told[0], told[1], told[6000]), (Line::same("first"), Line::removed("a"), Line::added("b")));
    }

    proptest! {
        #[test]
        fn both_texts_can_be_read_out_of_the_lines(
            old in proptest::collection::vec("[abc]", 0..20), new in proptest::collection::vec("[abc]", 0..20),
        ) {
            let (old, new) = (old.join("\n"), new.join("\n"));
            let told = lines(&old, &new);
            let without = |change: Change| -> Vec<&str> {
                told.iter().filter(|line| line.change != change).map(|line| line.line).collect()
            };
            prop_assert_eq!(without(Change::Added), old.lines().collect::<Vec<_>>());
            prop_assert_eq!(without(Change::Removed), new.lines().collect::<Vec<_>>());
        }
    }
}
