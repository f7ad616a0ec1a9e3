//! The list of arguments that an agent's own configuration allows.

use std::collections::BTreeSet;

/// Stands for every argument in a list. It is accepted for commands without a table of options.
const ALLOW_ALL: &str = "*";

/// The arguments that an agent allows for one of its runtimes, beside those that are allowed without being listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allow(BTreeSet<String>);

/// Why a list of allowed arguments cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// The list is longer than a report may carry.
    #[error("at most {most} arguments can be listed, and there are {0}", most = Allow::MOST)]
    TooMany(usize),
    /// The entry is not an argument that could be passed.
    #[error(
        "{0:?} is no argument: write an option as `--name`, without a value, of 1 to {longest} characters",
        longest = Allow::LONGEST
    )]
    Entry(String),
    /// `*` was listed for an engine with a table. The table says what each option does, so each is named.
    #[error("\"*\" is only for a command without a table of options: name the options one by one")]
    Everything,
}

impl Allow {
    /// The maximum number of entries in one list.
    pub const MOST: usize = 128;
    /// The maximum number of characters in one entry.
    pub const LONGEST: usize = 128;

    /// Checks a list. `has_table` says whether the runtime's engine has a table of options.
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

    /// Returns whether every argument is allowed.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.0.contains(ALLOW_ALL)
    }

    /// Returns whether this argument is listed.
    #[must_use]
    pub fn has(&self, argument: &str) -> bool {
        self.0.contains(argument)
    }

    /// Returns whether nothing is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the entries in order.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
