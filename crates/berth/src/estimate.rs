//! `berth estimate FILE`: how much memory a model needs, from its files. No server is asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use berth_domain::{Arg, Bytes, FilePath, GpuCount};
use berth_estimate::{Estimate, Model, Options, Profile, launch, render};
use berth_wire::KvType;
use clap::ArgAction;

use crate::cli::{Connection, Failure, Output};

/// Say how much GPU memory a model needs, from the headers of its files
///
/// The file is a GGUF (any of its parts), or a folder with config.json and safetensors. Only headers are read, here and
/// by this command: no server is asked. What is not said is what the program does by itself. docs/ESTIMATION.md says
/// how the numbers are made and how near they are.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 done, 1 no estimate can be made, 2 wrong usage or a file that cannot be read.\n\n\
    Example:\n  berth estimate qwen3-8b-q4_k_m.gguf --context 32768 --parallel 4 --kv-type q8_0 --gpus 1,2\n  \
    berth estimate Qwen2.5-7B-Instruct/ --context 8192 --gpu-memory 24GiB"
)]
pub(crate) struct Args {
    /// A GGUF file, or a folder with config.json and safetensors
    file: PathBuf,
    /// Tokens of one sequence; what the model was trained for, unless said
    #[arg(long, value_name = "TOKENS")]
    context: Option<u64>,
    /// Sequences at once; 1 unless said
    #[arg(long, value_name = "N")]
    parallel: Option<u64>,
    /// How the cache stores keys and values: f16, q8_0, fp8 ..., or two such as q8_0/f16
    #[arg(long, value_name = "TYPE")]
    kv_type: Option<KvType>,
    /// GPU counts, such as 1,2,4; those that the model can be split over, unless said
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    gpus: Vec<u16>,
    /// Whether attention writes all scores down: true (no, the usual), or false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    flash_attention: Option<bool>,
    /// Whose memory: llama.cpp, conservative or vllm
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// A GGUF file with what turns images or sound into tokens
    #[arg(long, value_name = "FILE")]
    projector: Option<PathBuf>,
    /// Tokens computed at once
    #[arg(long, value_name = "TOKENS")]
    batch: Option<u64>,
    /// One cache for all sequences instead of one for each
    #[arg(long)]
    unified_cache: bool,
    /// What a process takes on each GPU before it does anything, such as 500MiB
    #[arg(long, value_name = "SIZE")]
    overhead: Option<Bytes>,
    /// The memory of one GPU, such as 24GiB: bars are drawn against it
    #[arg(long, value_name = "SIZE")]
    gpu_memory: Option<Bytes>,
}

/// Reads, estimates and prints.
pub(crate) fn run(connection: &Connection, args: &Args) -> ExitCode {
    let done = args.estimate().and_then(|estimate| {
        let text = match connection.output() {
            Output::Table => args.table(&estimate),
            Output::Json => args.json(&estimate)?,
        };
        crate::print(&text).map_err(|error| Failure::Failed(error.to_string()))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            failure.code()
        }
    }
}

impl Args {
    fn estimate(&self) -> Result<Estimate, Failure> {
        let unreadable = |error: berth_estimate::OpenError| Failure::Usage(error.to_string());
        let mut model = Model::open(&self.file).map_err(unreadable)?;
        if let Some(projector) = &self.projector {
            model = model.with_projector(projector).map_err(unreadable)?;
        }
        model.estimate(&self.options()).map_err(|error| Failure::Failed(error.to_string()))
    }

    fn options(&self) -> Options {
        let counts: BTreeSet<GpuCount> = self.gpus.iter().copied().map(GpuCount::new).collect();
        Options {
            profile: self.profile,
            context: self.context,
            parallel: self.parallel,
            cache_type_k: self.kv_type.map(|kind| kind.keys),
            cache_type_v: self.kv_type.map(|kind| kind.values),
            flash_attention: self.flash_attention,
            batch: self.batch,
            unified_cache: self.unified_cache.then_some(true),
            gpu_counts: Some(counts).filter(|counts| !counts.is_empty()),
            overhead: self.overhead,
        }
    }

    /// The parts as numbers, a bar for each GPU of each count, and the arguments that make it true.
    fn table(&self, estimate: &Estimate) -> String {
        let mut text = render::table(estimate);
        for (count, devices) in &estimate.counts {
            let gpus = if count.get() == 1 { "GPU" } else { "GPUs" };
            text.push_str(&format!("\n{count} {gpus}\n{}", render::bar(devices, self.gpu_memory)));
        }
        text.push_str(&format!("\nstart it with: {}\n", launch::arguments(estimate).join(" ")));
        text
    }

    /// What `POST /api/v1/estimate` would say.
    fn json(&self, estimate: &Estimate) -> Result<String, Failure> {
        let failed = |error: String| Failure::Failed(error);
        let file = whole_path(&self.file).map_err(failed)?;
        let args = launch::arguments(estimate).into_iter().map(Arg::new).collect::<Result<_, _>>();
        let args = args.map_err(|error| Failure::Failed(error.to_string()))?;
        let said = berth_wire::Estimate { args, ..berth_wire::Estimate::of(file, estimate) };
        let text = serde_json::to_string(&said).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(format!("{text}\n"))
    }
}

fn whole_path(file: &Path) -> Result<FilePath, String> {
    let path = std::fs::canonicalize(file).map_err(|error| format!("{}: {error}", file.display()))?;
    FilePath::new(path.to_string_lossy()).map_err(|error| format!("{}: {error}", file.display()))
}
