//! `[runtime.NAME]`: what the agent may run, and what an operator may choose of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use berth_domain::{Arg, InlineSecret, RuntimeKind, RuntimeName, Span, WorkloadKind};
use berth_engines::{Allow, AllowError, Engine};
use serde::{Deserialize, Serialize};

use super::builtin;
use super::environment;
use super::questions::{Live, Questions, Ready};
use super::secrets::{self, SecretSource};
use super::template::{Element, Template, TemplateError};
use super::user::{self, Account, SlotUser, UserError, UserId};

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
    /// Variables whose values are secrets, and where each value comes from.
    pub secrets: BTreeMap<String, SecretSource>,
    /// The directory it starts in; the agent's own if absent.
    pub dir: Option<PathBuf>,
    /// The user that its slots run as, by name or number; the agent's own if absent. Another one takes an agent that
    /// runs as root.
    pub user: Option<Account>,
    /// Their group; the user's own if absent.
    pub group: Option<Account>,
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
    /// The same for a slot that is not ready yet; the shorter of the two counts. Absent: as long as
    /// `agent.loading_grace` says.
    pub loading_grace: Option<Span>,
    /// Options that a model's or a job's arguments may not state, beside those whose value the agent decides.
    pub reserved: Vec<String>,
    /// Options of the program that stand for themselves, though a reserved one begins like them.
    pub whole: Vec<String>,
    /// What is different for engines from a version on: the highest that is not above the engine's own counts.
    pub versions: BTreeMap<String, VersionConfig>,
    /// Whether the program is asked for its version and options before the runtime is offered. Absent: if the program has
    /// the name of an engine that is known.
    pub probe: Option<bool>,
    /// Arguments that may be passed although they need the agent's leave. For a known engine: options that its table does
    /// not call harmless, or does not have. For a command without a table: what jobs may pass, `*` being everything.
    pub allow: Vec<String>,
}

/// The table `[runtime.NAME.versions."VERSION"]`: parts of the template that are different from a version on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VersionConfig {
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// Variables that are set, beside those of the runtime.
    pub env: BTreeMap<String, String>,
    /// How to tell that it serves.
    pub ready: Option<Ready>,
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
    /// A variable of the agent that no slot may see.
    #[error("runtime.{runtime}: {name} is the agent's own and is not passed on: set it in `env` if slots need it")]
    AgentVariable {
        /// Of which runtime.
        runtime: RuntimeName,
        /// Which variable.
        name: String,
    },
    /// A secret that has no place to come from.
    #[error("runtime.{runtime}.secrets.{name}: {why}")]
    Secret {
        /// Of which runtime.
        runtime: RuntimeName,
        /// Which variable.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// A secret where every user of the machine can read it.
    #[error("runtime.{runtime}.command: {secret}")]
    InlineSecret {
        /// Of which runtime.
        runtime: RuntimeName,
        /// Where it is.
        secret: InlineSecret,
    },
    /// A user or a group that slots cannot run as.
    #[error("runtime.{runtime}.{field}: {why}")]
    User {
        /// Of which runtime.
        runtime: RuntimeName,
        /// `user` or `group`.
        field: &'static str,
        /// Why.
        why: String,
    },
    /// A list of allowed arguments that cannot be meant.
    #[error("runtime.{runtime}.allow: {error}")]
    Allow {
        /// Of which runtime.
        runtime: RuntimeName,
        /// What is wrong with it.
        error: AllowError,
    },
    /// A version that cannot be compared.
    #[error("runtime.{runtime}.versions: {version:?} is not a version: write numbers, such as \"0.30\"")]
    Version {
        /// Of which runtime.
        runtime: RuntimeName,
        /// What was written.
        version: String,
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
    pub(super) secrets: BTreeMap<String, SecretSource>,
    pub(super) dir: Option<PathBuf>,
    pub(super) user: Option<SlotUser>,
    pub(super) questions: Questions,
    pub(super) endpoint: Option<Template>,
    pub(super) kind: RuntimeKind,
    pub(super) grace: Option<Span>,
    pub(super) loading_grace: Option<Span>,
    pub(super) reserved: Vec<String>,
    pub(super) whole: Vec<String>,
    pub(super) engine: Option<Engine>,
    pub(super) is_probed: bool,
    pub(super) allow: Allow,
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
        config.env.keys().try_for_each(|variable| environment::check_name(name, variable))?;
        config.env_pass.iter().try_for_each(|variable| environment::check_passed(name, variable))?;
        secrets::check(name, &config)?;
        let words = config.command.iter().flatten().filter_map(|text| Arg::new(text).ok()).collect::<Vec<_>>();
        if let Some(secret) = InlineSecret::find(&words) {
            return Err(ConfigError::InlineSecret { runtime: name.clone(), secret });
        }
        let unusable = |UserError { field, why }| ConfigError::User { runtime: name.clone(), field, why };
        let user = user::look_up(config.user.as_ref(), config.group.as_ref()).map_err(unusable)?;
        let env = config.env.iter().map(|(key, text)| Ok((key.clone(), Template::parse(text)?)));
        let env = env.collect::<Result<_, _>>().map_err(wrong)?;
        let engine = Engine::of(name.as_str());
        let not_meant = |error| ConfigError::Allow { runtime: name.clone(), error };
        let allow = Allow::new(&config.allow, engine.is_some()).map_err(not_meant)?;
        let usual = builtin::ENV_PASS.iter().map(|&variable| variable.to_owned());
        Ok(Self {
            name: name.clone(),
            env,
            env_pass: usual.chain(config.env_pass.iter().cloned()).collect(),
            secrets: config.secrets.clone(),
            dir: config.dir.clone(),
            user,
            questions: Questions::parse(name, config.ready.as_ref(), config.live.as_ref())?,
            endpoint: config.endpoint.as_deref().map(Template::parse).transpose().map_err(wrong)?,
            kind: config.kind.unwrap_or(RuntimeKind::Server),
            grace: config.stop_grace,
            loading_grace: config.loading_grace,
            reserved: config.reserved.clone(),
            whole: config.whole.clone(),
            is_probed: engine.is_some_and(|engine| is_probed(engine, &command, config.probe)),
            engine,
            allow,
            command,
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

    /// What a slot is that this runtime started. The operator's word counts; only a runtime for both leaves it to the slot.
    #[must_use]
    pub fn kind_of_slot(&self, asked: WorkloadKind) -> WorkloadKind {
        match self.kind {
            RuntimeKind::Server => WorkloadKind::Lease,
            RuntimeKind::Job => WorkloadKind::Job,
            RuntimeKind::Both => asked,
        }
    }

    /// The arguments that its configuration allows.
    #[must_use]
    pub fn allow(&self) -> &Allow {
        &self.allow
    }

    /// Its secret variables, and where the value of each comes from.
    #[must_use]
    pub fn secrets(&self) -> &BTreeMap<String, SecretSource> {
        &self.secrets
    }

    /// The variables that are passed on from the agent's own environment.
    pub fn passed_variables(&self) -> impl Iterator<Item = &str> {
        self.env_pass.iter().map(String::as_str)
    }

    /// The user that its slots run as, where that is not the agent's own.
    #[must_use]
    pub fn user(&self) -> Option<&SlotUser> {
        self.user.as_ref()
    }

    /// The number of the user that its slots run as.
    #[must_use]
    pub fn user_id(&self) -> UserId {
        self.user.as_ref().map_or_else(UserId::own, |user| user.uid)
    }

    /// The engine that its name stands for.
    #[must_use]
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.engine
    }

    /// Whether its program is asked for its version and options before it is offered.
    #[must_use]
    pub(crate) fn is_asked_for_options(&self) -> bool {
        self.is_probed
    }

    /// What its template needs of the program: options, and the variables that Ollama is told through.
    #[must_use]
    pub(crate) fn needed_options(&self) -> Vec<String> {
        let literal = |element: &Element| element.template().and_then(Template::literal).map(str::to_owned);
        let options = self.command.iter().skip(1).filter_map(literal).filter(|text| text.starts_with('-'));
        let name = |text: String| text.split_once('=').map_or(text.clone(), |(name, _)| name.to_owned());
        let is_read = |variable: &&String| self.engine == Some(Engine::Ollama) && variable.starts_with("OLLAMA_");
        options.map(name).chain(self.env.keys().filter(is_read).cloned()).collect()
    }

    /// The part of the agent's own environment that its slots get.
    #[must_use]
    pub(crate) fn passed_environment(&self, own: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
        environment::passed(self, own)
    }

    /// Between asking its slots to end and ending them, where the operator says.
    #[must_use]
    pub fn stop_grace(&self) -> Option<Span> {
        self.grace
    }

    /// The same for slots that are not ready yet, where the operator says.
    #[must_use]
    pub fn loading_grace(&self) -> Option<Span> {
        self.loading_grace
    }

    /// The program that it runs.
    #[must_use]
    pub fn program(&self) -> &str {
        self.command.first().and_then(Element::template).and_then(Template::literal).unwrap_or_default()
    }

    /// Where its program is: at its path, or in a directory of `path` (the agent's own `PATH`).
    #[must_use]
    pub fn find_program(&self, path: &OsStr) -> Option<PathBuf> {
        let program = self.program();
        if program.contains('/') {
            let place = self.dir.clone().unwrap_or_default().join(program);
            return Some(place).filter(|place| environment::is_executable(place));
        }
        std::env::split_paths(path).map(|dir| dir.join(program)).find(|place| environment::is_executable(place))
    }
}

/// What a runtime says replaces the built-in part; lists and maps are added to.
pub(super) fn overlay(base: RuntimeConfig, over: &RuntimeConfig) -> RuntimeConfig {
    let over = over.clone();
    let (mut env, mut secrets) = (base.env, base.secrets);
    env.extend(over.env);
    secrets.extend(over.secrets);
    RuntimeConfig {
        enabled: over.enabled.or(base.enabled),
        command: over.command.or(base.command),
        env,
        env_pass: base.env_pass.into_iter().chain(over.env_pass).collect(),
        secrets,
        dir: over.dir.or(base.dir),
        user: over.user.or(base.user),
        group: over.group.or(base.group),
        ready: over.ready.or(base.ready),
        live: over.live.or(base.live),
        endpoint: over.endpoint.or(base.endpoint),
        kind: over.kind.or(base.kind),
        stop_grace: over.stop_grace.or(base.stop_grace),
        loading_grace: over.loading_grace.or(base.loading_grace),
        reserved: base.reserved.into_iter().chain(over.reserved).collect(),
        whole: base.whole.into_iter().chain(over.whole).collect(),
        versions: base.versions.into_iter().chain(over.versions).collect(),
        probe: over.probe.or(base.probe),
        allow: base.allow.into_iter().chain(over.allow).collect(),
    }
}

/// A program is run with `--help` by itself only if it is named like the engine: a script of an operator's own may start
/// a server whatever it is told.
fn is_probed(engine: Engine, command: &[Element], asked: Option<bool>) -> bool {
    let program = command.first().and_then(Element::template).and_then(Template::literal).unwrap_or_default();
    asked.unwrap_or_else(|| program.rsplit('/').next() == Some(engine.name()))
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
