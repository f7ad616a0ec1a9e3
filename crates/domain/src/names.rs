//! Names that come from outside. They are validated once and cheap to copy.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The error for a text that is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a {0} must not be empty")]
    Empty(&'static str),
    /// The text is too long.
    #[error("a {kind} has at most {limit} bytes, this one has {length}")]
    TooLong {
        /// The kind of name.
        kind: &'static str,
        /// The largest number of bytes that such a name may have.
        limit: usize,
        /// The number of bytes of the text.
        length: usize,
    },
    /// The text has a control character.
    #[error("a {0} must not contain control characters")]
    ControlCharacter(&'static str),
    /// The text has a character that makes it look like another text.
    #[error("a {0} must not contain characters that change the direction of text or end a line (U+{1:04X})")]
    Misleading(&'static str, u32),
    /// The text has a path segment `.` or `..`.
    #[error("a {0} must not contain `.` or `..` as a path segment")]
    PathSegment(&'static str),
    /// The text begins or ends with white space.
    #[error("a {0} must not begin or end with white space")]
    WhiteSpace(&'static str),
}

/// Returns whether a character makes a text look like another one: it changes the direction of what follows, or ends a
/// line although it is no line feed.
#[must_use]
pub const fn is_misleading(character: char) -> bool {
    matches!(
        character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' // direction
            | '\u{2028}' | '\u{2029}' // lines and paragraphs
    )
}

fn check(kind: &'static str, limit: usize, text: &str) -> Result<(), NameError> {
    check_shown(kind, limit, text)?;
    if text.is_empty() {
        return Err(NameError::Empty(kind));
    }
    if text.trim() != text {
        return Err(NameError::WhiteSpace(kind));
    }
    if text.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(NameError::PathSegment(kind));
    }
    Ok(())
}

/// Checks a text that listings show among others.
fn check_shown(kind: &'static str, limit: usize, text: &str) -> Result<(), NameError> {
    check_text(kind, limit, text)?;
    match text.chars().find(|character| is_misleading(*character)) {
        Some(misleading) => Err(NameError::Misleading(kind, misleading.into())),
        None => Ok(()),
    }
}

fn check_text(kind: &'static str, limit: usize, text: &str) -> Result<(), NameError> {
    if text.len() > limit {
        return Err(NameError::TooLong { kind, limit, length: text.len() });
    }
    if text.chars().any(char::is_control) {
        return Err(NameError::ControlCharacter(kind));
    }
    Ok(())
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $limit:literal, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "Arc<str>")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes a name of a text that keeps the rules of such names.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                let text = text.as_ref();
                $check($kind, $limit, text)?;
                Ok(Self(Arc::from(text)))
            }

            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for Arc<str> {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text_type! {
    /// The id of a runner.
    RunnerId, "runner id", 128, check
}
text_type! {
    /// The id of a machine, which several runners may share.
    MachineId, "machine id", 128, check
}
text_type! {
    /// The id of one boot of a machine.
    BootId, "boot id", 128, check
}
text_type! {
    /// The name of a catalogue entry. It may contain `/`.
    ModelName, "model name", 256, check
}
text_type! {
    /// The name of a pool of runners.
    PoolName, "pool name", 128, check
}
text_type! {
    /// The key of a label.
    LabelKey, "label key", 128, check
}
text_type! {
    /// The value of a label. It may be empty.
    LabelValue, "label value", 256, check_shown
}
text_type! {
    /// The name of a runtime that an agent can start.
    RuntimeName, "runtime name", 64, check
}
text_type! {
    /// The name that the driver gives to a GPU.
    GpuName, "GPU name", 128, check
}
text_type! {
    /// The name of a tenant, to which workloads belong.
    TenantName, "tenant name", 128, check
}
text_type! {
    /// The owner of a workload: a token or a tenant, as the server writes it.
    Owner, "owner", 256, check
}
text_type! {
    /// A submitter's own key, prefixed with the submitter's token. The same key is the same workload.
    IdempotencyKey, "idempotency key", 512, check
}
text_type! {
    /// The address at which a ready slot answers.
    Endpoint, "endpoint", 512, check
}
text_type! {
    /// One element of an argument list. It may be empty.
    Arg, "argument", 4096, check_text
}
text_type! {
    /// The path of a file, on the machine that reads it.
    FilePath, "path", 4096, check
}
text_type! {
    /// A text of a person or an agent that is kept on record.
    ReasonText, "reason", 1024, check_text
}
text_type! {
    /// The UUID of one physical pool of GPU memory. Replica suffixes (`GPU-uuid::3`) are not part of it.
    DeviceUuid, "GPU UUID", 128, check
}

impl PoolName {
    /// Returns the pool of runners and models that name no pool. It is one pool, not all pools.
    #[must_use]
    pub fn default_pool() -> Self {
        Self(Arc::from("default"))
    }
}

impl DeviceUuid {
    /// Returns the physical device behind an advertised name: a time-sliced replica is a name, not memory.
    pub fn physical(advertised: &str) -> Result<Self, NameError> {
        let base = advertised.split_once("::").map_or(advertised, |(base, _)| base);
        Self::new(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_name_is_a_name_and_a_climb_is_not() {
        assert!(ModelName::new("Qwen/Qwen2.5-VL-7B-Instruct").is_ok());
        for bad in ["", "..", "a/../b", "a\0b", "a\nb", " a", &"x".repeat(10_000)] {
            assert!(ModelName::new(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_name_does_not_look_like_another_one() {
        for letter in ["\u{202e}", "\u{2066}", "\u{200f}", "\u{61c}", "\u{2028}", "\u{2029}", "\u{85}"] {
            let text = format!("a{letter}b");
            assert!(ModelName::new(&text).is_err() && LabelValue::new(&text).is_err(), "{}", text.escape_unicode());
            assert!(RunnerId::new(&text).is_err() && PoolName::new(&text).is_err());
        }
        assert!(ModelName::new("\u{645}\u{62f}\u{644}").is_ok(), "a script that runs from right to left is no trick");
        assert!(ReasonText::new("a\u{202e}b").is_ok(), "words are escaped where they are shown");
    }

    #[test]
    fn g1_a_replica_is_the_same_device() {
        assert_eq!(DeviceUuid::physical("GPU-a::99"), DeviceUuid::new("GPU-a"));
        assert_eq!(DeviceUuid::physical("GPU-a"), DeviceUuid::new("GPU-a"));
    }
}
