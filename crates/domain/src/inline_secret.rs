//! Arguments that carry a secret in plain text.
//!
//! Every reader of the catalogue sees the arguments of a model. They are also in the journal, in the agent's record,
//! and in the argument list of a process, which every user of a machine may read. A secret does not belong there: the
//! agent gives it to a program in its environment (`secrets` of a runtime). This module finds names that stand for
//! secrets and values of well-known forms; it cannot find a secret that looks like any other word.

use std::fmt;

use crate::Arg;

/// The text that is shown instead of a secret.
pub const REDACTED: &str = "[redacted]";

/// An argument that carries a secret. It says where, and nothing of the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineSecret {
    /// The position of the argument, from 0.
    pub index: usize,
    /// The option whose value is the secret, where that is known.
    pub option: Option<String>,
}

impl fmt::Display for InlineSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, option } = self;
        let option = option.as_ref().map(|option| format!(" ({option})")).unwrap_or_default();
        write!(
            f,
            "argument {}{option} carries a secret, which everybody who reads the catalogue or lists processes would see: \
             put it into a file on the machine and name it in `secrets` of the runtime, in the agent's configuration",
            index + 1
        )
    }
}

impl InlineSecret {
    /// Finds the first argument that carries a secret.
    #[must_use]
    pub fn find(args: &[Arg]) -> Option<Self> {
        args.iter().enumerate().find_map(|(index, arg)| {
            let option = secret_option(arg.as_str());
            (option.is_some() || shows_secret(arg.as_str())).then(|| Self { index, option: option.map(str::to_owned) })
        })
    }

    /// Returns the arguments as they may be shown: without values that are secrets.
    #[must_use]
    pub fn redact(args: &[Arg]) -> Vec<Arg> {
        let mut shown = Vec::with_capacity(args.len());
        let mut is_value = false;
        for arg in args {
            let option = secret_option(arg.as_str());
            let text = match option {
                Some(option) if option.len() < arg.as_str().len() => Some(format!("{option}={REDACTED}")),
                Some(_) => None,
                None if is_value || shows_secret(arg.as_str()) => Some(REDACTED.to_owned()),
                None => None,
            };
            is_value = option.is_some_and(|option| option.len() == arg.as_str().len());
            shown.push(text.and_then(|text| Arg::new(&text).ok()).unwrap_or_else(|| arg.clone()));
        }
        shown
    }
}

/// Returns the option in an argument whose value is a secret: `--api-key`, or the beginning of `--api-key=...`.
fn secret_option(arg: &str) -> Option<&str> {
    let option = arg.split_once('=').map_or(arg, |(option, _)| option);
    let name = normal(option.strip_prefix('-')?);
    // Programs take the beginning of a long option for the whole.
    let is_short = ["api-k", "api-ke", "hf-t", "hf-to", "hf-tok", "hf-toke", "hft", "token"].contains(&name.as_str());
    (is_short || is_secret_name(&name)).then_some(option)
}

fn normal(name: &str) -> String {
    name.trim_start_matches('-').to_ascii_lowercase().replace(['_', '.'], "-")
}

/// Returns whether a name, in its normal form, stands for a secret. `api-key-file` does not: it stands for a path.
fn is_secret_name(name: &str) -> bool {
    const ENDINGS: [&str; 22] = [
        "api-key",
        "apikey",
        "api-keys",
        "api-token",
        "access-key",
        "access-token",
        "auth-key",
        "auth-token",
        "authorization",
        "bearer-token",
        "github-token",
        "hf-token",
        "hub-token",
        "huggingface-token",
        "passphrase",
        "passwd",
        "password",
        "refresh-token",
        "secret",
        "secret-key",
        "session-token",
        "secret-token",
    ];
    let is_whole_word = |rest: &str| rest.is_empty() || rest.ends_with('-');
    ENDINGS.iter().any(|ending| name.strip_suffix(ending).is_some_and(is_whole_word))
}

fn shows_secret(text: &str) -> bool {
    has_secret_form(text) || has_secret_pair(text) || has_password_in_url(text)
}

/// Returns whether the text contains a token or key of a well-known form.
fn has_secret_form(text: &str) -> bool {
    const BEGINNINGS: [(&str, usize); 14] = [
        ("hf_", 20),
        ("sk-", 20),
        ("sk_live_", 20),
        ("ghp_", 20),
        ("gho_", 20),
        ("ghs_", 20),
        ("github_pat_", 20),
        ("glpat-", 20),
        ("nvapi-", 20),
        ("xoxb-", 20),
        ("xoxp-", 20),
        ("AKIA", 20),
        ("AIza", 35),
        ("berth_", 40),
    ];
    let is_token = |word: &str| {
        let begins = BEGINNINGS.iter().any(|(begin, length)| word.starts_with(begin) && word.len() >= *length);
        let is_jwt = word.starts_with("eyJ") && word.matches('.').count() == 2 && word.len() >= 40;
        (begins && word.bytes().any(|byte| byte.is_ascii_digit())) || is_jwt
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.contains("PRIVATE KEY-----") || text.split(|c| !is_part(c)).any(is_token)
}

/// Returns whether the text contains a name and its secret value: `HF_TOKEN=...`, `{"api_key": "..."}`, `Authorization:
/// Bearer ...`.
fn has_secret_pair(text: &str) -> bool {
    const QUOTES: [char; 4] = ['"', '\'', '\\', ' '];
    text.match_indices(['=', ':']).any(|(at, _)| {
        let before = text[..at].trim_end_matches(QUOTES);
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let begin =
            before.rfind(|c| !is_part(c)).map_or(0, |end| end + before[end..].chars().next().map_or(0, char::len_utf8));
        let value = text[at + 1..].trim_start_matches(QUOTES);
        let is_empty = ["", "null", "none", "true", "false"].contains(
            &value.split([',', '}', ']', '"', '\'']).next().unwrap_or_default().trim().to_ascii_lowercase().as_str(),
        );
        !is_empty && is_secret_name(&normal(&before[begin..]))
    })
}

/// Returns whether the text contains a URL with a password: `https://user:password@host`.
fn has_password_in_url(text: &str) -> bool {
    text.match_indices("://").any(|(at, mark)| {
        let rest = &text[at + mark.len()..];
        let authority = rest.split(['/', '?', '#', ' ', '"']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(texts: &[&str]) -> Vec<Arg> {
        texts.iter().map(|text| Arg::new(text).unwrap()).collect()
    }

    fn redacted(texts: &[&str]) -> Vec<String> {
        InlineSecret::redact(&args(texts)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn secrets_are_found_in_every_spelling_and_not_repeated() {
        for carried in [
            &["--ctx", "1", "--api-key", "s3cret"][..],
            &["--ctx", "1", "--api-key=s3cret"],
            &["--ctx", "1", "--api_key", "s3cret"],
            &["--ctx", "1", "--API-KEY=s3cret"],
            &["--ctx", "1", "--api-ke", "s3cret"],
            &["--ctx", "1", "-hft", "s3cret"],
            &["--ctx", "1", "--hf-token", "s3cret"],
            &["--ctx", "1", "--token=s3cret"],
            &["--ctx", "1", "--openai.api_key=s3cret"],
            &["--ctx", "1", "--db-password", "s3cret"],
            &["--ctx", "1", "HF_TOKEN=s3cret"],
            &["--ctx", "1", "{\"api_key\": \"s3cret\"}"],
            &["--ctx", "1", "--extra={\"a\":1,\"aws_secret_access_key\":\"s3cret\"}"],
            &["--ctx", "1", "Authorization: Bearer s3cret"],
            &["--ctx", "1", "https://user:s3cret@host/model"],
            &["--ctx", "1", "hf_s3cretAbCdEfGhIjKlMnOpQrSt"],
            &["--ctx", "1", "prefix,sk-s3cretAbCdEfGhIjKlMn"],
            &["--ctx", "1", "-----BEGIN PRIVATE KEY-----s3cret"],
        ] {
            let found = InlineSecret::find(&args(carried)).unwrap_or_else(|| panic!("{carried:?}"));
            assert_eq!(found.index, 2, "{carried:?}");
            assert!(!found.to_string().contains("s3cret") && !format!("{found:?}").contains("s3cret"), "{found}");
            let shown = redacted(carried).join(" ");
            assert!(!shown.contains("s3cret") && shown.contains(REDACTED), "{shown}");
        }
    }

    #[test]
    fn ordinary_arguments_are_none() {
        let ordinary = [
            "--api-key-file",
            "/etc/berth/api.key",
            "--max-num-batched-tokens=8192",
            "--max-tokens",
            "100",
            "--tokenizer",
            "org/model",
            "--tokenizer-mode=auto",
            "--ssl-keyfile=/x.pem",
            "--hf-overrides={\"max_position_embeddings\": 4096, \"eos_token\": \"</s>\"}",
            "--hf-config-path",
            "--return-tokens-as-token-ids",
            "--api-server-count=2",
            "-hf",
            "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M",
            "--model",
            "https://host:8080/x@y",
            "--stop-token=<|end|>",
            "--kv-cache-dtype=fp8",
            "--chat-template={{ bos_token }}{% if a == b %}",
            "{\"api_key\": null}",
            "sk-model",
            "é:ü=ö",
        ];
        assert_eq!(InlineSecret::find(&args(&ordinary)), None);
        assert_eq!(redacted(&ordinary), ordinary);
    }
}
