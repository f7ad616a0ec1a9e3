//! `[runtime.NAME]`: what the agent may run, and what an operator may configure of it.

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

/// The table `[runtime.NAME]`. For a built-in name all fields are optional; any other needs a `command`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// `false` if it cannot be started here.
    pub enabled: Option<bool>,
    /// The program and its arguments, with variables.
    pub command: Option<Vec<String>>,
    /// Environment variables with their values, which may contain template variables.
    pub env: BTreeMap<String, String>,
    /// Variables that are passed on from the agent's own environment, in addition to the usual ones.
    pub env_pass: Vec<String>,
    /// Variables whose values are secrets, with the source of each.
    pub secrets: BTreeMap<String, SecretSource>,
    /// The directory that it starts in; the agent's own if absent.
    pub dir: Option<PathBuf>,
    /// The user that its slots run as, by name or number; the agent's own if absent. Another user requires an agent
    /// that runs as root.
    pub user: Option<Account>,
    /// The group of its slots; the user's own if absent.
    pub group: Option<Account>,
    /// The readiness probe. Without one, a slot is ready as soon as it runs.
    pub ready: Option<Ready>,
    /// The liveness probe. Without one, a slot is healthy as long as it runs.
    pub live: Option<Live>,
    /// The endpoint that clients use.
    pub endpoint: Option<String>,
    /// What it starts: servers (the default), jobs that end by themselves, or both, as each slot asks.
    pub kind: Option<RuntimeKind>,
    /// The time between SIGTERM and SIGKILL; `agent.stop_grace` if absent.
    pub stop_grace: Option<Span>,
    /// The same for a slot that is not ready yet; the shorter of the two counts. `agent.loading_grace` if absent.
    pub loading_grace: Option<Span>,
    /// Options that a model's or a job's arguments may not state, in addition to those whose value the agent decides.
    pub reserved: Vec<String>,
    /// Options of the program that are not abbreviations, though a reserved option begins like them.
    pub whole: Vec<String>,
    /// Differences for engines from a version on: the highest version that is not above the engine's own counts.
    pub versions: BTreeMap<String, VersionConfig>,
    /// Whether the program is asked for its version and options before the runtime is offered. If absent, it is if the
    /// program has the name of a known engine.
    pub probe: Option<bool>,
    /// Arguments that may be passed although they must be allowed by the agent. For a known engine: options that its
    /// table does not call harmless, or does not have. For a command without a table: what jobs may pass, `*` being
    /// everything.
    pub allow: Vec<String>,
}

/// The table `[runtime.NAME.versions."VERSION"]`: fields of the template that are different from a version on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VersionConfig {
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// Environment variables, in addition to those of the runtime.
    pub env: BTreeMap<String, String>,
    /// The readiness probe.
    pub ready: Option<Ready>,
}

/// Why a configured runtime cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The runtime has no command.
    #[error("runtime.{0}: `command` is missing or empty")]
    NoCommand(RuntimeName),
    /// The program's name contains a variable.
    #[error("runtime.{0}: the program itself must not contain variables")]
    VariableProgram(RuntimeName),
    /// A shell would interpret text from the network as a script.
    #[error("runtime.{0}: a shell's script must not contain {{model}}, {{args}} or {{arg:...}}: pass them behind it")]
    ShellScript(RuntimeName),
    /// A template is not valid.
    #[error("runtime.{runtime}: {error}")]
    Template {
        /// The runtime.
        runtime: RuntimeName,
        /// The error of the template.
        error: TemplateError,
    },
    /// The variable is set by Berth.
    #[error("runtime.{runtime}: {name} is set by Berth")]
    ReservedVariable {
        /// The runtime.
        runtime: RuntimeName,
        /// The variable.
        name: String,
    },
    /// The name of a variable is not valid.
    #[error("runtime.{runtime}: {name:?} cannot be the name of an environment variable")]
    VariableName {
        /// The runtime.
        runtime: RuntimeName,
        /// The name.
        name: String,
    },
    /// A variable of the agent that slots may not see.
    #[error("runtime.{runtime}: {name} is the agent's own and is not passed on: set it in `env` if slots need it")]
    AgentVariable {
        /// The runtime.
        runtime: RuntimeName,
        /// The variable.
        name: String,
    },
    /// A secret has no valid source.
    #[error("runtime.{runtime}.secrets.{name}: {why}")]
    Secret {
        /// The runtime.
        runtime: RuntimeName,
        /// The variable.
        name: String,
        /// What is wrong with the source.
        why: &'static str,
    },
    /// A secret is written where all users of the machine can read it.
    #[error("runtime.{runtime}.command: {secret}")]
    InlineSecret {
        /// The runtime.
        runtime: RuntimeName,
        /// The secret's place in the configuration.
        secret: InlineSecret,
    },
    /// Slots cannot run as this user or group.
    #[error("runtime.{runtime}.{field}: {why}")]
    User {
        /// The runtime.
        runtime: RuntimeName,
        /// `user` or `group`.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A list of allowed arguments is not valid.
    #[error("runtime.{runtime}.allow: {error}")]
    Allow {
        /// The runtime.
        runtime: RuntimeName,
        /// What is wrong with the list.
        error: AllowError,
    },
    /// A version cannot be compared.
    #[error("runtime.{runtime}.versions: {version:?} is not a version: write numbers, such as \"0.30\"")]
    Version {
        /// The runtime.
        runtime: RuntimeName,
        /// The version as written.
        version: String,
    },
    /// A path is not valid.
    #[error("runtime.{runtime}: {path:?} is not a path of a URL: it must begin with / and have no blanks")]
    Path {
        /// The runtime.
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
    /// Checks a configured runtime, completed with the built-in one of its name.
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

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &RuntimeName {
        &self.name
    }

    /// Returns what it starts.
    #[must_use]
    pub fn kind(&self) -> RuntimeKind {
        self.kind
    }

    /// Returns the kind of a slot that this runtime starts. The operator's configuration counts; only a runtime for
    /// both leaves it to the slot.
    #[must_use]
    pub fn kind_of_slot(&self, asked: WorkloadKind) -> WorkloadKind {
        match self.kind {
            RuntimeKind::Server => WorkloadKind::Lease,
            RuntimeKind::Job => WorkloadKind::Job,
            RuntimeKind::Both => asked,
        }
    }

    /// Returns the arguments that its configuration allows.
    #[must_use]
    pub fn allow(&self) -> &Allow {
        &self.allow
    }

    /// Returns its secret variables, with the source of each.
    #[must_use]
    pub fn secrets(&self) -> &BTreeMap<String, SecretSource> {
        &self.secrets
    }

    /// Returns the variables that are passed on from the agent's own environment.
    pub fn passed_variables(&self) -> impl Iterator<Item = &str> {
        self.env_pass.iter().map(String::as_str)
    }

    /// Returns the user that its slots run as, where that is not the agent's own.
    #[must_use]
    pub fn user(&self) -> Option<&SlotUser> {
        self.user.as_ref()
    }

    /// Returns the id of the user that its slots run as.
    #[must_use]
    pub fn user_id(&self) -> UserId {
        self.user.as_ref().map_or_else(UserId::own, |user| user.uid)
    }

    /// Returns the engine of the runtime's name.
    #[must_use]
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.engine
    }

    /// Returns whether its program is asked for its version and options before it is offered.
    #[must_use]
    pub(crate) fn is_asked_for_options(&self) -> bool {
        self.is_probed
    }

    /// Returns the options that its template uses, and the variables by which Ollama is configured.
    #[must_use]
    pub(crate) fn needed_options(&self) -> Vec<String> {
        let literal = |element: &Element| element.template().and_then(Template::literal).map(str::to_owned);
        let options = self.command.iter().skip(1).filter_map(literal).filter(|text| text.starts_with('-'));
        let name = |text: String| text.split_once('=').map_or(text.clone(), |(name, _)| name.to_owned());
        let is_read = |variable: &&String| self.engine == Some(Engine::Ollama) && variable.starts_with("OLLAMA_");
        options.map(name).chain(self.env.keys().filter(is_read).cloned()).collect()
    }

    /// Returns the part of the agent's own environment that its slots get.
    #[must_use]
    pub(crate) fn passed_environment(&self, own: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
        environment::passed(self, own)
    }

    /// Returns the time between SIGTERM and SIGKILL, where configured.
    #[must_use]
    pub fn stop_grace(&self) -> Option<Span> {
        self.grace
    }

    /// Returns the same for slots that are not ready yet, where configured.
    #[must_use]
    pub fn loading_grace(&self) -> Option<Span> {
        self.loading_grace
    }

    /// Returns the program that it runs.
    #[must_use]
    pub fn program(&self) -> &str {
        self.command.first().and_then(Element::template).and_then(Template::literal).unwrap_or_default()
    }

    /// Finds its program: at its path, or in a directory of `path` (the agent's own `PATH`).
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

/// Overlays a configuration: fields replace the built-in ones; lists and maps are extended.
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

/// Returns whether the program may be run with `--help`: without a setting, only if it is named like the engine, since
/// a script may start a server whatever its arguments are.
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
