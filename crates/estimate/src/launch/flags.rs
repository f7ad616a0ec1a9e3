//! Reading the arguments of a program, of those that matter.

use std::collections::BTreeMap;

/// What comes after an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// A value.
    Value,
    /// Nothing.
    Nothing,
    /// One of these, or nothing.
    Maybe(&'static [&'static str]),
}

/// An argument with its other spellings. The first is its name here.
pub(super) type Flag = (&'static [&'static str], Takes);

/// What was said with each argument. What is said twice counts as it was said last, as the programs have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said(BTreeMap<&'static str, String>);

impl Said {
    pub(super) fn parse<S: AsRef<str>>(args: &[S], flags: &[Flag]) -> Self {
        let mut said = BTreeMap::new();
        let mut rest = args.iter().map(AsRef::as_ref).peekable();
        while let Some(arg) = rest.next() {
            let (spelled, attached) = match arg.split_once('=') {
                Some((spelled, value)) if spelled.starts_with("--") => (spelled, Some(value)),
                _ => (arg, None),
            };
            // Programs in Python take underscores for hyphens.
            let spelled = if spelled.starts_with("--") { spelled.replace('_', "-") } else { spelled.to_owned() };
            let known = flags.iter().find(|(names, _)| names.contains(&spelled.as_str()));
            let Some((name, takes)) = known.and_then(|(names, takes)| Some((*names.first()?, *takes))) else {
                continue;
            };
            let value = match (attached, takes) {
                (Some(value), _) => value,
                (None, Takes::Nothing) => "",
                (None, Takes::Value) => rest.next().unwrap_or_default(),
                (None, Takes::Maybe(values)) => rest.next_if(|next| values.contains(next)).unwrap_or_default(),
            };
            said.insert(name, value.to_owned());
        }
        Self(said)
    }

    /// What was said, if anything.
    pub(super) fn get(&self, flag: &str) -> Option<&str> {
        self.0.get(flag).map(String::as_str)
    }
}
