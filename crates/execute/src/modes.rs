//! Modes: the seeded ones that every tenant has, and the tenant's own.
//!
//! Names are case-insensitive. A tenant's mode with a seeded name overrides the seeded one until it is deleted.

use amalgam_core::{Condition, no_items, store::Mode};
use amalgam_knowledge::SEARCH_KNOWLEDGE;
use amalgam_protocol::{Json, Raw, Writer};

use super::{
    fields::{Field, RequestFaults},
    inputs,
    request::Bounds,
};
use crate::composition::DEFAULT_MODE;

/// A mode that every tenant has.
struct SeedMode {
    name: &'static str,
    display_name: &'static str,
    system_prompt: &'static str,
    tools: &'static [&'static str],
}

/// Sorted by name.
static SEEDED: [SeedMode; 4] = [
    SeedMode {
        name: "CODE_EDIT",
        display_name: "Code editing",
        system_prompt: "\
You change source code on behalf of the person you work for.

- Read before you write: look at the files that a change touches, and at who calls them, before you propose anything.
- Change what was asked for and nothing beside it. Keep the style, the names and the line endings of each file.
- Use the tools you are given to read and to change files. Never invent the contents of a file that you have not seen.
- Give whole, working edits: no placeholders, and no parts left out for the reader to fill in.
- When a request is ambiguous and the readings lead to different code, ask one short question first.
- Finish with a brief summary: which files changed, why, and what ought to be run to check it. Say plainly what you could \
not verify.",
        tools: &[SEARCH_KNOWLEDGE],
    },
    SeedMode {
        name: "DDR_CREATION",
        display_name: "Design record",
        system_prompt: "\
You help to write a DDR: a record of one design, precise enough that somebody else can build from it.

- Find out first what is to be decided, for whom, and within which limits. Ask for what is missing, a few questions at a time.
- Write in Markdown, with these parts: purpose, context, decision, details, alternatives that were considered, consequences, \
open questions. Leave a part out only if it has nothing to say.
- State rules so that they can be tested: one rule a sentence, with its exceptions beside it.
- Keep what was decided apart from what you suggest, and mark every assumption as one.
- Use the words of the project. Where existing records or code are given to you, stay consistent with them and name them.
- Do not write code for the design unless you are asked to; short shapes and examples are welcome.",
        tools: &[SEARCH_KNOWLEDGE],
    },
    SeedMode {
        name: DEFAULT_MODE,
        display_name: "General",
        system_prompt: "\
You are a capable colleague in a software team. Find out what is wanted, answer that, and be brief.

- Use a tool when it gives a better answer than memory does, and say what came of it.
- If another mode suits the work at hand clearly better, change to it before you begin.
- Say what you do not know instead of guessing.",
        tools: &[],
    },
    SeedMode {
        name: "QA",
        display_name: "Questions and answers",
        system_prompt: "\
You answer questions about a code base and its documents. You change nothing.

- Ground every statement in what you were given or have looked up, and name the file and the lines it comes from.
- Look things up before you say that something is not there.
- Answer first, then explain as much as the answer needs. Quote short pieces of code rather than whole files.
- Where sources contradict each other, show both and say which one is in force, if that can be told.
- If the sources do not answer the question, say so, and say what would.",
        tools: &[SEARCH_KNOWLEDGE],
    },
];

impl SeedMode {
    fn mode(&self) -> Mode {
        Mode {
            name: self.name.to_owned(),
            display_name: self.display_name.to_owned(),
            system_prompt: self.system_prompt.to_owned(),
            tools: self.tools.iter().map(|tool| (*tool).to_owned()).collect(),
            tool_choice: None,
            rag_scope: no_items(),
            created_at_ms: 0,
            updated_at_ms: 0,
        }
    }
}

/// The mode with this name: the tenant's own, or the seeded one.
pub fn find(name: &str, own: &[Mode]) -> Option<Mode> {
    let found = own.iter().find(|mode| mode.name.eq_ignore_ascii_case(name));
    found.cloned().or_else(|| seeded(name))
}

/// The seeded mode with this name.
pub fn seeded(name: &str) -> Option<Mode> {
    SEEDED.iter().find(|seeded| seeded.name.eq_ignore_ascii_case(name)).map(SeedMode::mode)
}

/// All modes of a tenant with these own modes, by name.
pub fn all(own: &[Mode]) -> Vec<Mode> {
    let is_own = |name: &str| own.iter().any(|mode| mode.name.eq_ignore_ascii_case(name));
    let seeded = SEEDED.iter().filter(|seeded| !is_own(seeded.name)).map(SeedMode::mode);
    let mut all: Vec<Mode> = own.iter().cloned().chain(seeded).collect();
    all.sort_by_cached_key(|mode| mode.name.to_ascii_lowercase());
    all
}

/// Parses the conditions in `rag_scope`. Paths of faults start with that name.
pub fn conditions(rag_scope: Raw<'_>) -> Result<Vec<Condition<'_>>, RequestFaults> {
    let mut faults = RequestFaults::default();
    let field = Field { path: "rag_scope".to_owned(), raw: rag_scope };
    let conditions = inputs::scope(&field, &Bounds::default(), &mut faults);
    match faults.is_empty() {
        true => Ok(conditions),
        false => Err(faults),
    }
}

/// Conditions as stored in a mode: a JSON array.
pub fn rag_scope(conditions: &[Condition<'_>]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for condition in conditions {
            writer.object(|writer| {
                writer.key("key").string(&condition.key);
                writer.key("operator").string(condition.operator.name());
                writer.key("values").array(|writer| condition.values.iter().for_each(|value| writer.string(value)));
            });
        }
    });
    Json::from_writer(writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str) -> Mode {
        Mode { display_name: format!("our {name}"), name: name.to_owned(), ..seeded("general").unwrap() }
    }

    fn names(own: &[Mode]) -> Vec<String> {
        all(own).into_iter().map(|mode| mode.name).collect()
    }

    #[test]
    fn every_tenant_has_the_four_seeded_modes() {
        // O-35
        assert_eq!(names(&[]), ["CODE_EDIT", "DDR_CREATION", "general", "QA"]);
        for mode in all(&[]) {
            assert!(!mode.system_prompt.trim().is_empty() && !mode.display_name.is_empty(), "{}", mode.name);
            assert_eq!(conditions(mode.rag_scope.raw()), Ok(vec![]), "{}", mode.name);
        }
    }

    #[test]
    fn a_name_is_found_whatever_its_case_and_the_tenants_own_first() {
        assert_eq!(find("qa", &[]), seeded("QA"));
        assert_eq!(find("nothing", &[own("review")]), None);
        let modes = [own("qa"), own("review")];
        assert_eq!(find("QA", &modes).as_ref(), modes.first());
        assert_eq!(find("REVIEW", &modes).as_ref(), modes.last());
        assert_eq!(names(&modes), ["CODE_EDIT", "DDR_CREATION", "general", "qa", "review"]);
    }

    #[test]
    fn a_scope_is_read_and_written_the_same() {
        // R034-11
        let text = br#"[{"Key":"path","Operator":"contains","Values":["src","\u00e9"]},{"key":"repo","operator":"!=","values":[""]}]"#;
        let read = conditions(Raw::parse(text).unwrap()).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(conditions(rag_scope(&read).raw()), Ok(read));
        let wrong = br#"[{"Key":"path","Operator":"like","Values":[]},{"Values":["x"]}]"#;
        let faults = conditions(Raw::parse(wrong).unwrap()).unwrap_err();
        let fields: Vec<&str> = faults.list().iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(
            fields,
            ["rag_scope[0].Operator", "rag_scope[0].Values", "rag_scope[1].Key", "rag_scope[1].Operator"]
        );
    }
}
