//! Logs: text for people or JSON for machines, to stderr, with a level that can be changed while the server runs.
//!
//! A line leaves at once, but for those of a thread that said it has more to say ([`hold`]): a thousand decisions a
//! second need not be a thousand writes.

use std::cell::Cell;
use std::fmt::{self, Debug, Write as _};
use std::io::{self, Write};

use parking_lot::Mutex;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{LogConfig, LogFormat};

/// The way to change what is logged.
#[derive(Clone)]
pub struct LogLevel {
    handle: Option<reload::Handle<EnvFilter, Registry>>,
}

impl Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogLevel({})", self.get())
    }
}

/// Starts logging. Called once, by the binary.
pub fn init(config: &LogConfig) -> Result<LogLevel, String> {
    let (filter, handle) = reload::Layer::new(parse_filter(&config.filter)?);
    let layer = tracing_subscriber::fmt::layer().with_writer(|| Line);
    let layer = match config.format {
        LogFormat::Text if io::IsTerminal::is_terminal(&io::stderr()) => layer.boxed(),
        LogFormat::Text => layer.with_ansi(false).fmt_fields(debug_fn(write_field).delimited(" ")).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let registry = Registry::default().with(filter).with(layer);
    registry.try_init().map_err(|error| error.to_string())?;
    Ok(LogLevel { handle: Some(handle) })
}

/// Writes one field without colour. The subscriber's own way asks a painter for each part of each field even then: a
/// third of what a line costs.
fn write_field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(Harmless(to), "{value:?}"),
        name => write!(to, "{name}={value:?}"),
    }
}

/// Keeps a text from talking to the terminal that shows it.
struct Harmless<'a, 'b>(&'a mut Writer<'b>);

impl fmt::Write for Harmless<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_harmful = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
        for piece in text.split_inclusive(is_harmful) {
            let last = piece.chars().next_back().filter(|last| is_harmful(*last));
            self.0.write_str(&piece[..piece.len() - last.map_or(0, char::len_utf8)])?;
            last.map_or(Ok(()), |last| write!(self.0, "{}", last.escape_default()))?;
        }
        Ok(())
    }
}

/// Lines that have not left yet.
static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// Held lines leave when there are so many bytes of them, whoever has more to say.
const MOST_HELD: usize = 64 * 1024;

thread_local! {
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread's lines wait for its next [`flush`], but not for long.
pub(crate) fn hold() {
    HOLDS.set(true);
}

/// Lets every line leave.
pub(crate) fn flush() {
    let lines = std::mem::take(&mut *LINES.lock());
    if !lines.is_empty() {
        // Nobody reads any more: there is nobody to tell.
        drop(io::stderr().write_all(&lines));
    }
}

/// One line on its way.
struct Line;

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !HOLDS.get() || LINES.lock().len() > MOST_HELD {
            flush();
        }
    }
}

/// Reads a filter such as `info` or `info,berth::decision=debug`.
pub(crate) fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    if text.trim().is_empty() || text.len() > 1024 {
        return Err("a filter has 1 to 1024 characters: write a level such as `info`".into());
    }
    EnvFilter::builder().parse(text).map_err(|error| {
        format!("{text:?} is no filter ({error}): write a level such as `info`, or `info,berth::decision=debug`")
    })
}

impl LogLevel {
    /// A handle that changes nothing: for servers inside other programs.
    #[must_use]
    pub fn fixed() -> Self {
        Self { handle: None }
    }

    /// What is logged now.
    #[must_use]
    pub fn get(&self) -> String {
        let current = self.handle.as_ref().and_then(|handle| handle.with_current(ToString::to_string).ok());
        current.unwrap_or_else(|| "fixed".into())
    }

    /// Logs this from now on.
    pub fn set(&self, filter: &str) -> Result<(), String> {
        let parsed = parse_filter(filter)?;
        match &self.handle {
            Some(handle) => handle.reload(parsed).map_err(|error| error.to_string()),
            None => Err("the log level of this server is fixed".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_talk_to_the_terminal() {
        let mut text = String::new();
        let plain = "runner-1 said: \u{e4}rger\tand\nmore";
        write!(Harmless(&mut Writer::new(&mut text)), "{plain}\u{1b}[2J\u{7}\u{9b}31m").unwrap();
        assert_eq!(text, format!("{plain}\\u{{1b}}[2J\\u{{7}}\\u{{9b}}31m"));
    }
}
