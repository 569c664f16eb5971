//! The fields of a line as text without colours.
//!
//! Writes what the default formatter of `tracing-subscriber` writes, for about a fifth of its instructions: texts without special
//! characters are copied instead of being formatted character by character. A server writes a line with some twenty
//! fields for each request.

use std::{
    error::Error,
    fmt::{self, Write as _},
};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, format::Writer},
};

/// Formats fields as `name=value`.
#[derive(Debug, Clone, Copy)]
pub struct PlainFields;

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = FieldText { text: String::new(), result: Ok(()) };
        fields.record(&mut line);
        line.result?;
        writer.write_str(&line.text)
    }
}

/// The text of the fields so far.
struct FieldText {
    text: String,
    result: fmt::Result,
}

impl FieldText {
    /// Begins a field. Returns whether it is the message, which has no name.
    fn begin(&mut self, field: &Field) -> bool {
        match self.text.is_empty() {
            true => self.text.reserve(512),
            false => self.text.push(' '),
        }
        let name = field.name();
        if name == "message" {
            return true;
        }
        self.text.push_str(name.strip_prefix("r#").unwrap_or(name));
        self.text.push('=');
        false
    }

    fn write(&mut self, value: fmt::Arguments<'_>) {
        self.result = self.result.and(self.text.write_fmt(value));
    }

    /// Writes a text whose control characters could change a terminal.
    fn write_escaped(&mut self, value: fmt::Arguments<'_>) {
        self.result = self.result.and(Escaped(&mut self.text).write_fmt(value));
    }
}

impl Visit for FieldText {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.begin(field) {
            return self.write_escaped(format_args!("{value}"));
        }
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        if value.bytes().all(is_plain) {
            self.text.push('"');
            self.text.push_str(value);
            self.text.push('"');
        } else {
            self.write(format_args!("{value:?}"));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.begin(field);
        self.write(format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.begin(field);
        self.write(format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.begin(field);
        self.text.push_str(if value { "true" } else { "false" });
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.begin(field);
        self.write_escaped(format_args!("{value}"));
        let mut source = value.source();
        if source.is_some() {
            self.write(format_args!(" {}.sources=[", field.name()));
            let mut between = "";
            while let Some(error) = source {
                self.text.push_str(between);
                self.write_escaped(format_args!("{error}"));
                between = ", ";
                source = error.source();
            }
            self.text.push(']');
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match self.begin(field) {
            true => self.write_escaped(format_args!("{value:?}")),
            false => self.write(format_args!("{value:?}")),
        }
    }
}

/// Escapes control characters, except line ends and tabs.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
        let mut rest = text;
        while let Some(at) = rest.find(is_control) {
            let (plain, control) = rest.split_at(at);
            self.0.push_str(plain);
            let mut behind = control.chars();
            if let Some(control) = behind.next() {
                match control.is_ascii() {
                    true => write!(self.0, "\\x{:02x}", u32::from(control))?,
                    false => self.0.extend(control.escape_unicode()),
                }
            }
            rest = behind.as_str();
        }
        self.0.push_str(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::fmt::{MakeWriter, format::DefaultFields};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn written<F>(fields: F, write: impl Fn()) -> String
    where
        F: for<'a> FormatFields<'a> + Send + Sync + 'static,
    {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(lines.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(fields)
            .finish();
        tracing::subscriber::with_default(subscriber, write);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_line_is_the_same_as_that_of_the_default_formatter() {
        let write = || {
            let error = io::Error::other("cut\u{7} off");
            let (absent, present) = (None::<&str>, Some("anna"));
            tracing::info!(
                request.id = "req_1",
                user = present,
                absent,
                status = 200_u16,
                negative = -3_i64,
                duration_ms = 1.25_f64,
                cost_usd = Some(0.000_001_f64),
                disconnected = true,
                r#type = "a \"quoted\" \\ text",
                hostile = "\u{1b}[31mred\u{1b}[0m\nnext",
                foreign = "grüße 日本",
                listed = ?["a", "b"],
                shown = %"shown",
                error = &error as &(dyn Error + 'static),
                "request {}",
                1
            );
            tracing::warn!("only a message with \u{1b}[31m colours");
            let span = tracing::info_span!("request", request.id = "req_2", n = 7);
            let _inside = span.enter();
            tracing::info!(inside = "yes", "inside of a span");
        };
        assert_eq!(written(PlainFields, write), written(DefaultFields::new(), write));
    }

    #[test]
    fn no_control_character_of_a_message_reaches_the_log() {
        let text = written(PlainFields, || tracing::info!("a\u{1b}]0;title\u{7}b\u{9b}c\rd\te"));
        assert!(!text.trim_end().chars().any(|c| c.is_control() && c != '\t'), "{text:?}");
        assert!(text.contains("title") && text.contains('\t'), "{text:?}");
    }
}
