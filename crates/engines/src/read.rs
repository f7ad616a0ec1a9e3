//! Reading arguments as an engine reads them.

use crate::argparse;
use crate::table::{self, OptionSpec, Takes};
use crate::{Engine, Meaning};

/// One option with its values, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedOption<'a> {
    /// The argument that names the option.
    pub word: &'a str,
    /// The full name. A switch that is turned off has `--no-` in front.
    pub name: String,
    /// The row of the engine's table, if it has one.
    pub known: Option<OptionSpec>,
    /// The values in order.
    pub values: Vec<&'a str>,
    /// Whether the option states a part of a JSON value, as `--speculative-config.model` does.
    pub is_part: bool,
}

impl ParsedOption<'_> {
    /// Returns the option's name in the table, or the name as written where the table has none.
    #[must_use]
    pub fn canonical(&self) -> &str {
        self.known.map_or(self.name.as_str(), |known| known.name())
    }

    /// Returns the meaning, where the table has one.
    #[must_use]
    pub fn means(&self) -> Option<Meaning> {
        self.known.map(|known| known.means)
    }

    /// Returns the value, if there is exactly one.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.values.first().copied()
    }
}

/// Why an engine could not read arguments, or would not read them as they look.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misread {
    /// A word that belongs to no option.
    #[error("{0:?} belongs to no option: write the option before it")]
    Stray(String),
    /// An option without its value.
    #[error("{0} wants a value: write it behind the option")]
    NoValue(String),
    /// A value behind a `=`, for an option that takes none.
    #[error("{0} takes no value: remove what follows the `=`")]
    NeedlessValue(String),
    /// `--option=value`, for an engine that does not accept that spelling.
    #[error("the engine does not take {option}={value}: write {option} and {value} as two arguments")]
    Joined {
        /// The option's name.
        option: String,
        /// The value behind the `=`.
        value: String,
    },
    /// A prefix of more than one option.
    #[error("{word} may stand for {first} or {second}: write the option in full")]
    Ambiguous {
        /// The prefix as it was written.
        word: String,
        /// One option with that prefix.
        first: String,
        /// Another option with that prefix.
        second: String,
    },
}

/// A word that names an option, in full, with the value that is joined to it.
pub(crate) struct Spelled<'a> {
    pub(crate) name: String,
    pub(crate) joined: Option<&'a str>,
    pub(crate) known: Option<OptionSpec>,
    pub(crate) is_part: bool,
}

pub(crate) fn read<S: AsRef<str>>(engine: Engine, args: &[S]) -> Result<Vec<ParsedOption<'_>>, Misread> {
    let words: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let mut options = Vec::new();
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        at += 1;
        if !is_option(word) {
            return Err(Misread::Stray(word.to_owned()));
        }
        let next = words.get(at).copied();
        let spelled = match engine {
            Engine::LlamaServer => exact(engine, word)?,
            Engine::Vllm => argparse::spelled(word, next)?,
            Engine::Ollama => own_word(engine, word),
        };
        let values = values(engine, &spelled, word, words.get(at..).unwrap_or_default())?;
        if spelled.joined.is_none() {
            at += values.len();
        }
        options.push(ParsedOption { word, name: spelled.name, known: spelled.known, values, is_part: spelled.is_part });
    }
    Ok(options)
}

/// Reads a word for llama-server, which accepts exact names, underscores for hyphens in long ones, and no
/// `--option=value`.
fn exact<'a>(engine: Engine, word: &'a str) -> Result<Spelled<'a>, Misread> {
    let name = if word.starts_with("--") { word.replace('_', "-") } else { word.to_owned() };
    let known = table::named(engine, &name);
    if known.is_none()
        && let Some((option, value)) = word.split_once('=')
    {
        return Err(Misread::Joined { option: option.to_owned(), value: value.to_owned() });
    }
    Ok(Spelled { name, joined: None, known, is_part: false })
}

/// Reads a word for an engine whose options the agent turns into variables: `--name value` and `--name=value`.
fn own_word<'a>(engine: Engine, word: &'a str) -> Spelled<'a> {
    let (name, joined) = split(word);
    Spelled { name: name.to_owned(), joined, known: table::named(engine, name), is_part: false }
}

fn split(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    }
}

/// Returns the values of an option: what is joined to it, or the words that follow.
fn values<'a>(engine: Engine, spelled: &Spelled<'a>, word: &str, rest: &[&'a str]) -> Result<Vec<&'a str>, Misread> {
    let no_value = || Misread::NoValue(word.to_owned());
    let is_value = |next: &&str| match engine {
        // llama-server takes the next word, whatever it is. Another option there is a mistake that llama-server would
        // not notice.
        Engine::LlamaServer => table::named(engine, next).is_none(),
        Engine::Vllm | Engine::Ollama => !is_option(next),
    };
    let count = match spelled.known.map(|known| known.takes) {
        _ if spelled.is_part => Takes::One,
        // A word behind an option that is not in the table counts as its value, unless it looks like an option.
        None => Takes::Maybe,
        Some(takes) => takes,
    };
    if let Some(joined) = spelled.joined {
        let is_needless = matches!(count, Takes::Nothing | Takes::Switch);
        return if is_needless { Err(Misread::NeedlessValue(word.to_owned())) } else { Ok(vec![joined]) };
    }
    let is_value_of_unknown = |next: &&str| !is_option(next);
    let following = |most: usize| {
        let known = spelled.known.is_some() || spelled.is_part;
        let fits = |next: &&str| if known { is_value(next) } else { is_value_of_unknown(next) };
        rest.iter().take(most).copied().take_while(|next| fits(next)).collect::<Vec<_>>()
    };
    match count {
        Takes::Nothing | Takes::Switch => Ok(Vec::new()),
        Takes::Maybe => Ok(following(1)),
        Takes::One => Some(following(1)).filter(|found| found.len() == 1).ok_or_else(no_value),
        Takes::Two => Some(following(2)).filter(|found| found.len() == 2).ok_or_else(no_value),
        Takes::Several => Some(following(usize::MAX)).filter(|found| !found.is_empty()).ok_or_else(no_value),
    }
}

/// Returns whether a word names an option. A negative number does not.
pub(crate) fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}

/// Returns the options among these arguments that the table has, in any spelling.
pub(crate) fn recognise<S: AsRef<str>>(engine: Engine, args: &[S]) -> Vec<ParsedOption<'_>> {
    let mut options = Vec::new();
    let mut words = args.iter().map(AsRef::as_ref).peekable();
    while let Some(word) = words.next() {
        let (spelled, joined) = split(word);
        let (key, is_part) = spelled.split_once('.').map_or((spelled, false), |(key, _)| (key, true));
        let name = if key.starts_with("--") { key.replace('_', "-") } else { key.to_owned() };
        let Some(known) = table::named(engine, &name) else { continue };
        let mut values: Vec<&str> = joined.into_iter().collect();
        let takes_more = !matches!(known.takes, Takes::Nothing | Takes::Switch) || is_part;
        if joined.is_none() && takes_more {
            values.extend(words.next_if(|next| !is_option(next)));
        }
        options.push(ParsedOption { word, name, known: Some(known), values, is_part });
    }
    options
}
