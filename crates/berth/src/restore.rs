//! `berth restore`.

use std::path::PathBuf;

use anyhow::Context;
use berth_server::backup;
use berth_server::config::Sources;

/// Make a data directory of a backup
///
/// The server that is started on it goes on above everything that its agents have obeyed since the backup was made. It
/// places nothing on a runner before that runner has reported. Slots that the backup does not know are charged, and
/// stopped; slots that are no more are freed once their agents have looked for them. Jobs that may have run since the
/// backup was made are ended, unless they say restart_on_lost.
///
/// The server that the backup is of must not run any more: take its machine off the network if you cannot stop it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  berth restore berth-2026-11-18.backup --data-dir /var/lib/berth\n  \
    berth serve --data-dir /var/lib/berth")]
pub(crate) struct Args {
    /// The backup
    file: PathBuf,
    /// Where to put it: a directory that does not exist yet, or is empty
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

/// Restores a backup, and says what it was of.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { file, data_dir } = args;
    let config = Sources::default().environment(std::env::vars()).load()?;
    let restored = backup::restore(file, data_dir, berth_server::options(&config.journal))
        .with_context(|| format!("{} was not restored", file.display()))?;
    let backup::Restored { header, runners, models, slots, ended_jobs } = restored;
    let mut text = format!(
        "restored cluster {} of {} at revision {} into {}\n  {models} models, {runners} runners, {slots} slots\n",
        header.cluster_id,
        header.created,
        header.point.revision,
        data_dir.display()
    );
    if ended_jobs > 0 {
        text.push_str(&format!(
            "  {ended_jobs} jobs may have run since then and were ended: submit them again if need be\n"
        ));
    }
    text.push_str(&format!("start the server with\n  berth serve --data-dir {}\n", data_dir.display()));
    crate::print(&text)
}
