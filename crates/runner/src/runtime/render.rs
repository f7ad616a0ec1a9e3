//! Rendering: from a runtime and a slot to the command that is started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use berth_domain::{
    Arg, Bytes, DesiredGpu, DeviceUuid, Endpoint, Generation, NameError, RunSpec, RunnerId, RuntimeKind, RuntimeName,
    SlotId, Span, Utilization, UtilizationError, WorkloadKind,
};

use berth_engines::Engine;

use super::arguments::{Reserved, SlotArguments};
use super::config::Runtime;
use super::environment;
use super::permission::{self, NotPermitted};
use super::questions::{Live, ModelQuestion, Question, Ready, path_segment};
use super::template::{Element, Piece, Template, Variable};
use super::user::SlotUser;
use crate::process::SlotSecret;

/// A slot that should run.
#[derive(Clone, Copy, Debug)]
pub struct StartRequest<'a> {
    /// The slot's id.
    pub slot: SlotId,
    /// The slot's generation.
    pub generation: Generation,
    /// The devices in rank order.
    pub gpus: &'a [DesiredGpu],
    /// How the slot is run.
    pub spec: &'a RunSpec,
    /// The secret of this start; `None` for a slot that was started without one.
    pub secret: Option<&'a SlotSecret>,
}

/// What the agent knows in addition to the slot.
#[derive(Clone, Debug)]
pub struct LaunchContext<'a> {
    /// The agent's runner id.
    pub runner: &'a RunnerId,
    /// The name or address at which clients reach the machine.
    pub address: &'a str,
    /// The address that slots listen on.
    pub bind: IpAddr,
    /// The slot's port.
    pub port: u16,
    /// The total memory of each device, as CUDA sees it.
    pub totals: &'a BTreeMap<DeviceUuid, Bytes>,
    /// The agent's own environment. Only listed variables are passed on.
    pub environment: &'a BTreeMap<OsString, OsString>,
}

/// The command of a slot and its environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The slot's id.
    pub slot: SlotId,
    /// The slot's generation.
    pub generation: Generation,
    /// Whether it serves leases or is a job, which ends by itself.
    pub kind: WorkloadKind,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// The directory that it starts in.
    pub dir: Option<PathBuf>,
    /// The user that it runs as, where that is not the agent's own.
    pub user: Option<SlotUser>,
    /// The endpoint that clients use.
    pub endpoint: Option<Endpoint>,
    /// The address at which the agent probes its health.
    pub probe: SocketAddr,
    /// The readiness probe, with its variables filled in.
    pub ready: Option<(Ready, Question)>,
    /// The liveness probe, with its variables filled in.
    pub live: Option<Live>,
    /// The time between SIGTERM and SIGKILL, where the runtime states one.
    pub grace: Option<Span>,
}

/// Shows the names of variables only, since their values may be secrets.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.keys().collect();
        f.debug_struct("Launch")
            .field("slot", &self.slot)
            .field("generation", &self.generation)
            .field("kind", &self.kind)
            .field("argv", &self.argv)
            .field("env", &names)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// Why a slot cannot be started as desired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A value would be read as an option.
    #[error("{{{variable}}} is {value:?}, which the program would take for an option")]
    Option {
        /// The variable that has the value.
        variable: String,
        /// The value.
        value: String,
    },
    /// An argument states what the agent decides.
    #[error("the argument {0} is the agent's to set: remove it from the `args` of the model or the job")]
    Reserved(Arg),
    /// The runtime does not use an argument, and ignoring it would start something else than was asked for.
    #[error("the runtime has no use for the argument {0}: remove it from the `args` of the model or the job")]
    Unused(Arg),
    /// An argument is not allowed.
    #[error(transparent)]
    Forbidden(#[from] NotPermitted),
    /// The runtime starts servers only. A job may pass less than a server, so it is never started as one.
    #[error("the runtime {0} starts servers, not jobs: give it kind \"job\" or \"both\" in the agent's configuration")]
    NotForJobs(RuntimeName),
    /// A value has a control character that no program can be given.
    #[error("a NUL cannot be given to a program")]
    Nul,
    /// The runtime takes a share of a GPU, and the slot has none.
    #[error("the runtime takes a share of a GPU, and the slot has none")]
    NoDevice,
    /// The machine does not have the device.
    #[error("{0} is not a device of this machine")]
    UnknownDevice(DeviceUuid),
    /// The share of a device is not valid.
    #[error("{uuid}: {error}")]
    Share {
        /// The device.
        uuid: DeviceUuid,
        /// What is wrong with the share.
        error: UtilizationError,
    },
    /// The rendered endpoint is not valid.
    #[error(transparent)]
    Endpoint(#[from] NameError),
}

/// Renders the command of a slot, if it may be started. It is pure: it reads and changes nothing else.
pub fn render(runtime: &Runtime, request: StartRequest<'_>, around: &LaunchContext<'_>) -> Result<Launch, RenderError> {
    if request.spec.kind == WorkloadKind::Job && !runtime.kind.takes(WorkloadKind::Job) {
        return Err(RenderError::NotForJobs(runtime.name.clone()));
    }
    permission::check(runtime, request.spec)?;
    let launch = render_started(runtime, request, around)?;
    match runtime.engine {
        // Ollama is configured through its environment, and its command has none of the arguments that are checked.
        Some(Engine::Ollama) => permission::check_words(Engine::Ollama, request)?,
        Some(engine) => permission::check_command(engine, &launch.argv, request.gpus.len())?,
        None => {}
    }
    Ok(launch)
}

/// Renders the command of a slot that runs already. Whether it may be started is not checked: it is followed until it
/// ends.
pub(crate) fn render_started(
    runtime: &Runtime,
    request: StartRequest<'_>,
    around: &LaunchContext<'_>,
) -> Result<Launch, RenderError> {
    check_shares(request.gpus, around)?;
    let kind = runtime.kind_of_slot(request.spec.kind);
    let mut values = Values { request, around, said: SlotArguments::new(&request.spec.args) };
    let argv = command(runtime, &mut values)?;
    let mut env = environment::passed(runtime, around.environment);
    for (name, template) in &runtime.env {
        match values.text(template)? {
            Some(value) => env.insert(name.into(), value.into()),
            None => env.remove(std::ffi::OsStr::new(name)),
        };
    }
    env.extend(environment::ours(&request, kind, around.runner));
    let endpoint = match (&runtime.endpoint, kind) {
        (Some(template), WorkloadKind::Lease) => values.text(template)?.map(Endpoint::new).transpose()?,
        _ => None,
    };
    // A runtime for both describes how its servers answer; its jobs do not serve.
    let is_asked_for_health = runtime.kind != RuntimeKind::Both || kind == WorkloadKind::Lease;
    let (ready, live) = if is_asked_for_health { questions(runtime, &mut values)? } else { (None, None) };
    if !runtime.command.contains(&Element::Args)
        && let Some(arg) = values.said.unused()
    {
        return Err(RenderError::Unused(arg.clone()));
    }
    Ok(Launch {
        slot: request.slot,
        generation: request.generation,
        kind,
        argv,
        env,
        dir: runtime.dir.clone(),
        user: runtime.user.clone(),
        endpoint,
        probe: SocketAddr::new(reachable(around.bind), around.port),
        ready,
        live,
        grace: runtime.grace,
    })
}

type Questions = (Option<(Ready, Question)>, Option<Live>);

/// Fills in the paths of the probes. A probe whose path needs an argument that the slot does not have is left out.
fn questions(runtime: &Runtime, values: &mut Values<'_>) -> Result<Questions, RenderError> {
    let mut ready = None;
    if let Some((asked, path, model_path)) = &runtime.questions.ready
        && let Some(path) = values.path(path)?
    {
        let model_path = model_path.as_ref().map(|path| values.path(path)).transpose()?.flatten();
        let name = values.request.spec.model.as_str();
        let model = model_path.map(|path| ModelQuestion::new(runtime.engine, path, name));
        ready = Some((asked.clone(), Question { path, model }));
    }
    let mut live = None;
    if let Some((asked, path)) = &runtime.questions.live
        && let Some(path) = values.path(path)?
    {
        live = Some(Live { path, ..asked.clone() });
    }
    Ok((ready, live))
}

/// Checks that each claim fits its device, whether or not the runtime takes a share.
fn check_shares(gpus: &[DesiredGpu], around: &LaunchContext<'_>) -> Result<(), RenderError> {
    for gpu in gpus {
        let total = *around.totals.get(&gpu.uuid).ok_or_else(|| RenderError::UnknownDevice(gpu.uuid.clone()))?;
        if gpu.memory_bytes > total {
            let error = UtilizationError::MoreThanAll { claim: gpu.memory_bytes, total };
            return Err(RenderError::Share { uuid: gpu.uuid.clone(), error });
        }
    }
    Ok(())
}

fn command(runtime: &Runtime, values: &mut Values<'_>) -> Result<Vec<OsString>, RenderError> {
    let mut argv: Vec<OsString> = Vec::new();
    let mut reserved: Vec<Reserved> =
        runtime.reserved.iter().map(|option| Reserved { option: option.clone(), value: None }).collect();
    let mut option: Option<&str> = None;
    for element in &runtime.command {
        let Element::One(template) = element else {
            argv.extend(values.request.spec.args.iter().map(|arg| OsString::from(arg.as_str())));
            continue;
        };
        let rendered = values.element(template)?;
        if template.variables().any(Variable::is_decided_here) {
            // `--port {port}` and `--port={port}`: the option in question is before or within.
            let (own, value) = rendered.as_deref().unwrap_or_default().split_once('=').unzip();
            let name = own.filter(|own| own.starts_with('-')).or(option);
            reserved.extend(name.map(|name| Reserved {
                option: name.to_owned(),
                value: if own.is_some() { value.map(str::to_owned) } else { rendered.clone() },
            }));
        }
        option = template.literal().filter(|text| text.starts_with('-'));
        argv.extend(rendered.map(OsString::from));
    }
    let conflict = match runtime.engine {
        Some(engine) => permission::conflict(engine, &values.request.spec.args, &reserved),
        None => values.said.conflict(&reserved, &runtime.whole),
    };
    match conflict {
        Some(arg) => Err(RenderError::Reserved(arg.clone())),
        None => Ok(argv),
    }
}

/// The values of the variables.
struct Values<'a> {
    request: StartRequest<'a>,
    around: &'a LaunchContext<'a>,
    said: SlotArguments<'a>,
}

impl Values<'_> {
    /// Renders a text, or returns `None` if it needs an argument that the slot does not have.
    fn text(&mut self, template: &Template) -> Result<Option<String>, RenderError> {
        let mut text = String::new();
        let mut pieces = template.pieces().iter().peekable();
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Variable(variable) => {
                    let Some(value) = self.value(variable)? else { return Ok(None) };
                    let port_follows = matches!(pieces.peek(), Some(Piece::Text(next)) if next.starts_with(':'));
                    let is_v6 = value.parse::<Ipv6Addr>().is_ok();
                    text.push_str(&if port_follows && is_v6 { format!("[{value}]") } else { value });
                }
            }
        }
        if text.contains('\0') { Err(RenderError::Nul) } else { Ok(Some(text)) }
    }

    /// Renders a text as a path of a URL: the value of a variable stays within its segment.
    fn path(&mut self, template: &Template) -> Result<Option<String>, RenderError> {
        let mut path = String::new();
        for piece in template.pieces() {
            match piece {
                Piece::Text(plain) => path.push_str(plain),
                Piece::Variable(variable) => match self.value(variable)? {
                    Some(value) => path.push_str(&path_segment(&value)),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(path))
    }

    /// Renders a text as an element of a command: a value at its beginning must not become an option.
    fn element(&mut self, template: &Template) -> Result<Option<String>, RenderError> {
        match self.text(template)? {
            Some(value) if template.begins_with_a_variable() && value.starts_with('-') => {
                let variable = template.variables().next().map(ToString::to_string).unwrap_or_default();
                Err(RenderError::Option { variable, value })
            }
            text => Ok(text),
        }
    }

    fn value(&mut self, variable: &Variable) -> Result<Option<String>, RenderError> {
        let StartRequest { slot, generation, gpus, spec, .. } = self.request;
        let claimed = || gpus.iter().fold(Bytes::ZERO, |sum, gpu| sum.saturating_add(gpu.memory_bytes));
        Ok(Some(match variable {
            Variable::Model => spec.model.to_string(),
            Variable::Slot => slot.to_string(),
            Variable::Generation => generation.to_string(),
            Variable::Bind => self.around.bind.to_string(),
            Variable::Address => self.around.address.to_owned(),
            Variable::Port => self.around.port.to_string(),
            Variable::GpuCount => gpus.len().to_string(),
            Variable::Utilization => self.utilization()?.to_string(),
            Variable::MemoryBytes => claimed().get().to_string(),
            Variable::MemoryMib => (claimed().get() >> 20).to_string(),
            Variable::CpuMillicores => spec.cpu_millicores.get().to_string(),
            Variable::RamBytes => spec.ram_bytes.get().to_string(),
            Variable::Concurrency => spec.concurrency.max(1).to_string(),
            Variable::Arg { options, default } => {
                return Ok(self.said.value(options).map(str::to_owned).or_else(|| default.clone()));
            }
        }))
    }

    /// Returns the share of the smallest GPU, since the engine takes the same share of each.
    fn utilization(&self) -> Result<Utilization, RenderError> {
        let mut least: Option<Utilization> = None;
        for gpu in self.request.gpus {
            let total = self.around.totals.get(&gpu.uuid).copied().unwrap_or(Bytes::ZERO);
            let share = Utilization::of(gpu.memory_bytes, total)
                .map_err(|error| RenderError::Share { uuid: gpu.uuid.clone(), error })?;
            least = Some(least.map_or(share, |least| least.min(share)));
        }
        least.ok_or(RenderError::NoDevice)
    }
}

/// Replaces the unspecified address, at which a program listens, by one that can be connected to.
fn reachable(bind: IpAddr) -> IpAddr {
    match bind {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}
