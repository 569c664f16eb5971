//! The differences between two versions of a profile: its prompt line by line, its tools by name.

use amalgam_core::store::AgentProfile;
use schemars::JsonSchema;
use serde::Serialize;
use similar::{Algorithm, ChangeTag, capture_diff_slices};

/// The most lines to compare, since the work grows with the square of their number. Beyond it, everything between the common
/// start and end is reported as replaced.
const COMPARED_LINES: usize = 4000;

/// The differences between two versions of a profile.
#[derive(Serialize, JsonSchema)]
pub struct ProfileDiff {
    #[schemars(extend("const" = "profile.diff"))]
    object: &'static str,
    /// The profile.
    slug: String,
    #[schemars(with = "i64")]
    version: u64,
    /// The version compared with; null for the first version.
    #[schemars(with = "Option<i64>")]
    against: Option<u64>,
    /// The lines of both prompts.
    prompt: Vec<PromptLine>,
    /// Tools that only this version has.
    tools_added: Vec<String>,
    /// Tools that only the other version has.
    tools_removed: Vec<String>,
    /// The model.
    model: TextChange,
    /// The tool that must be called first.
    tool_choice: TextChange,
    /// Whether the profile can be used.
    active: ActiveChange,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct TextChange {
    /// In the other version.
    before: Option<String>,
    /// In this version.
    after: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct ActiveChange {
    before: Option<bool>,
    after: bool,
}

/// A line of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
struct PromptLine {
    change: Change,
    /// The text of the line.
    line: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Change {
    Same,
    Removed,
    Added,
}

impl ProfileDiff {
    /// The changes of `after`; `before` is `None` for the first version.
    pub(super) fn between(before: Option<&AgentProfile>, after: &AgentProfile) -> Self {
        let (old_prompt, old_tools) = before.map_or(("", &[][..]), |before| (&before.prompt, &before.tools));
        Self {
            object: "profile.diff",
            slug: after.slug.clone(),
            version: after.version,
            against: before.map(|before| before.version),
            prompt: lines(old_prompt, &after.prompt),
            tools_added: only_in(&after.tools, old_tools),
            tools_removed: only_in(old_tools, &after.tools),
            model: TextChange { before: before.and_then(|before| before.model.clone()), after: after.model.clone() },
            tool_choice: TextChange {
                before: before.and_then(|before| before.tool_choice.clone()),
                after: after.tool_choice.clone(),
            },
            active: ActiveChange { before: before.map(|before| before.active), after: after.active },
        }
    }
}

fn only_in(here: &[String], there: &[String]) -> Vec<String> {
    here.iter().filter(|tool| !there.contains(tool)).cloned().collect()
}

/// Both texts as one list of lines. Without the added lines it is `old`, without the removed lines `new`.
fn lines(old: &str, new: &str) -> Vec<PromptLine> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let (head, old_rest) = old.split_at(start);
    let new_rest = new.get(start..).unwrap_or_default();
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old_middle, tail) = old_rest.split_at(old_rest.len() - end);
    let (new_middle, _) = new_rest.split_at(new_rest.len() - end);

    let all = |change: Change, lines: &[&str]| -> Vec<PromptLine> {
        lines.iter().map(|line| PromptLine { change, line: (*line).to_owned() }).collect()
    };
    let middle = match old_middle.len() + new_middle.len() <= COMPARED_LINES {
        true => {
            let changes = capture_diff_slices(Algorithm::Myers, old_middle, new_middle);
            let changes = changes.iter().flat_map(|change| change.iter_changes(old_middle, new_middle));
            let line = |change: similar::Change<&str>| {
                let line = change.value().to_owned();
                let change = match change.tag() {
                    ChangeTag::Equal => Change::Same,
                    ChangeTag::Delete => Change::Removed,
                    ChangeTag::Insert => Change::Added,
                };
                PromptLine { change, line }
            };
            changes.map(line).collect()
        }
        false => [all(Change::Removed, old_middle), all(Change::Added, new_middle)].concat(),
    };
    [all(Change::Same, head), middle, all(Change::Same, tail)].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unchanged_lines_are_listed_once_and_changes_in_their_place() {
        let line = |change, line: &str| PromptLine { change, line: line.to_owned() };
        let (same, removed, added) =
            (|text| line(Change::Same, text), |text| line(Change::Removed, text), |text| line(Change::Added, text));
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
    fn texts_that_are_too_long_to_compare_are_reported_as_replaced() {
        let text = |word: &str| vec![word; 3000].join("\n");
        let (old, new) = (format!("first\n{}", text("a")), format!("first\n{}", text("b")));
        let lines = lines(&old, &new);
        assert_eq!(lines.len(), 1 + 3000 + 3000);
        let shown = |index: usize| (lines[index].change, lines[index].line.as_str());
        assert_eq!((shown(0), shown(1)), ((Change::Same, "first"), (Change::Removed, "a")));
        assert_eq!(shown(6000), (Change::Added, "b"));
    }

    proptest! {
        #[test]
        fn both_texts_can_be_read_out_of_the_lines(
            old in proptest::collection::vec("[abc]", 0..20), new in proptest::collection::vec("[abc]", 0..20),
        ) {
            let (old, new) = (old.join("\n"), new.join("\n"));
            let lines = lines(&old, &new);
            let without = |change: Change| -> Vec<&str> {
                lines.iter().filter(|line| line.change != change).map(|line| line.line.as_str()).collect()
            };
            prop_assert_eq!(without(Change::Added), old.lines().collect::<Vec<_>>());
            prop_assert_eq!(without(Change::Removed), new.lines().collect::<Vec<_>>());
        }
    }
}
