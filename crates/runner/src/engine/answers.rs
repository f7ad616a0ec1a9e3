//! Parsing what engines print about themselves. Pure.

use berth_engines::Engine;
use serde::{Deserialize, Serialize};

use super::version::EngineVersion;

/// What the template of a runtime needs of its engine: options, and the variables by which Ollama is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Needs {
    /// The first version of the engine that has these needs; `None` for the template of all others.
    pub(crate) since: Option<EngineVersion>,
    /// The names of options and variables.
    pub(crate) options: Vec<String>,
}

/// Returns the needs that apply to a version, from a list in the order of versions.
pub(super) fn needs_of<'a>(all: &'a [Needs], version: Option<&EngineVersion>) -> &'a [String] {
    let counts = |needs: &&Needs| needs.since.is_none() || needs.since.as_ref() <= version;
    all.iter().rfind(counts).map(|needs| needs.options.as_slice()).unwrap_or_default()
}

/// Returns the arguments that print an engine's version.
pub(super) fn version_arguments() -> &'static [&'static str] {
    &["--version"]
}

/// Returns the arguments that print an engine's options: the first of these that succeeds counts.
pub(super) fn help_arguments(engine: Engine) -> &'static [&'static [&'static str]] {
    match engine {
        Engine::LlamaServer => &[&["--help"]],
        // vLLM prints a summary unless it is asked for all options, and older versions accept only `--help`.
        Engine::Vllm => &[&["serve", "--help=all"], &["serve", "--help"]],
        Engine::Ollama => &[&["serve", "--help"]],
    }
}

/// Returns the version in the output of `--version`, standard output first.
///
/// Engines log while they start, so a number counts only behind the word "version", or as a line of its own.
pub(super) fn version_in(text: &str) -> Option<String> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let behind_word = |line: &str| {
        let at = line.to_ascii_lowercase().find("version")?;
        line[at + "version".len()..].split_whitespace().find_map(version_word)
    };
    // Ollama also prints the version of a server that happens to run.
    let of_client = lines().filter(|line| line.contains("client version")).find_map(behind_word);
    let alone = |line: &str| if line.contains(char::is_whitespace) { None } else { version_word(line) };
    of_client.or_else(|| lines().find_map(behind_word)).or_else(|| lines().rev().find_map(alone))
}

/// Returns a word that is a version, without punctuation around it.
fn version_word(word: &str) -> Option<String> {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let digits = word.trim_start_matches(['v', 'b']);
    let is_version = digits.starts_with(|c: char| c.is_ascii_digit())
        && word.len() <= 64
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_'));
    is_version.then(|| word.to_owned())
}

/// Returns those of `needs` that a help text does not contain as a whole word.
pub(super) fn missing_in(help: &str, needs: &[String]) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let has = |need: &str| {
        help.match_indices(need).any(|(at, _)| {
            let before = help[..at].chars().next_back();
            let after = help[at + need.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
    };
    needs.iter().filter(|need| !has(need)).cloned().collect()
}

/// Returns whether a text is a list of options, and not the error of a program that does not know the argument.
pub(super) fn is_help(engine: Engine, text: &str) -> bool {
    match engine {
        Engine::LlamaServer | Engine::Vllm => missing_in(text, &["--host".to_owned(), "--port".to_owned()]).is_empty(),
        Engine::Ollama => text.contains("OLLAMA_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_the_programs_print() {
        for (text, version) in [
            ("version: 6123 (79e0b68)\nbuilt with gcc 14.2.0 for x86_64-linux-gnu", "6123"),
            ("version: 0.7.0 (build 11669)", "0.7.0"),
            ("INFO 11-18 11:40:02 [importing.py:44] Triton is not installed\n0.32.0+cpu\n", "0.32.0+cpu"),
            ("Warning: could not connect to a running Ollama instance\nWarning: client version is 0.17.4", "0.17.4"),
            ("ollama version is 0.12.1\nWarning: client version is 0.17.4", "0.17.4"),
            ("ollama version is 0.12.1", "0.12.1"),
        ] {
            assert_eq!(version_in(text).as_deref(), Some(version), "{text}");
        }
        for text in ["", "error: unknown option", "INFO 11-18 11:40:02 starting", "version unknown"] {
            assert_eq!(version_in(text), None, "{text}");
        }
    }

    #[test]
    fn an_option_is_there_only_as_a_whole_word() {
        let needs = ["--host".to_owned(), "--port".to_owned(), "-c".to_owned()];
        let help = "--host HOST  ip address\n-c,   --ctx-size N\n--port-range A\n  [--no-port]";
        assert_eq!(missing_in(help, &needs), ["--port"]);
        assert_eq!(missing_in("", &needs), needs);
        assert!(is_help(Engine::Vllm, "  --host HOST\n  --port PORT"));
        assert!(!is_help(Engine::Vllm, "vllm: error: ignored explicit argument 'all'"));
    }
}
