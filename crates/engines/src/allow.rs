//! The list of arguments that an agent's own configuration allows.

use std::collections::BTreeSet;

/// In a list, stands for every argument. Only a command of an operator's own may be given it.
pub const ALLOW_ALL: &str = "*";

/// The arguments that an agent allows for one of its runtimes, beside those that need nobody's leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allow(BTreeSet<String>);

/// Why a list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// Longer than a report may carry.
    #[error("at most {most} arguments can be listed, and there are {0}", most = Allow::MOST)]
    TooMany(usize),
    /// No argument that anybody could pass.
    #[error(
        "{0:?} is no argument: write an option as `--name`, without a value, of 1 to {longest} characters",
        longest = Allow::LONGEST
    )]
    Entry(String),
    /// A table says what each option does, so each is named.
    #[error("\"*\" is only for a command without a table of options: name the options one by one")]
    Everything,
}

impl Allow {
    /// The most entries of one list.
    pub const MOST: usize = 128;
    /// The most characters of one entry.
    pub const LONGEST: usize = 128;

    /// Checks a list, of a runtime with a table of options or without.
    pub fn new<S: AsRef<str>>(entries: &[S], has_table: bool) -> Result<Self, AllowError> {
        if entries.len() > Self::MOST {
            return Err(AllowError::TooMany(entries.len()));
        }
        let entries: BTreeSet<String> = entries.iter().map(|entry| entry.as_ref().to_owned()).collect();
        for entry in &entries {
            let is_word = entry.chars().all(|letter| letter.is_ascii_graphic()) && !entry.contains('=');
            let has_name = entry.trim_start_matches('-').starts_with(|first: char| first.is_ascii_alphanumeric());
            let is_usable = is_word && (has_name || entry == ALLOW_ALL) && entry.len() <= Self::LONGEST;
            if !is_usable {
                return Err(AllowError::Entry(entry.clone()));
            }
        }
        if has_table && entries.contains(ALLOW_ALL) {
            return Err(AllowError::Everything);
        }
        Ok(Self(entries))
    }

    /// Whether everything is allowed.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.contains(ALLOW_ALL)
    }

    /// Whether this argument is listed.
    #[must_use]
    pub fn has(&self, argument: &str) -> bool {
        self.0.contains(argument)
    }

    /// Whether nothing is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
