//! Why a slot ended: from its exit status and the end of its log.
//!
//! The phrases are taken from real programs. The last known line counts: the cause of an end is followed by other
//! failures, and mere warnings came long before it.

use berth_domain::FailureReason;

use super::handle::Exit;

/// What is known of an unexpected end.
#[derive(Clone, Copy, Debug)]
pub struct UnexpectedEnd<'a> {
    /// How the first process ended.
    pub exit: Exit,
    /// The end of its log.
    pub log: &'a [u8],
    /// How often the kernel killed a process of its cgroup for want of memory.
    pub oom_kills: u64,
}

/// How many bytes of a log are searched.
const SEARCHED_BYTES: usize = 16 << 10;

/// Phrases and their reason. A line matches if it has all phrases of a row, in lower case.
const WORDS: [(&[&str], FailureReason); 41] = [
    (&["out of memory"], FailureReason::OutOfMemory),
    (&["outofmemory"], FailureReason::OutOfMemory),
    (&["out_of_memory"], FailureReason::OutOfMemory),
    (&["cudaerrormemoryallocation"], FailureReason::OutOfMemory),
    (&["cannot allocate memory"], FailureReason::OutOfMemory),
    (&["std::bad_alloc"], FailureReason::OutOfMemory),
    (&["memoryerror"], FailureReason::OutOfMemory),
    (&["failed to allocate", "buffer"], FailureReason::OutOfMemory),
    (&["unable to allocate", "buffer"], FailureReason::OutOfMemory),
    (&["no available memory for the cache blocks"], FailureReason::OutOfMemory),
    (&["free memory on device", "less than desired"], FailureReason::OutOfMemory),
    (&["requires more system memory"], FailureReason::OutOfMemory),
    (&["unrecognized argument"], FailureReason::BadArgument),
    (&["error: invalid argument"], FailureReason::BadArgument),
    (&["unexpected argument", "found"], FailureReason::BadArgument),
    (&["unrecognized option"], FailureReason::BadArgument),
    (&["invalid option"], FailureReason::BadArgument),
    (&["unknown option"], FailureReason::BadArgument),
    (&["unknown argument"], FailureReason::BadArgument),
    (&["unknown flag"], FailureReason::BadArgument),
    (&["no such option"], FailureReason::BadArgument),
    (&["flag provided but not defined"], FailureReason::BadArgument),
    (&["error while handling argument"], FailureReason::BadArgument),
    (&["error: argument", "invalid"], FailureReason::BadArgument),
    (&["error: argument", "expected"], FailureReason::BadArgument),
    (&["arguments are required"], FailureReason::BadArgument),
    (&["address already in use"], FailureReason::PortTaken),
    (&["eaddrinuse"], FailureReason::PortTaken),
    (&["couldn't bind", "port"], FailureReason::PortTaken),
    (&["not a valid model identifier"], FailureReason::ModelMissing),
    (&["repository not found"], FailureReason::ModelMissing),
    (&["repositorynotfounderror"], FailureReason::ModelMissing),
    (&["does not appear to have a file named"], FailureReason::ModelMissing),
    (&["failed to open gguf"], FailureReason::ModelMissing),
    (&["no such file", "model"], FailureReason::ModelMissing),
    (&["no such file", ".gguf"], FailureReason::ModelMissing),
    (&["no such file", ".safetensors"], FailureReason::ModelMissing),
    (&["model", "not found"], FailureReason::ModelMissing),
    (&["fallen off the bus"], FailureReason::DeviceLost),
    (&["uncorrectable ecc error"], FailureReason::DeviceLost),
    (&["no cuda gpus are available"], FailureReason::DeviceLost),
];

/// Returns the reason, or [`FailureReason::Crashed`] where nothing is more specific.
#[must_use]
pub fn classify(death: &UnexpectedEnd<'_>) -> FailureReason {
    if death.oom_kills > 0 {
        return FailureReason::OutOfMemory;
    }
    // As shells and the trampoline report it: not found, and not executable.
    if matches!(death.exit, Exit::NotRun | Exit::Code(126 | 127)) {
        return FailureReason::BadBinary;
    }
    let end = &death.log[death.log.len().saturating_sub(SEARCHED_BYTES)..];
    let text = String::from_utf8_lossy(end).to_lowercase();
    text.lines().rev().find_map(said).unwrap_or(FailureReason::Crashed)
}

fn said(line: &str) -> Option<FailureReason> {
    let means = |words: &[&str]| words.iter().all(|word| line.contains(word));
    // A missing Python module is not a missing model.
    let line_is_about_code = line.contains("modulenotfounderror") || line.contains("importerror");
    WORDS.iter().find(|(words, _)| !line_is_about_code && means(words)).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(exit: Exit, log: &str) -> FailureReason {
        classify(&UnexpectedEnd { exit, log: log.as_bytes(), oom_kills: 0 })
    }

    #[test]
    fn n9_messages_of_real_programs_are_classified() {
        use FailureReason::{BadArgument, BadBinary, Crashed, DeviceLost, ModelMissing, OutOfMemory, PortTaken};
        for (log, expected) in [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
                OutOfMemory,
            ),
            (
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
                OutOfMemory,
            ),
            ("llama_kv_cache_init: failed to allocate buffer for kv cache", OutOfMemory),
            (
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
                OutOfMemory,
            ),
            (
                "ValueError: Free memory on device (10.2/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB).",
                OutOfMemory,
            ),
            ("terminate called after throwing an instance of 'std::bad_alloc'", OutOfMemory),
            ("OSError: [Errno 12] Cannot allocate memory", OutOfMemory),
            ("api_server.py: error: unrecognized arguments: --max-model-length 4096", BadArgument),
            ("api_server.py: error: argument --max-model-len: invalid int value: 'lots'", BadArgument),
            ("error: invalid argument: --ctx", BadArgument),
            ("error: unexpected argument '--ctx' found", BadArgument),
            ("Error: unknown flag: --contextt", BadArgument),
            ("Error: No such option: --modle", BadArgument),
            ("/usr/bin/sleep: invalid option -- 'q'", BadArgument),
            ("Error: listen tcp 127.0.0.1:11434: bind: address already in use", PortTaken),
            (
                "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use",
                PortTaken,
            ),
            ("main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", PortTaken),
            (
                "OSError: nope/nope is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
                ModelMissing,
            ),
            ("gguf_init_from_file: failed to open GGUF file 'missing.gguf'", ModelMissing),
            ("error: unable to read model: open /models/x.gguf: No such file or directory", ModelMissing),
            ("Error: model 'qwen3:8b' not found", ModelMissing),
            ("OSError: nope does not appear to have a file named config.json.", ModelMissing),
            ("RuntimeError: No CUDA GPUs are available", DeviceLost),
            ("ModuleNotFoundError: No module named 'model_utils' not found", Crashed),
            ("Segmentation fault", Crashed),
            ("", Crashed),
        ] {
            assert_eq!(reason(Exit::Code(1), log), expected, "{log}");
        }
        assert_eq!(reason(Exit::Code(127), "berth: cannot run \"vllm\": No such file or directory"), BadBinary);
        assert_eq!(reason(Exit::Code(126), "berth: cannot run \"vllm\": Permission denied"), BadBinary);
    }

    #[test]
    fn the_cause_is_found_above_what_it_caused_and_below_old_warnings() {
        let log = "WARNING: out of memory, retrying\nloaded\nOSError: [Errno 98] Address already in use\nTraceback\n\
                   RuntimeError: Engine core initialization failed. See root cause above.\n";
        assert_eq!(reason(Exit::Code(1), log), FailureReason::PortTaken);
        let long_ago = format!("out of memory\n{}", "x\n".repeat(SEARCHED_BYTES));
        assert_eq!(reason(Exit::Code(1), &long_ago), FailureReason::Crashed);
    }

    #[test]
    fn the_kernels_oom_kill_outweighs_the_log() {
        let log = [0xff, 0xfe, b'\n', 0];
        let death = UnexpectedEnd { exit: Exit::Signal(9), log: &log, oom_kills: 1 };
        assert_eq!(classify(&death), FailureReason::OutOfMemory);
        assert_eq!(classify(&UnexpectedEnd { oom_kills: 0, ..death }), FailureReason::Crashed);
    }
}
