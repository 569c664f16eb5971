//! What changed between two versions of a profile: its prompt line by line, its tools by name.

use amalgam_core::store::AgentProfile;
use amalgam_protocol::Writer;
use similar::{Algorithm, Change, ChangeTag, capture_diff_slices};

use crate::wires::admin::write_text;

/// At most so many lines are compared, since the work grows with the square of their number. Beyond that everything between the
/// common ends is shown as replaced.
const COMPARED_LINES: usize = 4000;

/// A line of a prompt, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// Writes what `after` changed; `before` is none for the first version of all.
pub(super) fn write(writer: &mut Writer, before: Option<&AgentProfile>, after: &AgentProfile) {
    let no_tools = Vec::new();
    let (old_prompt, old_tools) = before.map_or(("", &no_tools), |before| (before.prompt.as_str(), &before.tools));
    let lines = lines(old_prompt, &after.prompt);
    let only_in = |here: &Vec<String>, there: &Vec<String>| -> Vec<String> {
        here.iter().filter(|tool| !there.contains(tool)).cloned().collect()
    };
    writer.object(|writer| {
        writer.key("object").string("profile.diff");
        writer.key("slug").string(&after.slug);
        writer.key("version").number(after.version);
        match before {
            Some(before) => writer.key("against").number(before.version),
            None => writer.key("against").null(),
        }
        writer.key("prompt").array(|writer| lines.iter().for_each(|line| line.write(writer)));
        for (key, tools) in
            [("tools_added", only_in(&after.tools, old_tools)), ("tools_removed", only_in(old_tools, &after.tools))]
        {
            writer.key(key).array(|writer| tools.iter().for_each(|tool| writer.string(tool)));
        }
        writer.key("model").object(|writer| {
            write_text(writer, "before", before.and_then(|before| before.model.as_deref()));
            write_text(writer, "after", after.model.as_deref());
        });
        writer.key("tool_choice").object(|writer| {
            write_text(writer, "before", before.and_then(|before| before.tool_choice.as_deref()));
            write_text(writer, "after", after.tool_choice.as_deref());
        });
        writer.key("active").object(|writer| {
            match before {
                Some(before) => writer.key("before").bool(before.active),
                None => writer.key("before").null(),
            }
            writer.key("after").bool(after.active);
        });
    });
}

impl<'a> From<Change<&'a str>> for Line<'a> {
    fn from(change: Change<&'a str>) -> Self {
        match change.tag() {
            ChangeTag::Equal => Self::Same(change.value()),
            ChangeTag::Delete => Self::Removed(change.value()),
            ChangeTag::Insert => Self::Added(change.value()),
        }
    }
}

impl Line<'_> {
    fn write(self, writer: &mut Writer) {
        let (change, text) = match self {
            Self::Same(text) => ("same", text),
            Self::Removed(text) => ("removed", text),
            Self::Added(text) => ("added", text),
        };
        writer.object(|writer| {
            writer.key("change").string(change);
            writer.key("line").string(text);
        });
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

    let mut lines: Vec<Line<'a>> = old.iter().take(start).map(|line| Line::Same(line)).collect();
    match old_middle.len() + new_middle.len() <= COMPARED_LINES {
        true => {
            let changes = capture_diff_slices(Algorithm::Myers, old_middle, new_middle);
            lines.extend(changes.iter().flat_map(|change| change.iter_changes(old_middle, new_middle)).map(Line::from));
        }
        false => {
            lines.extend(old_middle.iter().map(|line| Line::Removed(line)));
            lines.extend(new_middle.iter().map(|line| Line::Added(line)));
        }
    }
    lines.extend(tail.iter().map(|line| Line::Same(line)));
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_that_stay_are_told_once_and_changes_in_their_place() {
        use Line::{Added, Removed, Same};
        assert_eq!(
            lines("You help.\nBe short.\nBe kind.\n", "You help.\nBe brief.\nBe kind.\nNever guess."),
            [Same("You help."), Removed("Be short."), Added("Be brief."), Same("Be kind."), Added("Never guess.")]
        );
        assert_eq!(lines("", "a\nb"), [Added("a"), Added("b")]);
        assert_eq!(lines("a\nb", ""), [Removed("a"), Removed("b")]);
        assert_eq!(lines("a", "a"), [Same("a")]);
        assert_eq!(lines("", ""), []);
    }

    #[test]
    fn texts_that_are_too_long_to_compare_are_told_as_replaced() {
        let text = |word: &str| vec![word; 3000].join("\n");
        let (old, new) = (format!("first\n{}", text("a")), format!("first\n{}", text("b")));
        let told = lines(&old, &new);
        assert_eq!(told.len(), 1 + 3000 + 3000);
        assert_eq!((told[0], told[1], told[6000]), (Line::Same("first"), Line::Removed("a"), Line::Added("b")));
    }

    proptest! {
        #[test]
        fn both_texts_can_be_read_out_of_the_lines(
            old in proptest::collection::vec("[abc]", 0..20), new in proptest::collection::vec("[abc]", 0..20),
        ) {
            let (old, new) = (old.join("\n"), new.join("\n"));
            let told = lines(&old, &new);
            let side = |skip: fn(&Line<'_>) -> bool| -> Vec<&str> {
                told.iter().filter(|line| !skip(line)).map(|line| match line {
                    Line::Same(text) | Line::Removed(text) | Line::Added(text) => *text,
                }).collect()
            };
            prop_assert_eq!(side(|line| matches!(line, Line::Added(_))), old.lines().collect::<Vec<_>>());
            prop_assert_eq!(side(|line| matches!(line, Line::Removed(_))), new.lines().collect::<Vec<_>>());
        }
    }
}
