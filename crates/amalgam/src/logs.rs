//! Log lines to standard error: text for people, JSON for machines.

use std::{
    io::{self, IsTerminal as _},
    sync::{Mutex, PoisonError},
};

use amalgam_logs::{LogOutput, PlainFields};
use anyhow::Context as _;
use tracing::{
    Subscriber,
    span::{Attributes, Id},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::{FormatFields as _, FormattedFields, format::JsonFields},
    layer::{Context, Layered, SubscriberExt as _},
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt as _,
};

use amalgam_configuration::{LogConfig, LogFormat};

/// Changes which lines are logged, and how they look.
pub(crate) struct LogFilter {
    filter: reload::Handle<EnvFilter, LogSubscriber>,
    lines: reload::Handle<Lines, Registry>,
    format: Mutex<LogFormat>,
}

/// Writes lines in one of the formats.
type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// What the filter is a layer of.
type LogSubscriber = Layered<SpanFields, Layered<reload::Layer<Lines, Registry>, Registry>>;

impl LogFilter {
    /// Applies a new filter and format from the next line on.
    pub(crate) fn set(&self, log: &LogConfig) -> anyhow::Result<()> {
        let filter = read(log)?;
        let mut format = self.format.lock().unwrap_or_else(PoisonError::into_inner);
        if *format != log.format {
            self.lines.reload(lines(log.format, LogOutput::current())).context("changing the log's format")?;
            *format = log.format;
        }
        self.filter.reload(filter).context("changing the log filter")
    }
}

/// Starts logging for the whole process.
pub(crate) fn init(log: &LogConfig) -> anyhow::Result<LogFilter> {
    let (lines, lines_handle) = reload::Layer::new(lines(log.format, LogOutput::start()));
    let (filter, filter_handle) = reload::Layer::new(read(log)?);
    let started = tracing_subscriber::registry().with(lines).with(SpanFields).with(filter).try_init();
    started.map_err(|error| anyhow::anyhow!("{error}")).context("starting the log")?;
    Ok(LogFilter { filter: filter_handle, lines: lines_handle, format: Mutex::new(log.format) })
}

fn lines(format: LogFormat, output: LogOutput) -> Lines {
    let lines = tracing_subscriber::fmt::layer().with_writer(output);
    match format {
        LogFormat::Text if io::stderr().is_terminal() => lines.boxed(),
        LogFormat::Text => lines.with_ansi(false).fmt_fields(PlainFields).boxed(),
        LogFormat::Json => lines.json().boxed(),
    }
}

/// Keeps the fields of spans for both formats, so that a span that is open while the format changes has them in the new one.
struct SpanFields;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanFields {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if extensions.get_mut::<FormattedFields<JsonFields>>().is_none() {
            let mut fields = FormattedFields::<JsonFields>::new(String::new());
            if JsonFields::new().format_fields(fields.as_writer(), attributes).is_ok() {
                extensions.insert(fields);
            }
        }
    }
}

fn read(log: &LogConfig) -> anyhow::Result<EnvFilter> {
    EnvFilter::builder().parse(&log.filter).context("reading the log filter")
}
