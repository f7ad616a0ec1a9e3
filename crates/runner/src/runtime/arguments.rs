//! The arguments of a slot: the values of their options, and options that they may not state.
//!
//! Arguments come from the author of the model or of the job. The agent decides the port, the share of the GPU and the
//! number of GPUs; an argument that states another value would take what belongs to other slots.

use berth_domain::Arg;

/// One option that arguments may not state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    /// The name of the option, with its dashes.
    pub(super) option: String,
    /// The value that the agent passes: stating the same value is allowed.
    pub(super) value: Option<String>,
}

/// The arguments of one slot.
pub(super) struct SlotArguments<'a> {
    args: &'a [Arg],
    used: Vec<bool>,
}

impl<'a> SlotArguments<'a> {
    pub(super) fn new(args: &'a [Arg]) -> Self {
        Self { args, used: vec![false; args.len()] }
    }

    /// Returns the value of the last of these options, as `--name value` or `--name=value`.
    pub(super) fn value(&mut self, options: &[String]) -> Option<&'a str> {
        let mut found = None;
        for (at, arg) in self.args.iter().enumerate() {
            let (name, inline) = split(arg.as_str());
            if !options.iter().any(|option| option == name) {
                continue;
            }
            let value = match inline {
                Some(value) => Some((value, at)),
                None => self.args.get(at + 1).map(|value| (value.as_str(), at + 1)),
            };
            if let Some((value, end)) = value {
                self.used[at..=end].fill(true);
                found = Some(value);
            }
        }
        found
    }

    /// Returns the first argument that no variable has used.
    pub(super) fn unused(&self) -> Option<&'a Arg> {
        self.args.iter().zip(&self.used).find_map(|(arg, used)| (!used).then_some(arg))
    }

    /// Returns the first argument that states a reserved option. Options in `whole` are not abbreviations of a reserved
    /// one.
    pub(super) fn conflict(&self, reserved: &[Reserved], whole: &[String]) -> Option<&'a Arg> {
        self.args.iter().enumerate().find_map(|(at, arg)| {
            let (name, inline) = split(arg.as_str());
            let said = inline.or_else(|| self.args.get(at + 1).map(Arg::as_str));
            let is_whole = whole.iter().any(|option| option == name);
            let is_meant =
                |reserved: &&Reserved| if is_whole { reserved.option == name } else { means(name, &reserved.option) };
            let clash = reserved.iter().find(is_meant)?;
            let same = clash.value.is_some() && clash.value.as_deref() == said;
            (!same).then_some(arg)
        })
    }
}

fn split(arg: &str) -> (&str, Option<&str>) {
    match arg.split_once('=') {
        Some((name, value)) if name.starts_with('-') => (name, Some(value)),
        _ => (arg, None),
    }
}

/// Returns whether an argument would be read as this option. Many programs accept a prefix of a long name, underscores
/// for dashes, and a number right behind a short one.
fn means(name: &str, option: &str) -> bool {
    let name = name.replace('_', "-");
    let option = option.replace('_', "-");
    if name == option {
        return true;
    }
    match option.strip_prefix("--") {
        Some(_) => name.len() > 3 && name.starts_with("--") && option.starts_with(&name),
        None => name.strip_prefix(&option).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(texts: &[&str]) -> Vec<Arg> {
        texts.iter().map(|text| Arg::new(text).unwrap()).collect()
    }

    fn conflict(texts: &[&str], option: &str, value: Option<&str>) -> Option<String> {
        let args = args(texts);
        let reserved = [Reserved { option: option.into(), value: value.map(str::to_owned) }];
        SlotArguments::new(&args).conflict(&reserved, &["--model".into()]).map(ToString::to_string)
    }

    #[test]
    fn a_reserved_option_is_found_in_every_spelling() {
        const OPTION: &str = "--gpu-memory-utilization";
        for spelling in [
            "--gpu-memory-utilization",
            "--gpu_memory_utilization",
            "--gpu-memory-util",
            "--gpu-memory-utilization=0.9",
        ] {
            assert!(conflict(&[spelling, "0.9"], OPTION, None).is_some(), "{spelling} went through");
        }
        assert_eq!(conflict(&["--gpu-memory-utilization-limit", "--max-model-len", "9"], OPTION, None), None);
        assert!(conflict(&["-tp4"], "-tp", None).is_some());
        assert_eq!(conflict(&["-tpx"], "-tp", None), None);
        assert_eq!(conflict(&["--model", "x.gguf"], "--models-dir", None), None, "an option of its own");
        assert!(conflict(&["--models", "x"], "--models-dir", None).is_some());
        assert!(conflict(&["--model", "x"], "--model", None).is_some());
    }

    #[test]
    fn stating_the_agents_own_value_is_allowed() {
        assert_eq!(conflict(&["--port", "80"], "--port", Some("80")), None);
        assert_eq!(conflict(&["--port=80"], "--port", Some("80")), None);
        assert_eq!(conflict(&["--port", "81"], "--port", Some("80")).as_deref(), Some("--port"));
    }

    #[test]
    fn values_are_found_and_unused_arguments_are_returned() {
        let args = args(&["-c", "10", "--ctx-size=20", "--other"]);
        let mut said = SlotArguments::new(&args);
        assert_eq!(said.value(&["--ctx-size".into(), "-c".into()]), Some("20"));
        assert_eq!(said.value(&["--missing".into()]), None);
        assert_eq!(said.unused().map(Arg::as_str), Some("--other"));
    }
}
