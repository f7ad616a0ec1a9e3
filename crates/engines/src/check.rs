//! Which arguments a model entry or a job may pass.

use std::fmt;

use crate::read::{Misread, ParsedOption, is_option};
use crate::{Allow, Engine, Meaning};

/// The kind of object that arguments come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgumentSource {
    /// A model entry, which an admin wrote.
    Model,
    /// A job, which a submitter wrote.
    Job,
}

/// An argument that may not be passed, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The argument as it was written.
    pub argument: String,
    /// The rule that forbids it.
    pub why: Why,
}

/// The rule that forbids an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The agent must allow the option by name, because of what it means.
    NotAllowed(Meaning),
    /// The option is in no table, so the agent must allow it by name.
    Unknown(Engine),
    /// A job of a command without a table: the agent must allow each of its arguments by name.
    NotListed,
    /// The option would change what the job's model was charged for.
    ChangesClaim(Meaning),
    /// The engine could not read the argument.
    Misread(Misread),
}

impl Forbidden {
    /// Returns whether the agent's configuration could allow the argument.
    #[must_use]
    pub const fn could_be_allowed(&self) -> bool {
        matches!(self.why, Why::NotAllowed(_) | Why::Unknown(_) | Why::NotListed)
    }
}

/// Says what is wrong. What to do about it depends on the reader, so the caller adds it.
impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let argument = &self.argument;
        match &self.why {
            Why::NotAllowed(meaning) => write!(f, "{argument} {meaning}"),
            Why::Unknown(engine) => write!(f, "{argument} is not an option that Berth knows of {}", engine.name()),
            Why::NotListed => write!(f, "jobs may not pass {argument}"),
            Why::ChangesClaim(meaning) => {
                write!(f, "{argument} {meaning}, and a job runs with what its model was charged for")
            }
            Why::Misread(misread) => misread.fmt(f),
        }
    }
}

/// Checks arguments against the table of an engine and the agent's list. Without an engine there is no table.
pub fn check<S: AsRef<str>>(
    engine: Option<Engine>,
    source: ArgumentSource,
    args: &[S],
    allow: &Allow,
) -> Result<(), Forbidden> {
    match (engine, source) {
        (None, ArgumentSource::Model) => Ok(()),
        (None, ArgumentSource::Job) => check_listed(args, allow),
        (Some(engine), _) => {
            let options = engine.read(args).map_err(misread)?;
            options.iter().try_for_each(|option| check_one(engine, source, option, allow))
        }
    }
}

/// Checks that the arguments of a job leave the claim of its model as it is, whatever the agent allows.
///
/// `words` is the engine in whose options the model was estimated. It matters for a command without a table, which has
/// no other check.
pub fn check_job_memory<S: AsRef<str>>(words: Engine, args: &[S]) -> Result<(), Forbidden> {
    words.recognise(args).iter().try_for_each(check_claim)
}

fn misread(misread: Misread) -> Forbidden {
    let argument = match &misread {
        Misread::Stray(word)
        | Misread::NoValue(word)
        | Misread::NeedlessValue(word)
        | Misread::Ambiguous { word, .. } => word.clone(),
        Misread::Joined { option, value } => format!("{option}={value}"),
    };
    Forbidden { argument, why: Why::Misread(misread) }
}

fn check_claim(option: &ParsedOption<'_>) -> Result<(), Forbidden> {
    match option.means().filter(|meaning| meaning.changes_claim()) {
        Some(meaning) => Err(Forbidden { argument: option.word.to_owned(), why: Why::ChangesClaim(meaning) }),
        None => Ok(()),
    }
}

fn check_one(
    engine: Engine,
    source: ArgumentSource,
    option: &ParsedOption<'_>,
    allow: &Allow,
) -> Result<(), Forbidden> {
    if source == ArgumentSource::Job {
        check_claim(option)?;
    }
    let is_allowed = match &option.known {
        Some(known) => allow.entries().any(|entry| known.has_name(entry)),
        None => allow.has(&option.name),
    };
    let why = match option.means() {
        Some(Meaning::Harmless | Meaning::Model | Meaning::Memory) => return Ok(()),
        _ if is_allowed => return Ok(()),
        Some(meaning) => Why::NotAllowed(meaning),
        None => Why::Unknown(engine),
    };
    Err(Forbidden { argument: option.word.to_owned(), why })
}

/// Checks a job without a table: each of its options must be listed. The word behind a listed option is its value,
/// unless it looks like an option itself; any other word must be listed too.
fn check_listed<S: AsRef<str>>(args: &[S], allow: &Allow) -> Result<(), Forbidden> {
    if allow.is_everything() {
        return Ok(());
    }
    let mut takes_value = false;
    for word in args.iter().map(AsRef::as_ref) {
        let is_named = is_option(word);
        if takes_value && !is_named {
            takes_value = false;
            continue;
        }
        let (name, is_joined) = match word.split_once('=') {
            Some((name, _)) if is_named => (name, true),
            _ => (word, false),
        };
        if !allow.has(name) {
            return Err(Forbidden { argument: word.to_owned(), why: Why::NotListed });
        }
        takes_value = is_named && !is_joined;
    }
    Ok(())
}
