//! `berth scenario FILE...`

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

/// Runs the files and prints what came of each.
pub(crate) fn run(files: &[PathBuf], explain: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let (mut passed, mut failed, mut bad_file) = (0_usize, 0_usize, false);
    for file in files {
        let line = match berth_scenario::run_file(file) {
            Ok(done) => {
                passed += 1;
                let decisions = done.decisions.iter().filter(|_| explain);
                let lines = decisions.map(|decision| format!("{decision}\n")).collect::<String>();
                format!("{lines}ok {} {}", done.id, done.title)
            }
            Err(failure) => {
                failed += 1;
                bad_file |= failure.is_bad_file();
                format!("FAILED {failure}")
            }
        };
        if !print(&mut out, &line)? {
            break;
        }
    }
    print(&mut out, &format!("{passed} passed, {failed} failed"))?;
    Ok(match (bad_file, failed) {
        (true, _) => ExitCode::from(2),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    })
}

/// Prints a line. Whoever closed the pipe has read enough: that is no error, but there is no use in going on.
fn print(out: &mut impl Write, line: &str) -> anyhow::Result<bool> {
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
