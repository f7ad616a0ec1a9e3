//! What is known of the engines of this machine, kept over restarts of the agent.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use berth_domain::{EngineReport, RuntimeName};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::answers::Needs;
use super::ask::{EngineAnswer, EngineQuery};
use super::version::EngineVersion;
use crate::runtime::{Runtime, Runtimes};
use crate::text::reason_text;

/// The file in the agent's directory that keeps the answers. It is a cache: an agent without it asks again.
const FILE: &str = "engines.json";

/// The program that was asked, and for what. A changed program is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct QueriedProgram {
    program: PathBuf,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
    needs: Vec<Needs>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EngineFacts {
    subject: QueriedProgram,
    version: Option<String>,
    missing: Vec<String>,
    trouble: Option<String>,
}

/// What is known of the engine behind each runtime, and the queries under way.
#[derive(Debug)]
pub(crate) struct KnownEngines {
    file: PathBuf,
    known: BTreeMap<RuntimeName, EngineFacts>,
    asking: BTreeMap<RuntimeName, QueriedProgram>,
    answers: JoinSet<(RuntimeName, QueriedProgram, EngineAnswer)>,
}

impl KnownEngines {
    /// Reads the cache of an earlier agent.
    pub(crate) fn open(data_dir: &Path) -> Self {
        let file = data_dir.join(FILE);
        let known = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { file, known, asking: BTreeMap::new(), answers: JoinSet::new() }
    }

    /// Asks engines that are new or have changed. Returns whether the report changes by that.
    pub(crate) fn look(&mut self, runtimes: &mut Runtimes, own: &BTreeMap<OsString, OsString>, path: &OsStr) -> bool {
        let mut subjects = BTreeMap::new();
        for runtime in runtimes.iter().filter(|runtime| runtime.is_asked_for_options()) {
            if let Some(subject) = subject(runtime, runtimes.needs(runtime.name()), path) {
                subjects.insert(runtime.name().clone(), (subject, runtime.clone()));
            }
        }
        let count = self.known.len();
        self.known.retain(|name, _| subjects.contains_key(name));
        let mut is_other = self.known.len() != count;
        for (name, (subject, runtime)) in subjects {
            let is_known = self.known.get(&name).is_some_and(|found| found.subject == subject);
            if is_known || self.asking.get(&name) == Some(&subject) {
                continue;
            }
            let Some(asking) = asking(&runtime, &subject, own) else { continue };
            self.asking.insert(name.clone(), subject.clone());
            self.answers.spawn(async move { (name, subject, asking.ask().await) });
            is_other = true;
        }
        self.choose_templates(runtimes);
        is_other
    }

    /// Waits for the next answer, if any engine was asked.
    pub(crate) async fn next_answer(&mut self) -> Option<(RuntimeName, bool)> {
        let (name, subject, answer) = self.answers.join_next().await?.ok()?;
        if self.asking.get(&name) != Some(&subject) {
            return Some((name, false));
        }
        self.asking.remove(&name);
        let EngineAnswer { version, missing, trouble } = answer;
        let found = EngineFacts { subject, version, missing, trouble };
        found.log(&name);
        self.known.insert(name.clone(), found);
        if let Err(error) = self.keep() {
            tracing::warn!(%error, "what was found out about engines cannot be kept: the next agent asks again");
        }
        Some((name, true))
    }

    /// Returns whether a runtime may be offered: its program was asked, and has all that the template needs. While a
    /// changed program is being asked, what is known of the previous one counts.
    pub(crate) fn offers(&self, runtime: &Runtime) -> bool {
        !runtime.is_asked_for_options() || self.known.get(runtime.name()).is_some_and(|found| found.missing.is_empty())
    }

    /// Returns the part of the report about engines.
    pub(crate) fn report(&self) -> BTreeMap<RuntimeName, EngineReport> {
        let known = self.known.iter().map(|(name, found)| (name.clone(), found.report()));
        let mut report: BTreeMap<_, _> = known.collect();
        for name in self.asking.keys() {
            let entry = report.entry(name.clone()).or_default();
            entry.note = Some(reason_text("its program is being asked for its version and options"));
        }
        report
    }

    /// Selects the template of each runtime for the version of its engine.
    pub(crate) fn choose_templates(&self, runtimes: &mut Runtimes) {
        for (name, found) in &self.known {
            runtimes.choose(name, found.version().as_ref());
        }
    }

    fn keep(&self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.known).map_err(io::Error::other)?;
        berth_files::NewFile::prepare(&self.file, true)?.keep(&bytes)
    }
}

impl EngineFacts {
    fn version(&self) -> Option<EngineVersion> {
        EngineVersion::parse(self.version.as_deref()?)
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            version: self.version.as_deref().map(reason_text),
            missing: self.missing.iter().map(|option| reason_text(option)).collect(),
            note: self.trouble.as_deref().map(|why| reason_text(&format!("its options are not known: {why}"))),
        }
    }

    fn log(&self, runtime: &RuntimeName) {
        let (program, version) = (self.subject.program.display(), self.version.as_deref().unwrap_or("unknown"));
        if !self.missing.is_empty() {
            let missing = self.missing.join(" ");
            tracing::warn!(
                %runtime,
                version,
                "runtime {runtime} is not offered: {program} (version {version}) lacks {missing}, which the template of \
                 the runtime needs. Install another version, or give the runtime a `command` of its own"
            );
        } else if let Some(why) = &self.trouble {
            tracing::warn!(%runtime, version, "runtime {runtime}: the options of {program} are not known: {why}");
        } else {
            tracing::info!(%runtime, version, "runtime {runtime}: {program} is version {version}");
        }
    }
}

fn subject(runtime: &Runtime, needs: Vec<Needs>, path: &OsStr) -> Option<QueriedProgram> {
    let program = runtime.find_program(path)?;
    let metadata = program.metadata().ok()?;
    Some(QueriedProgram {
        inode: metadata.ino(),
        bytes: metadata.len(),
        changed: (metadata.mtime(), metadata.mtime_nsec()),
        needs,
        program,
    })
}

fn asking(runtime: &Runtime, subject: &QueriedProgram, own: &BTreeMap<OsString, OsString>) -> Option<EngineQuery> {
    Some(EngineQuery {
        engine: runtime.engine()?,
        program: subject.program.clone(),
        needs: subject.needs.clone(),
        environment: runtime.passed_environment(own),
        user: runtime.user().cloned(),
    })
}
