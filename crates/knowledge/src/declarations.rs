//! Finds the names that a line of source code declares, by patterns that are usually right.
//!
//! A wrong name does no harm: names only describe chunks and help to find them. So nothing here parses a language.

/// The name that a line declares; the line has no indentation.
pub(super) fn name<'a>(language: &str, line: &'a str) -> Option<&'a str> {
    let family = Family::of(language)?;
    if let Some(name) = family.special(line) {
        return Some(name);
    }
    let mut rest = line;
    loop {
        let (word, rest_of_line) = word(rest);
        if word.is_empty() {
            return None;
        }
        if family.keywords().contains(&word) {
            return named(rest_of_line, family).or_else(|| family.by_call().then(|| function_name(line))?);
        }
        if !MODIFIERS.contains(&word) {
            break;
        }
        // Visibility such as `pub(crate)`.
        rest = match (word, rest_of_line.strip_prefix('(')) {
            ("pub", Some(inside)) => inside.split_once(')')?.1.trim_start(),
            _ => rest_of_line.trim_start(),
        };
    }
    family.by_call().then(|| function_name(line))?
}

/// Whether a line belongs to the declaration below it: a comment, an attribute, a decorator.
pub(super) fn is_attached(line: &str) -> bool {
    ["//", "/*", "*", "#", "@", "--", "[", "\"\"\"", ";"].iter().any(|mark| line.starts_with(mark))
}

/// Words that may precede a declaration's keyword.
const MODIFIERS: &[&str] = &[
    "abstract",
    "actual",
    "async",
    "companion",
    "const",
    "constexpr",
    "data",
    "declare",
    "default",
    "expect",
    "export",
    "extern",
    "final",
    "inline",
    "inner",
    "internal",
    "local",
    "open",
    "override",
    "partial",
    "private",
    "protected",
    "pub",
    "public",
    "readonly",
    "sealed",
    "static",
    "suspend",
    "template",
    "unsafe",
    "virtual",
];

/// Keywords before a bracket that are not names of functions.
const CONTROL: &[&str] = &[
    "assert",
    "await",
    "case",
    "catch",
    "delete",
    "do",
    "else",
    "elif",
    "except",
    "for",
    "foreach",
    "go",
    "goto",
    "if",
    "lock",
    "match",
    "new",
    "raise",
    "return",
    "select",
    "sizeof",
    "switch",
    "synchronized",
    "throw",
    "try",
    "typeof",
    "until",
    "using",
    "when",
    "while",
    "with",
    "yield",
];

/// Languages with similar declarations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Rust,
    Python,
    Go,
    Script,
    /// Classes with methods that have no keyword.
    Classes,
    /// Functions without a keyword.
    C,
    Shell,
    Sql,
    /// Section names in brackets.
    Sections,
    /// Languages whose declarations have keywords.
    Other,
}

impl Family {
    fn of(language: &str) -> Option<Self> {
        Some(match language {
            "rust" => Self::Rust,
            "python" => Self::Python,
            "go" => Self::Go,
            "javascript" | "typescript" | "tsx" | "jsx" | "vue" | "svelte" => Self::Script,
            "java" | "csharp" | "dart" | "groovy" => Self::Classes,
            "c" | "cpp" | "objectivec" => Self::C,
            "bash" => Self::Shell,
            "sql" => Self::Sql,
            "toml" | "ini" => Self::Sections,
            "kotlin" | "scala" | "swift" | "ruby" | "php" | "perl" | "lua" | "elixir" | "julia" | "zig" | "fsharp"
            | "vb" | "powershell" | "protobuf" | "graphql" | "hcl" => Self::Other,
            _ => return None,
        })
    }

    fn keywords(self) -> &'static [&'static str] {
        match self {
            Self::Rust => &["fn", "struct", "enum", "trait", "impl", "mod", "type", "union"],
            Self::Python => &["def", "class"],
            Self::Go => &["func", "type"],
            Self::Script => &["function", "class", "interface", "enum", "type", "namespace"],
            Self::Classes => &["class", "interface", "enum", "struct", "record", "namespace", "trait", "mixin"],
            Self::C => &["class", "struct", "enum", "union", "namespace"],
            Self::Shell => &["function"],
            Self::Sql | Self::Sections => &[],
            Self::Other => &[
                "class",
                "interface",
                "enum",
                "struct",
                "protocol",
                "extension",
                "trait",
                "object",
                "module",
                "func",
                "fun",
                "def",
                "defp",
                "defmodule",
                "function",
                "sub",
                "fn",
                "message",
                "service",
                "type",
                "resource",
                "Function",
                "Sub",
                "Class",
                "Module",
            ],
        }
    }

    fn by_call(self) -> bool {
        matches!(self, Self::Classes | Self::C)
    }

    /// Declarations without the pattern of keyword and name.
    fn special(self, line: &str) -> Option<&str> {
        match self {
            Self::Rust => name_at(line.strip_prefix("macro_rules! ")?),
            // `const handler = …` and the methods of classes.
            Self::Script => {
                let constant = ["export const ", "const "].iter().find_map(|begin| line.strip_prefix(begin));
                match constant {
                    Some(rest) => {
                        let function = ["=>", "function", "= (", "= async"].iter().any(|mark| rest.contains(mark));
                        name_at(rest).filter(|_| function)
                    }
                    None => {
                        let body = line.ends_with('{') && line.contains('(') && !line.contains('=');
                        let first = word(line).0;
                        let before = MODIFIERS.contains(&first) || line.strip_prefix(first)?.starts_with('(');
                        function_name(line).filter(|_| body && before)
                    }
                }
            }
            Self::Shell => {
                let (name, rest) = line.split_once("()")?;
                (rest.trim_start().starts_with('{') || rest.trim().is_empty()).then(|| name_at(name))?
            }
            Self::Sql => {
                let upper = line.get(..7).filter(|begin| begin.eq_ignore_ascii_case("create "))?;
                let mut rest = line.strip_prefix(upper)?.trim_start();
                const BETWEEN: &[&str] = &[
                    "or",
                    "replace",
                    "unique",
                    "temporary",
                    "temp",
                    "virtual",
                    "materialized",
                    "if",
                    "not",
                    "exists",
                    "table",
                    "view",
                    "index",
                    "function",
                    "procedure",
                    "trigger",
                    "type",
                    "schema",
                    "sequence",
                    "role",
                    "extension",
                ];
                while let (begin, rest_of_line) = word(rest)
                    && BETWEEN.iter().any(|between| between.eq_ignore_ascii_case(begin))
                {
                    rest = rest_of_line.trim_start();
                }
                name_at(rest)
            }
            Self::Sections => {
                let inside = line.trim_start_matches('[');
                let name = inside.split_once(']').map(|(name, _)| name.trim())?;
                (inside.len() < line.len() && !name.is_empty()).then_some(name)
            }
            _ => None,
        }
    }
}

/// The name after a keyword.
fn named(rest: &str, family: Family) -> Option<&str> {
    let rest = match (family, rest.strip_prefix('<')) {
        // `impl<T> Trait for Type`.
        (Family::Rust, Some(parameters)) => parameters.split_once("> ")?.1,
        // A space separates the keyword from the name.
        _ => rest.strip_prefix([' ', '\t'])?.trim_start(),
    };
    let rest = match family {
        Family::Rust => rest.split_once(" for ").map_or(rest, |(_, type_name)| type_name),
        // `func (s *Store) Name`.
        Family::Go => match rest.strip_prefix('(') {
            Some(receiver) => receiver.split_once(')').map_or(rest, |(_, rest_of_line)| rest_of_line.trim_start()),
            None => rest,
        },
        _ => rest,
    };
    name_at(rest.trim_start_matches(['*', '&', '"', '`', '\'']))
}

/// The name before the first bracket, if a line looks like the head of a function: a type or modifier precedes the
/// name, and the line does not end like a statement.
fn function_name(line: &str) -> Option<&str> {
    let (head, _) = line.split_once('(')?;
    let ends = line.trim_end();
    if ends.ends_with([';', ',']) || head.contains(['=', '.', '"', '#']) {
        return None;
    }
    let head = head.trim_end();
    let from = head.rfind(|c: char| !is_part(c)).map_or(0, |at| at + head.get(at..).map_or(1, first_len));
    let name = head.get(from..).filter(|name| !name.is_empty() && !CONTROL.contains(name))?;
    let before = head.get(..from)?.trim();
    let plain = line.ends_with('{') && before.is_empty();
    (plain || (!before.is_empty() && !CONTROL.contains(&word(before).0))).then_some(name)
}

fn first_len(text: &str) -> usize {
    text.chars().next().map_or(1, char::len_utf8)
}

/// The first word of a text, and the rest.
fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !is_part(c)).unwrap_or(text.len()))
}

/// The name at the start of a text.
fn name_at(text: &str) -> Option<&str> {
    let name = word(text).0;
    name.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some(name)
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_known_by_their_names() {
        for (language, line, expected) in [
            ("rust", "pub(crate) async fn put_some(connection: &Connection) {", Some("put_some")),
            ("rust", "impl<T: Ord> Drop for Heap<T> {", Some("Heap")),
            ("rust", "impl<'a> Facts<'a> {", Some("Facts")),
            ("rust", "impl Store for Sqlite {", Some("Sqlite")),
            ("rust", "macro_rules! statements {", Some("statements")),
            ("rust", "let function = 3;", None),
            ("rust", "fnord(x);", None),
            ("python", "async def handle(self):", Some("handle")),
            ("python", "class Model(Base):", Some("Model")),
            ("python", "return call(x)", None),
            ("go", "func (s *Store) Find(id string) error {", Some("Find")),
            ("go", "type Reader interface {", Some("Reader")),
            ("typescript", "export default class Engine extends Base {", Some("Engine")),
            ("typescript", "export const start = async (port: number) => {", Some("start")),
            ("typescript", "private async send(text: string) {", Some("send")),
            ("javascript", "if (x) {", None),
            ("javascript", "const total = 3;", None),
            ("java", "public static void main(String[] args) {", Some("main")),
            ("java", "return find(x);", None),
            ("csharp", "public sealed record Turn(string Id);", Some("Turn")),
            ("csharp", "private async Task<List<int>> LoadAsync(int id)", Some("LoadAsync")),
            ("csharp", "foreach (var x in list) {", None),
            ("c", "static int parse_line(const char *line, size_t n) {", Some("parse_line")),
            ("c", "parse_line(line, n);", None),
            ("cpp", "struct Point final {", Some("Point")),
            ("bash", "fail() {", Some("fail")),
            ("sql", "CREATE TABLE IF NOT EXISTS courses (", Some("courses")),
            ("sql", "create or replace function touch() returns trigger", Some("touch")),
            ("toml", "[workspace.lints.rust]", Some("workspace.lints.rust")),
            ("toml", "[[bin]]", Some("bin")),
            ("ruby", "def each", Some("each")),
            ("kotlin", "data class Point(val x: Int)", Some("Point")),
            ("plaintext", "class struggle", None),
            ("markdown", "fn x", None),
        ] {
            assert_eq!(name(language, line), expected, "{language}: {line}");
        }
    }

    #[test]
    fn odd_lines_declare_nothing_and_do_no_harm() {
        let odd = [
            "",
            "(",
            "é(",
            "é é(x) {",
            "pub(",
            "fn",
            "fn ",
            "impl<",
            "create ",
            "create é",
            "[",
            "[]",
            "()",
            "= (",
            "type",
        ];
        for language in ["rust", "python", "go", "javascript", "java", "c", "bash", "sql", "toml", "ruby"] {
            for line in odd {
                let named = name(language, line);
                assert!(named.is_none_or(|name| line.contains(name)), "{language}: {line}");
            }
        }
    }
}
