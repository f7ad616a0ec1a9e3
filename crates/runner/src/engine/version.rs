//! Versions of engines, as far as they can be compared.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version: numbers that are compared from left to right. A suffix such as `+cpu` or `rc1` is ignored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct EngineVersion(Vec<u64>);

impl EngineVersion {
    /// Parses a text such as `0.32.0+cpu`, `v0.17` or `b11669`. Returns `None` if it does not begin with a number.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start_matches(['v', 'b']);
        let numbers: &str = text.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        let numbers = numbers.split('.').take_while(|part| !part.is_empty());
        let mut numbers = numbers.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        // 0.30 and 0.30.0 are the same version.
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        (!numbers.is_empty()).then_some(Self(numbers))
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let version = |text| EngineVersion::parse(text).unwrap();
        assert!(version("0.9.2") < version("0.10"));
        assert!(version("0.32.0+cpu") == version("0.32"));
        assert!(version("b11669") > version("b9999"));
        assert!(version("1.2rc1") >= version("1.2"));
        for text in ["", "latest", ".1", "v", "99999999999999999999"] {
            assert_eq!(EngineVersion::parse(text), None, "{text}");
        }
    }
}
