//! The one binary of Berth.

mod cli;
mod demo;
mod dev;
mod estimate;
mod gateway;
mod local_token;
mod restore;
mod runner;
mod scenario;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Berth places model workloads on GPUs, and never promises a GPU more memory than it has.
#[derive(Debug, Parser)]
#[command(name = "berth", version, about, after_help = cli::EXIT_STATUS)]
struct Arguments {
    #[command(flatten)]
    connection: cli::Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Dev(dev::Args),
    Runner(runner::Args),
    Gateway(gateway::Args),
    /// What a slot of `berth dev` runs
    #[command(hide = true)]
    DemoSlot(demo::DemoSlot),
    /// Start a slot's process (the agent calls this)
    #[command(hide = true, disable_help_flag = true)]
    RunnerExec {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    Restore(restore::Args),
    Estimate(Box<estimate::Args>),
    /// Look at the configuration
    #[command(subcommand)]
    Config(serve::ConfigCommand),
    /// Run scenario files against the scheduler's core
    ///
    /// A scenario describes runners, models, steps, and what must be true after them; docs/SCENARIOS.md describes the
    /// format. Nothing is started and no GPU is needed: agents and time are simulated.
    ///
    /// For each file one line is printed, "ok ID TITLE" or the failure with its file and line, and last a line
    /// "N passed, M failed".
    #[command(
        after_help = "Exit status: 0 all passed, 1 a scenario failed, 2 a file cannot be read or is no scenario."
    )]
    Scenario {
        /// Scenario files (TOML)
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print every decision with its reasons and numbers
        #[arg(long)]
        explain: bool,
    },
    #[command(flatten)]
    Client(cli::ClientCommand),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  berth completions bash > ~/.local/share/bash-completion/completions/berth")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { connection, command } = Arguments::parse();
    match command {
        Command::Serve(args) => serve::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Dev(args) => dev::run(&args).map(|()| ExitCode::SUCCESS),
        Command::DemoSlot(args) => demo::demo_slot(&args).map(|()| ExitCode::SUCCESS),
        Command::Runner(args) => runner::run(&connection, args).map(|()| ExitCode::SUCCESS),
        Command::Gateway(args) => gateway::run(&connection, &args).map(|()| ExitCode::SUCCESS),
        Command::RunnerExec { arguments } => berth_runner::process::trampoline(arguments),
        Command::Restore(args) => restore::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Estimate(args) => Ok(estimate::run(&connection, &args)),
        Command::Config(command) => serve::config(command).map(|()| ExitCode::SUCCESS),
        Command::Scenario { files, explain } => scenario::run(&files, explain),
        Command::Client(command) => Ok(cli::run(&connection, command)),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "berth", &mut script);
    print(&String::from_utf8_lossy(&script)).map(|()| ExitCode::SUCCESS)
}

/// Prints, and ends quietly where nobody reads any more.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let path = format!("{path} {}", command.get_name());
        if command.get_subcommands().next().is_none() {
            let help = command.clone().render_long_help().to_string();
            found.push((path, help));
            return;
        }
        let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        shown.for_each(|inner| leaves(inner, &path, found));
    }

    #[test]
    fn every_client_command_shows_an_example_of_itself() {
        let mut found = Vec::new();
        leaves(&Arguments::command(), "", &mut found);
        assert!(found.len() > 25, "{found:?}");
        for (path, help) in found {
            let elsewhere = ["serve", "config", "scenario", "runner", "dev"];
            if elsewhere.iter().any(|name| path.starts_with(&format!(" berth {name}"))) {
                continue;
            }
            assert!(help.contains("Example") && help.contains(path.trim()), "{path} has no example:\n{help}");
        }
    }

    #[test]
    fn the_help_says_how_commands_end() {
        let help = Arguments::command().render_help().to_string();
        for line in ["3  the server cannot be reached", "6  waited in vain"] {
            assert!(help.contains(line), "{help}");
        }
    }
}
