//! The spellings of options that vLLM accepts.
//!
//! Python's argparse accepts `--option=value`, `-o=value` and any prefix that belongs to one option. A short option of
//! one letter may have its value right behind it. vLLM also accepts underscores for hyphens in long names, parts of
//! JSON values behind a dot, and `-O3`.

use crate::Engine;
use crate::read::{Misread, Spelled, is_option};
use crate::table::{self, OptionSpec, Takes};

const OPTIMIZATION: &str = "--optimization-level";

/// Finds the option that a word names. `next` is the word behind it.
pub(crate) fn spelled<'a>(word: &'a str, next: Option<&str>) -> Result<Spelled<'a>, Misread> {
    if let Some(level) = word.strip_prefix("-O") {
        return Ok(optimization(word, level, next));
    }
    let (left, joined) = match word.split_once('=') {
        Some((left, value)) => (left, Some(value)),
        None => (word, None),
    };
    let (key, is_part) = left.split_once('.').map_or((left, false), |(key, _)| (key, true));
    let key = if key.starts_with("--") { key.replace('_', "-") } else { key.to_owned() };
    let found = candidates(&key);
    let whole = found.iter().find(|(name, _)| *name == key);
    if let Some((name, known)) = whole {
        return Ok(Spelled { name: name.clone(), joined, known: Some(*known), is_part });
    }
    // A one-letter option with its value right behind it, which may contain any character.
    let letter = letter_with_value(word).filter(|_| !is_part);
    match (found.as_slice(), letter) {
        ([], Some((name, known, value))) => {
            Ok(Spelled { name, joined: Some(value), known: Some(known), is_part: false })
        }
        ([(name, known)], None) => Ok(Spelled { name: name.clone(), joined, known: Some(*known), is_part }),
        ([], None) => Ok(Spelled { name: key, joined, known: None, is_part }),
        ([(first, _), (second, _), ..], _) => Err(ambiguous(word, first, second)),
        ([(first, _)], Some((second, ..))) => Err(ambiguous(word, first, &second)),
    }
}

fn ambiguous(word: &str, first: &str, second: &str) -> Misread {
    Misread::Ambiguous { word: word.to_owned(), first: first.to_owned(), second: second.to_owned() }
}

/// Returns all names that begin with `key`.
fn candidates(key: &str) -> Vec<(String, OptionSpec)> {
    let is_meant = |name: &str| name.starts_with(key) && (!key.starts_with("--") || key.len() > 2);
    let mut found = Vec::new();
    for known in table::options(Engine::Vllm) {
        let turned_off =
            (known.takes == Takes::Switch).then(|| format!("--no-{}", known.name().trim_start_matches('-')));
        let names = known.names().map(str::to_owned).chain(turned_off);
        found.extend(names.filter(|name| is_meant(name)).map(|name| (name, known)));
    }
    // argparse treats two names of one option with a common prefix as one option only where they are spelled out.
    found.dedup_by(|(first, _), (second, _)| first == second);
    found
}

/// Splits `-q8` into an option of one letter and its value.
fn letter_with_value(word: &str) -> Option<(String, OptionSpec, &str)> {
    let letter = word.get(..2).filter(|letter| *letter != "--")?;
    let value = word.get(2..).filter(|value| !value.is_empty())?;
    Some((letter.to_owned(), table::named(Engine::Vllm, letter)?, value))
}

/// Reads the optimization level: `-O3`, `-O=3` or `-O 3`. `-O` before anything else is not an option.
fn optimization<'a>(word: &'a str, level: &'a str, next: Option<&str>) -> Spelled<'a> {
    let known = table::named(Engine::Vllm, OPTIMIZATION);
    let name = OPTIMIZATION.to_owned();
    if !level.is_empty() {
        let joined = Some(level.strip_prefix('=').unwrap_or(level));
        return Spelled { name, joined, known, is_part: false };
    }
    match next.filter(|next| !is_option(next)) {
        Some("0" | "1" | "2" | "3") => Spelled { name, joined: None, known, is_part: false },
        _ => Spelled { name: word.to_owned(), joined: None, known: None, is_part: false },
    }
}
