//! Rendering: what reaches a program, and what never does.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use berth_domain::{
    Arg, Bytes, DesiredGpu, DeviceUuid, Generation, Millicores, ModelName, RunSpec, RunnerId, RuntimeKind, RuntimeName,
    SlotId, Span, UtilizationError, WorkloadKind,
};

use super::*;

fn config(toml: &str) -> Result<Runtimes, ConfigError> {
    Runtimes::from_config(&toml::from_str::<BTreeMap<RuntimeName, RuntimeConfig>>(toml).unwrap())
}

/// A slot that should run.
struct Wanted {
    gpus: Vec<DesiredGpu>,
    spec: RunSpec,
}

impl Wanted {
    fn request(&self) -> StartRequest<'_> {
        StartRequest {
            slot: SlotId::new("01234567-89ab-cdef-0123-456789abcdef".parse().unwrap()),
            generation: Generation::new(2),
            gpus: &self.gpus,
            spec: &self.spec,
            secret: None,
        }
    }

    fn of_kind(mut self, kind: WorkloadKind) -> Self {
        self.spec.kind = kind;
        self
    }
}

fn slot(runtime: &str, model: &str, args: &[&str], claims: &[u64]) -> Wanted {
    let gpu = |(index, gib): (usize, &u64)| DesiredGpu {
        uuid: DeviceUuid::new(format!("GPU-{index}")).unwrap(),
        memory_bytes: Bytes::gib(*gib),
    };
    let spec = RunSpec {
        model: ModelName::new(model).unwrap(),
        runtime: RuntimeName::new(runtime).unwrap(),
        kind: WorkloadKind::Lease,
        model_args: 0,
        args: args.iter().map(|arg| Arg::new(arg).unwrap()).collect(),
        cpu_millicores: Millicores::ZERO,
        ram_bytes: Bytes::ZERO,
        concurrency: 4,
    };
    Wanted { gpus: claims.iter().enumerate().map(gpu).collect(), spec }
}

/// An agent with two GPUs of 80 GiB and one of 24, and something to hide.
fn launch(runtimes: &Runtimes, slot: &Wanted) -> Result<Launch, RenderError> {
    let sizes = [80, 80, 24];
    let device = |(index, gib): (usize, u64)| (DeviceUuid::new(format!("GPU-{index}")).unwrap(), Bytes::gib(gib));
    let own = [("PATH", "/bin"), ("HOME", "/root"), ("LD_PRELOAD", "/evil.so"), ("SECRET", "s"), ("HF_TOKEN", "hf")];
    let around = LaunchContext {
        runner: &RunnerId::new("r1").unwrap(),
        address: "gpu7.example",
        bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        port: 9000,
        totals: &sizes.into_iter().enumerate().map(device).collect(),
        environment: &own.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
    };
    render(runtimes.get(&slot.spec.runtime).unwrap(), slot.request(), &around)
}

fn argv(launch: &Launch) -> Vec<&str> {
    launch.argv.iter().map(|element| element.to_str().unwrap()).collect()
}

fn env<'a>(launch: &'a Launch, name: &str) -> Option<&'a str> {
    launch.env.get(OsStr::new(name)).and_then(|value| value.to_str())
}

#[test]
fn p20_vllm_gets_the_smallest_share_rounded_down_and_the_number_of_gpus() {
    let runtimes = config("").unwrap();
    let launch = launch(&runtimes, &slot("vllm", "Qwen/Qwen3-8B", &["--max-model-len", "8192"], &[50, 40])).unwrap();
    assert_eq!(
        argv(&launch),
        [
            "vllm",
            "serve",
            "Qwen/Qwen3-8B",
            "--host",
            "0.0.0.0",
            "--port",
            "9000",
            "--gpu-memory-utilization",
            "0.5000",
            "--tensor-parallel-size",
            "2",
            "--max-model-len",
            "8192"
        ]
    );
    assert_eq!(launch.endpoint.as_ref().unwrap().as_str(), "http://gpu7.example:9000");
    assert_eq!(launch.probe.to_string(), "127.0.0.1:9000", "every address is no address to ask at");
    assert_eq!(env(&launch, "CUDA_VISIBLE_DEVICES"), Some("GPU-0,GPU-1"));
    assert_eq!(env(&launch, "CUDA_DEVICE_ORDER"), Some("PCI_BUS_ID"));
}

#[test]
fn p20_a_claim_above_the_device_is_refused_with_and_without_a_share() {
    let runtimes = config("").unwrap();
    for runtime in ["vllm", "llama-server"] {
        let args: &[&str] = if runtime == "vllm" { &[] } else { &["-m", "m.gguf"] };
        let refused = launch(&runtimes, &slot(runtime, "m", args, &[80, 81]));
        let more = |error: &RenderError| {
            matches!(error, RenderError::Share { error: UtilizationError::MoreThanAll { .. }, .. })
        };
        assert!(refused.as_ref().is_err_and(more), "{refused:?}");
    }
    assert_eq!(launch(&runtimes, &slot("vllm", "m", &[], &[])).unwrap_err(), RenderError::NoDevice);
    let mut elsewhere = slot("vllm", "m", &[], &[1]);
    elsewhere.gpus[0].uuid = DeviceUuid::new("GPU-9").unwrap();
    assert!(matches!(launch(&runtimes, &elsewhere), Err(RenderError::UnknownDevice(_))));
}

#[test]
fn b3_arguments_stay_single_elements_and_the_environment_is_the_allow_list() {
    let runtimes = config("").unwrap();
    let nasty = ["--grammar", "$(touch /tmp/x); `id` | cat > y", "-r", "LD_PRELOAD=/evil.so", "-m", "{port}", "-j", ""];
    let launch = launch(&runtimes, &slot("llama-server", "a b;c", &nasty, &[1])).unwrap();
    assert_eq!(argv(&launch)[argv(&launch).len() - 8..], nasty);
    assert!(argv(&launch).contains(&"a b;c"));
    let names: Vec<&str> = launch.env.keys().map(|name| name.to_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "BERTH_RUNNER_ID",
            "BERTH_SLOT_GENERATION",
            "BERTH_SLOT_ID",
            "BERTH_SLOT_KIND",
            "CUDA_DEVICE_ORDER",
            "CUDA_VISIBLE_DEVICES",
            "HF_TOKEN",
            "HOME",
            "PATH"
        ]
    );
    assert!(!format!("{launch:?}").contains("hf\""), "a secret is shown: {launch:?}");
}

#[test]
fn b3_arguments_cannot_take_back_what_the_agent_decides() {
    let runtimes = config("").unwrap();
    for args in [
        ["--gpu-memory-utilization", "0.99"].as_slice(),
        &["--gpu_memory_utilization=0.99"],
        &["--gpu-memory-util", "0.99"],
        &["--port", "1"],
        &["--tensor-parallel-size", "8"],
        &["-tp", "8"],
        &["--kv-cache-memory-bytes", "99999999999"],
        &["--config", "/tmp/evil.yaml"],
        &["--device-memory-utilization", "0.99"],
        &["-tp=8"],
    ] {
        let refused = launch(&runtimes, &slot("vllm", "m", args, &[8]));
        assert!(matches!(refused, Err(RenderError::Forbidden(_))), "{args:?} gave {refused:?}");
    }
    // What an estimate says for llama.cpp replaces a default.
    let said = ["-m", "m.gguf", "--n-gpu-layers", "33", "--parallel", "2"];
    assert!(launch(&runtimes, &slot("llama-server", "m", &said, &[8])).is_ok());
    // Not even the operator's leave gives a slot another share than its claim.
    let lenient = config("vllm = { allow = [\"--gpu-memory-utilization\", \"--port\"] }").unwrap();
    for args in [["--gpu-memory-utilization", "0.99"], ["--device-memory-util", "0.99"], ["--port", "1"]] {
        let refused = launch(&lenient, &slot("vllm", "m", &args, &[8]));
        assert!(matches!(refused, Err(RenderError::Reserved(_))), "{args:?} gave {refused:?}");
    }
}

#[test]
fn arguments_that_need_leave_reach_a_program_only_with_the_operators() {
    let strict = config("").unwrap();
    let lenient = config("vllm = { allow = [\"--trust-remote-code\", \"--brand-new\"] }").unwrap();
    for args in [["--trust-remote-code"].as_slice(), &["--trust_remote"], &["--brand-new", "5"]] {
        let refused = launch(&strict, &slot("vllm", "m", args, &[8])).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(args[0]) && text.contains("`allow` of [runtime.vllm]"), "{text}");
        assert!(launch(&lenient, &slot("vllm", "m", args, &[8])).is_ok(), "{args:?}");
    }
    for args in [["--tools", "all"], ["--mcp-servers-json", "{}"], ["--mcp-servers-config", "/x"]] {
        let args = [&["-m", "m.gguf"], args.as_slice()].concat();
        let refused = launch(&strict, &slot("llama-server", "m", &args, &[8]));
        assert!(matches!(refused, Err(RenderError::Forbidden(_))), "{args:?} gave {refused:?}");
    }
    let router = launch(&strict, &slot("llama-server", "m", &[], &[8]));
    assert!(matches!(router, Err(RenderError::Forbidden(NotPermitted::Unfit(_)))), "{router:?}");
}

#[test]
fn a_job_passes_what_the_operator_lists_and_changes_no_memory() {
    let runtimes = config(
        r#"
        vllm = { kind = "both", allow = ["--max-model-len", "--trust-remote-code"] }
        train = { command = ["train", "{args}"], kind = "job", allow = ["--epochs"] }
        any = { command = ["any", "{args}"], kind = "job", allow = ["*"] }
        none = { command = ["none", "{args}"], kind = "job" }
        "#,
    )
    .unwrap();
    // The arguments of the model come first.
    let job = |runtime: &str, of_model: &[&str], of_job: &[&str]| {
        let mut wanted = slot(runtime, "m", &[of_model, of_job].concat(), &[8]).of_kind(WorkloadKind::Job);
        wanted.spec.model_args = of_model.len();
        launch(&runtimes, &wanted)
    };
    assert!(job("vllm", &["--max-model-len", "10"], &["--seed", "1", "--trust-remote-code"]).is_ok());
    assert!(job("vllm", &[], &["--max-model-len", "10"]).is_err(), "though it is listed");
    assert!(job("train", &["--anything", "at", "all"], &["--epochs", "3"]).is_ok());
    assert!(job("train", &[], &["--epochs", "3", "--evil"]).is_err());
    assert!(job("any", &[], &["--evil", "x"]).is_ok());
    assert!(job("none", &["--fine"], &[]).is_ok());
    assert!(job("none", &[], &["--evil"]).is_err(), "nothing is listed");
    // A server that does not say whose arguments they are is not trusted with them.
    let unsaid = slot("none", "m", &["--fine"], &[8]).of_kind(WorkloadKind::Job);
    assert!(launch(&runtimes, &unsaid).is_err());
}

#[test]
fn a_list_of_allowed_arguments_that_cannot_be_meant_is_named() {
    for (toml, says) in [
        ("vllm = { allow = [\"*\"] }", "runtime.vllm.allow: \"*\" is only for a command without a table"),
        ("x = { command = [\"x\"], allow = [\"--a=b\"] }", "runtime.x.allow: \"--a=b\" is no argument"),
    ] {
        let error = config(toml).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn b3_a_model_name_cannot_become_an_option() {
    let runtimes = config("").unwrap();
    let refused = launch(&runtimes, &slot("vllm", "--trust-remote-code", &[], &[8]));
    assert!(matches!(refused, Err(RenderError::Option { .. })), "{refused:?}");
}

#[test]
fn ollama_is_configured_by_its_environment_and_other_arguments_are_refused() {
    let runtimes = config("").unwrap();
    let launched = launch(&runtimes, &slot("ollama", "qwen3:8b", &["--num-ctx", "8192"], &[8])).unwrap();
    assert_eq!(argv(&launched), ["ollama", "serve"]);
    for (name, value) in [
        ("OLLAMA_HOST", Some("0.0.0.0:9000")),
        ("OLLAMA_KEEP_ALIVE", Some("-1")),
        ("OLLAMA_NUM_PARALLEL", Some("4")),
        ("OLLAMA_CONTEXT_LENGTH", Some("8192")),
        ("OLLAMA_KV_CACHE_TYPE", None),
        ("OLLAMA_FLASH_ATTENTION", Some("1")),
    ] {
        assert_eq!(env(&launched, name), value, "{name}");
    }
    let refused = launch(&runtimes, &slot("ollama", "m", &["--num-ctx", "1", "--ctx-size", "9"], &[8]));
    assert!(matches!(refused, Err(RenderError::Forbidden(_))), "{refused:?}");
    // A quantised cache is ignored without flash attention.
    let quantised = launch(&runtimes, &slot("ollama", "m", &["--kv-cache-type", "q8_0"], &[8])).unwrap();
    assert_eq!(env(&quantised, "OLLAMA_KV_CACHE_TYPE"), Some("q8_0"));
    assert_eq!(env(&quantised, "OLLAMA_FLASH_ATTENTION"), Some("1"));
    let without = launch(&runtimes, &slot("ollama", "m", &["--flash-attention", "0"], &[8])).unwrap();
    assert_eq!(env(&without, "OLLAMA_FLASH_ATTENTION"), Some("0"));
    assert!(
        launch(&runtimes, &slot("ollama", "m", &["--kv-cache-type", "q8_0", "--flash-attention", "0"], &[8])).is_err()
    );
}

#[test]
fn an_operator_may_change_a_part_of_a_built_in_and_add_others() {
    let runtimes = config(
        r#"
        vllm = { env_pass = ["LD_PRELOAD"], env = { VLLM_X = "{slot}" }, ready = { path = "/ping", every = "1s" } }
        ollama = { enabled = false }
        [demo]
        command = ["/bin/demo", "--listen={bind}:{port}", "{{}}", "--ctx={arg:--ctx}", "{args}"]
        kind = "job"
        stop_grace = "1s"
        "#,
    )
    .unwrap();
    assert!(runtimes.get(&RuntimeName::new("ollama").unwrap()).is_none());
    let vllm = launch(&runtimes, &slot("vllm", "m", &[], &[8])).unwrap();
    assert_eq!(env(&vllm, "LD_PRELOAD"), Some("/evil.so"), "the operator listed it");
    assert_eq!(env(&vllm, "VLLM_X"), Some("01234567-89ab-cdef-0123-456789abcdef"));
    assert_eq!(
        vllm.ready.as_ref().map(|(ready, asked)| (asked.path.as_str(), ready.every.millis())),
        Some(("/ping", 1000))
    );
    assert_eq!(vllm.argv[0], OsString::from("vllm"));
    let demo = launch(&runtimes, &slot("demo", "m", &["x"], &[])).unwrap();
    assert_eq!(argv(&demo), ["/bin/demo", "--listen=0.0.0.0:9000", "{}", "x"], "no --ctx: it is left out");
    assert_eq!((demo.kind, demo.endpoint.clone(), demo.grace), (WorkloadKind::Job, None, Some(Span::from_secs(1))));
    assert_eq!(env(&demo, "BERTH_SLOT_KIND"), Some("job"));
    assert_eq!(env(&demo, "CUDA_VISIBLE_DEVICES"), Some(""), "a slot without devices sees none");
    let refused = launch(&runtimes, &slot("demo", "m", &["--listen=0.0.0.0:22"], &[]));
    assert!(matches!(refused, Err(RenderError::Reserved(_))), "{refused:?}");
}

#[test]
fn an_address_of_the_sixth_version_gets_its_brackets_before_a_port() {
    let runtimes =
        config("x = { command = [\"x\", \"{bind}\", \"{bind}:{port}\"], endpoint = \"http://{address}:{port}\" }");
    let around = LaunchContext {
        runner: &RunnerId::new("r1").unwrap(),
        address: "2001:db8::7",
        bind: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        port: 80,
        totals: &BTreeMap::new(),
        environment: &BTreeMap::new(),
    };
    let slot = slot("x", "m", &[], &[]);
    let launch = render(runtimes.unwrap().get(&slot.spec.runtime).unwrap(), slot.request(), &around).unwrap();
    assert_eq!(argv(&launch), ["x", "::", "[::]:80"]);
    assert_eq!(launch.endpoint.unwrap().as_str(), "http://[2001:db8::7]:80");
    assert_eq!(launch.probe.to_string(), "[::1]:80");
}

#[test]
fn an_invalid_runtime_is_refused_when_the_configuration_is_read() {
    for (toml, part) in [
        ("x = { command = [] }", "`command` is missing or empty"),
        ("x = {}", "`command` is missing or empty"),
        ("x = { command = [\"{model}\"] }", "must not contain variables"),
        ("x = { command = [\"x\", \"{modle}\"] }", "{modle} is not a variable"),
        ("x = { command = [\"x\", \"--a={args}\"] }", "element of its own"),
        ("x = { command = [\"/bin/sh\", \"-c\", \"run {model}\"] }", "a shell's script"),
        ("x = { command = [\"bash\", \"-ec\", \"{args}\"] }", "a shell's script"),
        ("x = { command = [\"x\"], env = { CUDA_VISIBLE_DEVICES = \"0\" } }", "set by Berth"),
        ("x = { command = [\"x\"], env_pass = [\"BERTH_SLOT_ID\"] }", "set by Berth"),
        ("x = { command = [\"x\"], env = { BERTH_SLOT_KIND = \"job\" } }", "set by Berth"),
        ("x = { command = [\"x\"], env = { \"A=B\" = \"0\" } }", "cannot be the name"),
        ("x = { command = [\"x\"], ready = { path = \"/a b\" } }", "not a path"),
    ] {
        let error = config(toml).unwrap_err().to_string();
        assert!(error.contains(part), "{toml}: {error}");
    }
    assert!(toml::from_str::<RuntimeConfig>("comand = []").is_err(), "a typo was taken");
    assert!(config("x = { command = [\"sh\", \"-c\", \"echo $1\", \"sh\", \"{model}\"] }").is_ok());
}

#[test]
fn runtimes_whose_program_is_missing_are_not_offered() {
    let runtimes = config(
        "a = { command = [\"sh\"] }\nb = { command = [\"/nowhere/x\"] }\nc = { command = [\"/bin/sh\"], kind = \"job\" }\n\
         d = { command = [\"sh\"], kind = \"both\" }",
    );
    let offered = runtimes.unwrap().installed(OsStr::new("/nowhere:/bin"));
    let expected = [("a", RuntimeKind::Server), ("c", RuntimeKind::Job), ("d", RuntimeKind::Both)];
    assert_eq!(offered, expected.map(|(name, kind)| (RuntimeName::new(name).unwrap(), kind)).into());
}

#[test]
fn a_slot_is_a_job_if_its_runtime_says_so_or_leaves_it_to_the_slot() {
    let runtimes = config(
        r#"
        [server]
        command = ["x"]
        endpoint = "http://{address}:{port}"
        ready = { path = "/health" }
        [job]
        command = ["x"]
        kind = "job"
        endpoint = "http://{address}:{port}"
        ready = { path = "/begun" }
        [both]
        command = ["x"]
        kind = "both"
        endpoint = "http://{address}:{port}"
        ready = { path = "/health" }
        live = { path = "/health" }
        "#,
    )
    .unwrap();
    for (runtime, asked, kind, answers) in [
        ("server", WorkloadKind::Lease, "lease", true),
        ("job", WorkloadKind::Lease, "job", false),
        ("job", WorkloadKind::Job, "job", false),
        ("both", WorkloadKind::Lease, "lease", true),
        ("both", WorkloadKind::Job, "job", false),
    ] {
        let launched = launch(&runtimes, &slot(runtime, "m", &[], &[]).of_kind(asked)).unwrap();
        let expected = if kind == "job" { WorkloadKind::Job } else { WorkloadKind::Lease };
        assert_eq!(launched.kind, expected, "{runtime} asked for {asked:?}");
        assert_eq!(env(&launched, "BERTH_SLOT_KIND"), Some(kind), "{runtime} asked for {asked:?}");
        assert_eq!(launched.endpoint.is_some(), answers, "{runtime} asked for {asked:?}");
        // How a job is told to have begun stands in a runtime for jobs; one for both describes its servers.
        assert_eq!(launched.ready.is_some(), answers || runtime == "job", "{runtime} asked for {asked:?}");
    }
    let refused = launch(&runtimes, &slot("server", "m", &[], &[]).of_kind(WorkloadKind::Job)).unwrap_err();
    assert_eq!(
        refused,
        RenderError::NotForJobs(RuntimeName::new("server").unwrap()),
        "a job is not started as a server"
    );
}

#[test]
fn a_user_that_the_machine_does_not_have_is_named_with_its_runtime_and_field() {
    let error = config("[engine]\ncommand = [\"x\"]\nuser = \"no-such-user\"").unwrap_err();
    assert_eq!(error.to_string(), "runtime.engine.user: there is no user \"no-such-user\" on this machine");
    let error = config("[vllm]\ngroup = 7").unwrap_err();
    assert_eq!(error.to_string(), "runtime.vllm.group: it needs a `user` beside it");
    let another = config("[engine]\ncommand = [\"x\"]\nuser = 4000000000\ngroup = 7");
    if UserId::own().is_root() {
        let runtimes = another.unwrap();
        let runtime = runtimes.get(&RuntimeName::new("engine").unwrap()).unwrap();
        assert_eq!(runtime.user_id(), UserId::new(4_000_000_000));
        assert_eq!(runtimes.users(), [UserId::own(), UserId::new(4_000_000_000)].into());
    } else {
        assert!(another.unwrap_err().to_string().starts_with("runtime.engine.user: this agent runs as user "));
    }
}

#[test]
fn a_slot_of_another_user_has_that_users_home_and_name() {
    if !UserId::own().is_root() {
        return;
    }
    let of = |text: &str| {
        let runtimes = config(&format!("[engine]\ncommand = [\"x\"]\n{text}")).unwrap();
        launch(&runtimes, &slot("engine", "m", &[], &[])).unwrap().env
    };
    let value = |env: &BTreeMap<OsString, OsString>, name: &str| env.get(OsStr::new(name)).cloned();
    let nobody = of("user = \"nobody\"");
    for name in ["USER", "LOGNAME"] {
        assert_eq!(value(&nobody, name), Some("nobody".into()));
    }
    assert_ne!(value(&nobody, "HOME"), value(&of(""), "HOME"));
    let unknown = of("user = 4000000000\ngroup = 7");
    assert_eq!((value(&unknown, "HOME"), value(&unknown, "USER")), (Some("/".into()), None));
    let said = of("user = \"nobody\"\nenv = { HOME = \"/srv\" }");
    assert_eq!(value(&said, "HOME"), Some("/srv".into()), "the operator's word counts");
}

#[test]
fn variables_of_the_agent_are_not_passed_on() {
    for name in ["BERTH_TOKEN", "BERTH_TOKEN_FILE", "BERTH_SERVER"] {
        let error = config(&format!("[engine]\ncommand = [\"x\"]\nenv_pass = [\"{name}\"]")).unwrap_err();
        assert!(error.to_string().contains("is the agent's own and is not passed on"), "{error}");
    }
    let error = config("[engine]\ncommand = [\"x\"]\nenv = { BERTH_SLOT_SECRET = \"x\" }").unwrap_err();
    assert_eq!(error.to_string(), "runtime.engine: BERTH_SLOT_SECRET is set by Berth");
}
