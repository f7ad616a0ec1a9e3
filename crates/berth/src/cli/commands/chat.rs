//! A conversation in the terminal.

use std::io::{BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use berth_client::ClientError;
use berth_domain::ModelName;
use clap::Args;
use serde_json::{Value, json};

use super::super::failure::{Ended, Failure};
use super::super::render::look::clean_lines;
use super::super::session::Session;

/// Talk to a model
///
/// With a prompt it answers once; without one each line of standard input is answered, and the model knows what was
/// said before. While the model loads a line on standard error says what it waits for.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth chat qwen3:8b \"Why is the sky blue?\"\n  berth chat qwen3:8b")]
pub(crate) struct Chat {
    /// The model, or an alias of it
    model: ModelName,
    /// What to say
    prompt: Option<String>,
}

/// How often it is asked how far the model has come.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Chat {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let mut said: Vec<Value> = Vec::new();
        if let Some(prompt) = &self.prompt {
            self.turn(session, &mut said, prompt).await?;
            return Ok(Ended::Well);
        }
        let is_person = std::io::stdin().is_terminal();
        loop {
            if is_person {
                session.write(b"> ")?;
            }
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line);
            if read.map_err(|error| Failure::Failed(format!("cannot read: {error}")))? == 0 {
                return Ok(Ended::Well);
            }
            if !line.trim().is_empty() {
                self.turn(session, &mut said, line.trim()).await?;
            }
        }
    }

    /// One question and its answer.
    async fn turn(&self, session: &Session, said: &mut Vec<Value>, prompt: &str) -> Result<(), Failure> {
        said.push(json!({ "role": "user", "content": prompt }));
        let body = json!({ "model": self.model, "messages": said });
        let mut progress = Progress::new(self.model.as_str());
        let mut answering = Box::pin(session.client.chat(&body));
        let mut stream = loop {
            tokio::select! {
                opened = &mut answering => break opened.inspect_err(|_| progress.clear())?,
                () = tokio::time::sleep(LOOK_EVERY) => progress.show(session).await,
            }
        };
        let mut answer = String::new();
        loop {
            let next: Result<Option<String>, ClientError> = tokio::select! {
                next = stream.next() => next,
                () = tokio::time::sleep(LOOK_EVERY), if answer.is_empty() => {
                    progress.show(session).await;
                    continue;
                }
            };
            progress.clear();
            let Some(piece) = next? else { break };
            // What a model says is not trusted to steer a terminal.
            session.print(&clean_lines(&piece))?;
            answer.push_str(&piece);
        }
        session.print("\n")?;
        said.push(json!({ "role": "assistant", "content": answer }));
        Ok(())
    }
}

/// The line that says what is waited for.
struct Progress<'a> {
    model: &'a str,
    began: Instant,
    is_terminal: bool,
    last: String,
}

impl<'a> Progress<'a> {
    fn new(model: &'a str) -> Self {
        Self { model, began: Instant::now(), is_terminal: std::io::stderr().is_terminal(), last: String::new() }
    }

    async fn show(&mut self, session: &Session) {
        let Ok(status) = session.client.model_status(self.model).await else { return };
        let waited = self.began.elapsed().as_secs();
        let line = clean_lines(&describe(&status, waited));
        // A file gets a line for each step; a terminal one line that changes.
        let step = line.split(',').next().unwrap_or_default().to_owned();
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[2K{}: {line}", self.model);
        } else if step != self.last {
            let _ = writeln!(std::io::stderr(), "{}: {line}", self.model);
        }
        self.last = step;
    }

    fn clear(&mut self) {
        if self.is_terminal && !self.last.is_empty() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
        self.last.clear();
    }
}

/// What a model waits for, in few words.
fn describe(status: &Value, waited: u64) -> String {
    let about = status["load_median_ms"].as_u64().map(|ms| format!(" of about {} s", ms.div_ceil(1000)));
    let about = about.unwrap_or_default();
    let loading = &status["loading"];
    let leaving: Vec<&str> = loading["evicting"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match (status["status"].as_str(), loading["step"].as_str()) {
        (Some("loading"), Some("evicting")) if !leaving.is_empty() => {
            format!("evicting {}, {waited} s", leaving.join(" and "))
        }
        (Some("loading"), Some(step)) => {
            format!("{step}, {} s{about}", loading["for_ms"].as_u64().unwrap_or_default() / 1000)
        }
        (Some("loaded"), _) => format!("answering, {waited} s"),
        _ => format!("queued with {} waiting, {waited} s", status["waiting"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_what_it_waits_for() {
        let loading = |loading: Value| json!({ "status": "loading", "load_median_ms": 20_000, "loading": loading });
        let starting = loading(json!({ "step": "starting", "for_ms": 14_100, "evicting": [] }));
        assert_eq!(describe(&starting, 30), "starting, 14 s of about 20 s");
        let evicting = loading(json!({ "step": "evicting", "for_ms": 100, "evicting": ["vision"] }));
        assert_eq!(describe(&evicting, 2), "evicting vision, 2 s");
        assert_eq!(describe(&json!({ "status": "unloaded", "waiting": 2 }), 3), "queued with 2 waiting, 3 s");
    }
}
