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
    let around = Surroundings {
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
fn p20_vllm_is_told_the_smallest_share_rounded_down_and_the_number_of_gpus() {
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
fn p20_a_claim_above_the_device_is_refused_whether_or_not_a_share_is_told() {
    let runtimes = config("").unwrap();
    for runtime in ["vllm", "llama-server"] {
        let refused = launch(&runtimes, &slot(runtime, "m", &[], &[80, 81]));
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
    let nasty = ["--prompt", "$(touch /tmp/x); `id` | cat > y", "LD_PRELOAD=/evil.so", "{port}", ""];
    let launch = launch(&runtimes, &slot("llama-server", "a b;c", &nasty, &[1])).unwrap();
    assert_eq!(argv(&launch)[argv(&launch).len() - 5..], nasty);
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
    ] {
        let refused = launch(&runtimes, &slot("vllm", "m", args, &[8]));
        assert!(matches!(refused, Err(RenderError::Reserved(_))), "{args:?} gave {refused:?}");
    }
    let same = launch(&runtimes, &slot("vllm", "m", &["--tensor-parallel-size", "1"], &[8]));
    assert!(same.is_ok(), "{same:?}");
    // What an estimate says for llama.cpp replaces a default.
    assert!(launch(&runtimes, &slot("llama-server", "m", &["--n-gpu-layers", "33", "--parallel", "2"], &[8])).is_ok());
}

#[test]
fn b3_a_model_name_cannot_become_an_option() {
    let runtimes = config("").unwrap();
    let refused = launch(&runtimes, &slot("vllm", "--trust-remote-code", &[], &[8]));
    assert!(matches!(refused, Err(RenderError::Option { .. })), "{refused:?}");
}

#[test]
fn ollama_is_told_through_its_environment_and_what_it_cannot_be_told_is_refused() {
    let runtimes = config("").unwrap();
    let launched = launch(&runtimes, &slot("ollama", "qwen3:8b", &["--num-ctx", "8192"], &[8])).unwrap();
    assert_eq!(argv(&launched), ["ollama", "serve"]);
    for (name, value) in [
        ("OLLAMA_HOST", Some("0.0.0.0:9000")),
        ("OLLAMA_KEEP_ALIVE", Some("-1")),
        ("OLLAMA_NUM_PARALLEL", Some("4")),
        ("OLLAMA_CONTEXT_LENGTH", Some("8192")),
        ("OLLAMA_KV_CACHE_TYPE", None),
    ] {
        assert_eq!(env(&launched, name), value, "{name}");
    }
    let refused = launch(&runtimes, &slot("ollama", "m", &["--num-ctx", "1", "--ctx-size", "9"], &[8]));
    assert_eq!(refused.unwrap_err(), RenderError::Unused(Arg::new("--ctx-size").unwrap()));
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
    assert_eq!(vllm.ready.as_ref().map(|ready| (ready.path.as_str(), ready.every.millis())), Some(("/ping", 1000)));
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
    let around = Surroundings {
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
fn what_cannot_be_a_runtime_is_found_when_the_configuration_is_read() {
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
fn only_what_is_on_the_machine_is_offered_with_what_it_starts() {
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
        ("server", WorkloadKind::Job, "lease", true),
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
}
