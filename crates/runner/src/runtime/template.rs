//! Texts with variables: parsed once, when the configuration is read, so that a mistake is reported there.

use std::fmt;

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The variable does not exist.
    #[error("{{{0}}} is not a variable")]
    UnknownVariable(String),
    /// A brace is not closed or not opened.
    #[error("{0:?} has a brace without its other half: write {{{{ for a brace")]
    Brace(String),
    /// `{args}` is a list, and must be a whole element.
    #[error("{{args}} stands for several elements, so it must be an element of its own: {0:?}")]
    ArgsInside(String),
    /// The text has a control character that no program can be given.
    #[error("a NUL cannot be part of {0:?}")]
    Nul(String),
}

/// The variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Model,
    Slot,
    Generation,
    Bind,
    Address,
    Port,
    GpuCount,
    Utilization,
    MemoryBytes,
    MemoryMib,
    CpuMillicores,
    RamBytes,
    Concurrency,
    /// The value of the last of these options that the slot has, else the default if there is one.
    Arg {
        options: Vec<String>,
        default: Option<String>,
    },
}

impl Variable {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "model" => Self::Model,
            "slot" => Self::Slot,
            "generation" => Self::Generation,
            "bind" => Self::Bind,
            "address" => Self::Address,
            "port" => Self::Port,
            "gpu_count" => Self::GpuCount,
            "utilization" => Self::Utilization,
            "memory_bytes" => Self::MemoryBytes,
            "memory_mib" => Self::MemoryMib,
            "cpu_millicores" => Self::CpuMillicores,
            "ram_bytes" => Self::RamBytes,
            "concurrency" => Self::Concurrency,
            _ => {
                let named = name.strip_prefix("arg:")?;
                let (named, default) = match named.split_once('=') {
                    Some((named, default)) => (named, Some(default.to_owned())),
                    None => (named, None),
                };
                let options: Vec<String> = named.split('|').map(str::to_owned).collect();
                options
                    .iter()
                    .all(|option| option.len() > 1 && option.starts_with('-'))
                    .then_some(Self::Arg { options, default })?
            }
        })
    }

    /// Returns whether the agent decides the value for this slot: arguments of a model may not state another.
    pub(super) fn is_decided_here(&self) -> bool {
        match self {
            Self::Bind | Self::Address | Self::Port | Self::GpuCount | Self::Utilization => true,
            // These limit what a slot may use: more of it would belong to other slots.
            Self::MemoryBytes | Self::MemoryMib | Self::CpuMillicores | Self::RamBytes => true,
            Self::Model | Self::Slot | Self::Generation | Self::Concurrency | Self::Arg { .. } => false,
        }
    }

    /// Returns whether the value comes from the author of the model or the job.
    pub(super) fn is_from_the_network(&self) -> bool {
        matches!(self, Self::Model | Self::Arg { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Variable(Variable),
}

/// One text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

/// One element of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// All arguments of the slot.
    Args,
    /// One element, or none.
    One(Template),
}

impl Element {
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        if text == "{args}" { Ok(Self::Args) } else { Template::parse(text).map(Self::One) }
    }

    pub(super) fn template(&self) -> Option<&Template> {
        match self {
            Self::Args => None,
            Self::One(template) => Some(template),
        }
    }
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.contains('\0') {
            return Err(TemplateError::Nul(text.replace('\0', "\\0")));
        }
        let brace = || TemplateError::Brace(text.to_owned());
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = from.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else {
                let (name, after) = from.strip_prefix('{').and_then(|from| from.split_once('}')).ok_or_else(brace)?;
                if name == "args" {
                    return Err(TemplateError::ArgsInside(text.to_owned()));
                }
                let variable = Variable::parse(name).ok_or_else(|| TemplateError::UnknownVariable(name.to_owned()))?;
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Variable(variable));
                rest = after;
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable),
            Piece::Text(_) => None,
        })
    }

    /// Returns the text, if it has no variables.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    pub(super) fn begins_with_a_variable(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Variable(_)))
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "model",
            Self::Slot => "slot",
            Self::Generation => "generation",
            Self::Bind => "bind",
            Self::Address => "address",
            Self::Port => "port",
            Self::GpuCount => "gpu_count",
            Self::Utilization => "utilization",
            Self::MemoryBytes => "memory_bytes",
            Self::MemoryMib => "memory_mib",
            Self::CpuMillicores => "cpu_millicores",
            Self::RamBytes => "ram_bytes",
            Self::Concurrency => "concurrency",
            Self::Arg { options, default } => {
                let default = default.as_ref().map(|default| format!("={default}")).unwrap_or_default();
                return write!(f, "arg:{}{default}", options.join("|"));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        Template::parse(text).unwrap().variables().map(ToString::to_string).collect()
    }

    #[test]
    fn variables_are_found_and_braces_can_be_written() {
        assert_eq!(names("http://{address}:{port}/"), ["address", "port"]);
        assert_eq!(names("{arg:--ctx-size|-c}"), ["arg:--ctx-size|-c"]);
        assert_eq!(names("{arg:--ctx-size|-c=512}"), ["arg:--ctx-size|-c=512"]);
        assert_eq!(Template::parse("{{\"a\": 1}}").unwrap().literal(), Some("{\"a\": 1}"));
        assert_eq!(Element::parse("{args}"), Ok(Element::Args));
    }

    #[test]
    fn invalid_templates_are_refused_by_kind() {
        assert_eq!(Template::parse("{modle}"), Err(TemplateError::UnknownVariable("modle".into())));
        assert_eq!(Template::parse("{arg:ctx}"), Err(TemplateError::UnknownVariable("arg:ctx".into())));
        for text in ["{model", "model}", "{", "}"] {
            assert_eq!(Template::parse(text), Err(TemplateError::Brace(text.into())));
        }
        assert_eq!(Element::parse("--x={args}"), Err(TemplateError::ArgsInside("--x={args}".into())));
        assert!(matches!(Template::parse("a\0b"), Err(TemplateError::Nul(_))));
    }
}
