//! Logs: text for people or JSON for machines, to stderr, with a level that can be changed while the server runs.

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{LogConfig, LogFormat};

/// The way to change what is logged.
#[derive(Clone)]
pub struct LogLevel {
    handle: Option<reload::Handle<EnvFilter, Registry>>,
}

impl std::fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogLevel({})", self.get())
    }
}

/// Starts logging. Called once, by the binary.
pub fn init(config: &LogConfig) -> Result<LogLevel, String> {
    let (filter, handle) = reload::Layer::new(parse_filter(&config.filter)?);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match config.format {
        LogFormat::Text => layer.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let registry = Registry::default().with(filter).with(layer);
    registry.try_init().map_err(|error| error.to_string())?;
    Ok(LogLevel { handle: Some(handle) })
}

/// Reads a filter such as `info` or `info,berth::decision=debug`.
pub(crate) fn parse_filter(text: &str) -> Result<EnvFilter, String> {
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
