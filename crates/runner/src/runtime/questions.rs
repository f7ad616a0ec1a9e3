//! Health probes over HTTP: as configured, and as rendered for one slot.

use berth_domain::{RuntimeName, Span};
use berth_engines::Engine;
use serde::{Deserialize, Serialize};

use super::config::ConfigError;
use super::template::Template;

/// The readiness probe: `GET path` answers 2xx, and, where `model_path` is given, `GET model_path` answers 2xx with
/// JSON that names the model. Both may contain variables; their values are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The path that is probed first.
    pub path: String,
    /// The path whose answer must name the model. A program may be healthy without the model that the slot is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_path: Option<String>,
    /// The longest interval between probes: they are more frequent at first.
    #[serde(default = "Ready::every")]
    pub every: Span,
    /// How long the program may take to become ready.
    #[serde(default = "Ready::deadline")]
    pub deadline: Span,
}

impl Ready {
    fn every() -> Span {
        Span::from_millis(200)
    }

    fn deadline() -> Span {
        Span::from_secs(600)
    }

    pub(super) fn at(path: &str) -> Self {
        Self { path: path.to_owned(), model_path: None, every: Self::every(), deadline: Self::deadline() }
    }

    /// Returns the same probe for a program whose answer at `model_path` must name the model.
    pub(super) fn naming_the_model_at(self, model_path: &str) -> Self {
        Self { model_path: Some(model_path.to_owned()), ..self }
    }
}

/// The liveness probe: `GET path` answers 2xx, except for some failures in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// The path, which may contain variables.
    pub path: String,
    /// The interval between probes, at least a second.
    #[serde(default = "Live::every")]
    pub every: Span,
    /// How many failures in a row mean that the program no longer serves.
    #[serde(default = "Live::failures")]
    pub failures: u32,
}

impl Live {
    fn every() -> Span {
        Span::from_secs(5)
    }

    fn failures() -> u32 {
        3
    }

    pub(super) fn at(path: &str) -> Self {
        Self { path: path.to_owned(), every: Self::every(), failures: Self::failures() }
    }
}

/// A health probe of one slot, with all variables filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The path that must answer 2xx.
    pub path: String,
    /// The path whose answer must name the model, and the names that count.
    pub model: Option<ModelQuestion>,
}

/// The second part of a probe: whether the program has the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelQuestion {
    /// The path that must answer 2xx with JSON that contains one of the names.
    pub path: String,
    /// The names under which the program may list the model.
    pub names: Vec<String>,
}

impl ModelQuestion {
    /// Returns the probe of `engine` for `model`, whose name is already part of `path` if the path has a variable for
    /// it.
    pub(super) fn new(engine: Option<Engine>, path: String, model: &str) -> Self {
        let mut names = vec![model.to_owned()];
        if engine != Some(Engine::Ollama) {
            return Self { path, names };
        }
        // Ollama lists a model that was named without a tag under its tag `latest`.
        names.push(format!("{model}:latest"));
        // Ollama's router does not accept an encoded slash in a name, so such a model is looked up in the list.
        let path = if model.contains('/') { "/v1/models".to_owned() } else { path };
        Self { path, names }
    }
}

/// The probes of a runtime, with their paths parsed once.
#[derive(Clone, Debug)]
pub(super) struct Questions {
    pub(super) ready: Option<(Ready, Template, Option<Template>)>,
    pub(super) live: Option<(Live, Template)>,
}

impl Questions {
    pub(super) fn parse(name: &RuntimeName, ready: Option<&Ready>, live: Option<&Live>) -> Result<Self, ConfigError> {
        let path = |text: &str| parse_path(name, text);
        let ready = ready.map(|ready| {
            let model_path = ready.model_path.as_deref().map(path).transpose()?;
            Ok::<_, ConfigError>((ready.clone(), path(&ready.path)?, model_path))
        });
        let live = live.map(|live| Ok::<_, ConfigError>((live.clone(), path(&live.path)?)));
        Ok(Self { ready: ready.transpose()?, live: live.transpose()? })
    }
}

fn parse_path(runtime: &RuntimeName, text: &str) -> Result<Template, ConfigError> {
    if !(text.starts_with('/') && text.chars().all(|c| c.is_ascii_graphic())) {
        return Err(ConfigError::Path { runtime: runtime.clone(), path: text.to_owned() });
    }
    Template::parse(text).map_err(|error| ConfigError::Template { runtime: runtime.clone(), error })
}

/// Percent-encodes a value as one segment of a path, so that a `/`, a `?` or a blank in a name stays part of the name.
pub(super) fn path_segment(value: &str) -> String {
    let mut segment = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' => {
                segment.push(char::from(byte));
            }
            byte => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_segment_of_the_path() {
        assert_eq!(path_segment("llama3:8b"), "llama3:8b");
        assert_eq!(path_segment("Qwen/Qwen2 ?#é"), "Qwen%2FQwen2%20%3F%23%C3%A9");
    }

    #[test]
    fn ollama_is_asked_for_its_list_where_its_router_cannot_take_the_name() {
        let asked = |model: &str| ModelQuestion::new(Some(Engine::Ollama), "/v1/models/x".into(), model);
        assert_eq!(asked("x").path, "/v1/models/x");
        assert_eq!(asked("x").names, ["x", "x:latest"]);
        assert_eq!(asked("hf.co/a/b:Q4").path, "/v1/models");
        assert_eq!(ModelQuestion::new(Some(Engine::Vllm), "/v1/models".into(), "a/b").names, ["a/b"]);
    }
}
