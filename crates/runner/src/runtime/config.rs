//! `[runtime.NAME]`: what the agent may run, and what an operator may choose of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use berth_domain::{RuntimeKind, RuntimeName, Span, WorkloadKind};
use serde::{Deserialize, Serialize};

use super::builtin;
use super::environment;
use super::template::{Element, Template, TemplateError};

/// The table `[runtime.NAME]`. For a built-in name every part is optional; any other needs a `command`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// `false`: it cannot be started here.
    pub enabled: Option<bool>,
    /// The program and its arguments, with variables.
    pub command: Option<Vec<String>>,
    /// Variables that are set, with variables in them.
    pub env: BTreeMap<String, String>,
    /// Variables that are passed on from the agent's own environment, beside the usual ones.
    pub env_pass: Vec<String>,
    /// The directory it starts in; the agent's own if absent.
    pub dir: Option<PathBuf>,
    /// How to tell that it serves. Absent: it does as soon as it runs.
    pub ready: Option<Ready>,
    /// How to tell that it still does. Absent: it does as long as it runs.
    pub live: Option<Live>,
    /// Where others find it.
    pub endpoint: Option<String>,
    /// What it starts: servers (the default), jobs that end by themselves, or both, as each slot asks.
    pub kind: Option<RuntimeKind>,
    /// Between asking it to end and ending it. Absent: as long as `agent.stop_grace` says.
    pub stop_grace: Option<Span>,
    /// Options that a model's or a job's arguments may not state, beside those whose value the agent decides.
    pub reserved: Vec<String>,
    /// Options of the program that stand for themselves, though a reserved one begins like them.
    pub whole: Vec<String>,
}

/// How to tell that a program serves: `GET path` answers 2xx.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The path.
    pub path: String,
    /// How often it is asked, at most: it is asked more often at first.
    #[serde(default = "Ready::every")]
    pub every: Span,
    /// How long it may take to say yes.
    #[serde(default = "Ready::deadline")]
    pub deadline: Span,
}

impl Ready {
    fn every() -> Span {
        Span::from_millis(200)
    }

    fn deadline() -> Span {
        Span::from_secs(600)
    }

    pub(super) fn at(path: &str) -> Self {
        Self { path: path.to_owned(), every: Self::every(), deadline: Self::deadline() }
    }
}

/// How to tell that a program still serves: `GET path` answers 2xx, but for some failures in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// The path.
    pub path: String,
    /// How often it is asked. More often than once a second is once a second.
    #[serde(default = "Live::every")]
    pub every: Span,
    /// So many failures in a row mean that it serves no more.
    #[serde(default = "Live::failures")]
    pub failures: u32,
}

impl Live {
    fn every() -> Span {
        Span::from_secs(5)
    }

    fn failures() -> u32 {
        3
    }

    pub(super) fn at(path: &str) -> Self {
        Self { path: path.to_owned(), every: Self::every(), failures: Self::failures() }
    }
}

/// Why a configured runtime cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing to run.
    #[error("runtime.{0}: `command` is missing or empty")]
    NoCommand(RuntimeName),
    /// The name of the program is not for others to choose.
    #[error("runtime.{0}: the program itself must not contain variables")]
    VariableProgram(RuntimeName),
    /// A shell would read words of the network as a script.
    #[error("runtime.{0}: a shell's script must not contain {{model}}, {{args}} or {{arg:...}}: pass them behind it")]
    ShellScript(RuntimeName),
    /// A text that is none.
    #[error("runtime.{runtime}: {error}")]
    Template {
        /// Of which runtime.
        runtime: RuntimeName,
        /// What is wrong with it.
        error: TemplateError,
    },
    /// Set by Berth alone.
    #[error("runtime.{runtime}: {name} is set by Berth")]
    ReservedVariable {
        /// Of which runtime.
        runtime: RuntimeName,
        /// Which variable.
        name: String,
    },
    /// No name of a variable.
    #[error("runtime.{runtime}: {name:?} cannot be the name of an environment variable")]
    VariableName {
        /// Of which runtime.
        runtime: RuntimeName,
        /// The name.
        name: String,
    },
    /// A path that is none.
    #[error("runtime.{runtime}: {path:?} is not a path of a URL: it must begin with / and have no blanks")]
    Path {
        /// Of which runtime.
        runtime: RuntimeName,
        /// The path.
        path: String,
    },
}

/// One runtime, checked.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(super) name: RuntimeName,
    pub(super) command: Vec<Element>,
    pub(super) env: BTreeMap<String, Template>,
    pub(super) env_pass: BTreeSet<String>,
    pub(super) dir: Option<PathBuf>,
    pub(super) ready: Option<Ready>,
    pub(super) live: Option<Live>,
    pub(super) endpoint: Option<Template>,
    pub(super) kind: RuntimeKind,
    pub(super) grace: Option<Span>,
    pub(super) reserved: Vec<String>,
    pub(super) whole: Vec<String>,
}

impl Runtime {
    /// A runtime as configured, over the built-in one of its name.
    pub fn new(name: &RuntimeName, config: &RuntimeConfig) -> Result<Self, ConfigError> {
        let config = match builtin::builtin(name.as_str()) {
            Some(base) => overlay(base, config),
            None => config.clone(),
        };
        let wrong = |error| ConfigError::Template { runtime: name.clone(), error };
        let command = config.command.iter().flatten().map(|text| Element::parse(text)).collect::<Result<Vec<_>, _>>();
        let command = command.map_err(wrong)?;
        check_command(name, &command)?;
        for variable in config.env.keys().chain(&config.env_pass) {
            environment::check_name(name, variable)?;
        }
        let env = config.env.iter().map(|(key, text)| Ok((key.clone(), Template::parse(text)?)));
        let env = env.collect::<Result<_, _>>().map_err(wrong)?;
        for path in config.ready.iter().map(|ready| &ready.path).chain(config.live.iter().map(|live| &live.path)) {
            check_path(name, path)?;
        }
        let usual = builtin::ENV_PASS.iter().map(|&variable| variable.to_owned());
        Ok(Self {
            name: name.clone(),
            command,
            env,
            env_pass: usual.chain(config.env_pass.iter().cloned()).collect(),
            dir: config.dir.clone(),
            ready: config.ready.clone(),
            live: config.live.clone(),
            endpoint: config.endpoint.as_deref().map(Template::parse).transpose().map_err(wrong)?,
            kind: config.kind.unwrap_or(RuntimeKind::Server),
            grace: config.stop_grace,
            reserved: config.reserved.clone(),
            whole: config.whole.clone(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &RuntimeName {
        &self.name
    }

    /// What it starts.
    #[must_use]
    pub fn kind(&self) -> RuntimeKind {
        self.kind
    }

    /// What a slot is that this runtime starts. The operator's word counts; only a runtime for both leaves it to the slot.
    #[must_use]
    pub fn kind_of_slot(&self, asked: WorkloadKind) -> WorkloadKind {
        match self.kind {
            RuntimeKind::Server => WorkloadKind::Lease,
            RuntimeKind::Job => WorkloadKind::Job,
            RuntimeKind::Both => asked,
        }
    }

    /// Between asking its slots to end and ending them, where the operator says.
    #[must_use]
    pub fn stop_grace(&self) -> Option<Span> {
        self.grace
    }

    /// The program that it runs.
    #[must_use]
    pub fn program(&self) -> &str {
        self.command.first().and_then(Element::template).and_then(Template::literal).unwrap_or_default()
    }

    /// Whether its program is there: at its path, or in a directory of `path` (the agent's own `PATH`).
    #[must_use]
    pub fn is_installed(&self, path: &OsStr) -> bool {
        let program = self.program();
        if program.contains('/') {
            return environment::is_executable(&self.dir.clone().unwrap_or_default().join(program));
        }
        std::env::split_paths(path).any(|dir| environment::is_executable(&dir.join(program)))
    }
}

/// What a runtime says replaces the built-in part; lists and maps are added to.
fn overlay(base: RuntimeConfig, over: &RuntimeConfig) -> RuntimeConfig {
    let over = over.clone();
    let mut env = base.env;
    env.extend(over.env);
    RuntimeConfig {
        enabled: over.enabled.or(base.enabled),
        command: over.command.or(base.command),
        env,
        env_pass: base.env_pass.into_iter().chain(over.env_pass).collect(),
        dir: over.dir.or(base.dir),
        ready: over.ready.or(base.ready),
        live: over.live.or(base.live),
        endpoint: over.endpoint.or(base.endpoint),
        kind: over.kind.or(base.kind),
        stop_grace: over.stop_grace.or(base.stop_grace),
        reserved: base.reserved.into_iter().chain(over.reserved).collect(),
        whole: base.whole.into_iter().chain(over.whole).collect(),
    }
}

fn check_command(name: &RuntimeName, command: &[Element]) -> Result<(), ConfigError> {
    let program = match command.first() {
        None => return Err(ConfigError::NoCommand(name.clone())),
        Some(first) => first.template().and_then(Template::literal),
    };
    let program = match program {
        None => return Err(ConfigError::VariableProgram(name.clone())),
        Some("") => return Err(ConfigError::NoCommand(name.clone())),
        Some(program) => program,
    };
    const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"];
    if !SHELLS.contains(&program.rsplit('/').next().unwrap_or(program)) {
        return Ok(());
    }
    let is_script_flag = |element: &Element| {
        let text = element.template().and_then(Template::literal).unwrap_or_default();
        text.starts_with('-') && !text.starts_with("--") && text.ends_with('c')
    };
    let script = command.iter().position(is_script_flag).and_then(|at| command.get(at + 1));
    let from_outside = script.is_some_and(|script| match script {
        Element::Args => true,
        Element::One(text) => text.variables().any(super::template::Variable::is_from_the_network),
    });
    if from_outside { Err(ConfigError::ShellScript(name.clone())) } else { Ok(()) }
}

fn check_path(name: &RuntimeName, path: &str) -> Result<(), ConfigError> {
    let fine = path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic());
    if fine { Ok(()) } else { Err(ConfigError::Path { runtime: name.clone(), path: path.to_owned() }) }
}

/// Everything that the agent may run.
#[derive(Clone, Debug)]
pub struct Runtimes {
    all: BTreeMap<RuntimeName, Runtime>,
}

impl Runtimes {
    /// The built-in runtimes and those of the configuration, which come first where they have the same name.
    pub fn from_config(config: &BTreeMap<RuntimeName, RuntimeConfig>) -> Result<Self, ConfigError> {
        let built_in = builtin::NAMES.iter().filter_map(|name| RuntimeName::new(name).ok());
        let names: BTreeSet<RuntimeName> = built_in.chain(config.keys().cloned()).collect();
        let mut all = BTreeMap::new();
        for name in names {
            let said = config.get(&name).cloned().unwrap_or_default();
            if said.enabled != Some(false) {
                let runtime = Runtime::new(&name, &said)?;
                all.insert(name, runtime);
            }
        }
        Ok(Self { all })
    }

    /// The runtime of this name.
    #[must_use]
    pub fn get(&self, name: &RuntimeName) -> Option<&Runtime> {
        self.all.get(name)
    }

    /// Those whose program is on the machine, and what each starts, for the report. `path` is the agent's own `PATH`.
    #[must_use]
    pub fn installed(&self, path: &OsStr) -> BTreeMap<RuntimeName, RuntimeKind> {
        let installed = self.all.values().filter(|runtime| runtime.is_installed(path));
        installed.map(|runtime| (runtime.name.clone(), runtime.kind)).collect()
    }

    /// The agent's own environment, as [`super::Surroundings`] takes it.
    #[must_use]
    pub fn own_environment() -> BTreeMap<OsString, OsString> {
        std::env::vars_os().collect()
    }
}
