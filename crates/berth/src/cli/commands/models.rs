//! Models: apply files, list, show, remove, try.

use std::io::Read;
use std::path::{Path, PathBuf};

use berth_client::routes;
use berth_domain::{ModelName, WorkloadKind};
use berth_wire::{FitQuery, ModelFile, ModelRequest, Outcome, PageQuery};
use clap::{Args, Subcommand};

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::{Output, Session};

/// Look at the catalogue of models, and change it
#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    /// Add or change the models of files
    ///
    /// A file is TOML with [[model]] tables, or JSON: a list of models, or one. All files are read and checked before
    /// anything is sent. A model that is the same as before is left as it is.
    #[command(after_help = "Example:\n  berth models apply models.toml\n\nmodels.toml:\n  [[model]]\n  \
        name = \"qwen3:8b\"\n  runtime = \"vllm\"\n  memory = \"14.685GiB\"\n  concurrency = 8")]
    Apply {
        /// Files; - is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// List the models
    #[command(after_help = "Example:\n  berth models list")]
    List,
    /// Look at one model, with what it costs on each number of GPUs
    #[command(after_help = "Example:\n  berth models show Qwen/Qwen2.5-VL-7B-Instruct")]
    Show {
        /// Which
        name: ModelName,
    },
    /// Remove a model; its slots finish what they have
    #[command(after_help = "Example:\n  berth models rm qwen3:8b")]
    Rm {
        /// Which
        name: ModelName,
    },
}

impl Models {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        match self {
            Self::Apply { files } => apply(session, &files).await?,
            Self::List => {
                let route = routes::models(&PageQuery::default());
                session.show(&route, |rows, look| render::catalogue::models(rows, look)).await?;
            }
            Self::Show { name } => {
                session.show(&routes::model(&name), render::catalogue::model).await?;
            }
            Self::Rm { name } => {
                session.show(&routes::delete_model(&name), |_, _| format!("removed {name}\n")).await?;
            }
        }
        Ok(Ended::Well)
    }
}

async fn apply(session: &Session, files: &[PathBuf]) -> Result<(), Failure> {
    let mut models = Vec::new();
    for file in files {
        models.extend(read(file)?);
    }
    let mut texts = Vec::new();
    for (name, request) in models {
        let answer = session.client.ask(&routes::put_model(&name, &request)).await?;
        match session.output {
            Output::Table => {
                session.print(&format!("applied {name} (revision {})\n", answer.body.revision))?;
            }
            Output::Json => texts.push(answer.text),
        }
    }
    match session.output {
        Output::Table => Ok(()),
        Output::Json => session.print(&format!("[{}]\n", texts.join(","))),
    }
}

/// The models of a file, each checked as the server would.
fn read(file: &Path) -> Result<Vec<(ModelName, ModelRequest)>, Failure> {
    let place = file.display();
    let refuse = |why: String| Failure::Usage(format!("{place}: {why}"));
    let text = read_text(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let named = |request: ModelRequest| {
        let name = request.name.clone().ok_or_else(|| refuse("a model has no name".to_owned()))?;
        request.clone().into_spec(name.clone()).map_err(|invalid| refuse(format!("model {name}: {invalid}")))?;
        Ok((name, request))
    };
    let models = parse(file, &text).map_err(refuse)?.model;
    if models.is_empty() {
        return Err(refuse("there is no model in it".to_owned()));
    }
    models.into_iter().map(named).collect()
}

fn read_text(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}

/// JSON if it is called so, or if it begins as only JSON does; else TOML.
fn parse(file: &Path, text: &str) -> Result<ModelFile, String> {
    let start = text.trim_start();
    let is_list = start.starts_with('[') && !start.starts_with("[[");
    let extension = file.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("json") => serde_json::from_str(text).map_err(|error| error.to_string()),
        Some("toml") => toml::from_str(text).map_err(|error| error.to_string()),
        _ if start.starts_with('{') || is_list => serde_json::from_str(text).map_err(|error| error.to_string()),
        _ => toml::from_str(text).map_err(|error| error.to_string()),
    }
}

/// Say whether a model would fit now, where, and who would be evicted for it
///
/// Nothing is done.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 it would be placed, 6 it would wait, 1 it can never run here.\n\n\
    Example:\n  berth fit qwen3:8b")]
pub(crate) struct Fit {
    /// The model
    model: ModelName,
    /// As a job, with a slot of its own
    #[arg(long)]
    job: bool,
}

impl Fit {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let query = FitQuery { kind: self.job.then_some(WorkloadKind::Job) };
        let fit = session.show(&routes::fit(&self.model, query), |fit, _| render::records::fit(fit)).await?;
        Ok(match fit.judgement.outcome {
            Outcome::Placed | Outcome::Reused => Ended::Well,
            Outcome::Waiting => Ended::InVain,
            Outcome::Refused | Outcome::Ended => Ended::Badly,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(file: &str, text: &str) -> Result<Vec<String>, String> {
        let models = parse(Path::new(file), text)?.model;
        Ok(models.into_iter().filter_map(|model| model.name).map(|name| name.to_string()).collect())
    }

    #[test]
    fn files_are_read_by_their_name_and_else_by_their_looks() {
        let toml = "[[model]]\nname = \"a\"\nruntime = \"v\"\n";
        let json = "[{\"name\": \"a\", \"runtime\": \"v\"}]";
        for (file, text) in
            [("m.toml", toml), ("m.json", json), ("-", toml), ("-", json), ("models", json.trim_matches(['[', ']']))]
        {
            assert_eq!(names(file, text), Ok(vec!["a".to_owned()]), "{file} {text}");
        }
        assert!(names("m.toml", json).is_err() && names("m.json", toml).is_err());
        assert!(names("m.toml", "[[model]]\nname = \"a\"\nruntim = \"v\"\n").unwrap_err().contains("runtim"));
    }
}
