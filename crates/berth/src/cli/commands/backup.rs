//! Taking a backup of the server.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use berth_domain::Bytes;
use berth_server::backup;
use clap::Args;

use super::super::failure::{Ended, Failure};
use super::super::session::{Output, Session};

/// Take a backup of the server, while it serves
///
/// Everything that a server needs to go on, as of one revision: its state, its tokens (as hashes) and the cluster's key.
/// The file is readable by you alone: whoever has it can pretend to be this server to its agents. It is checked before
/// it gets its name, so a file that is there is whole. `berth restore` makes a data directory of it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  berth backup berth-2026-11-18.backup\n  berth backup --force /backups/berth.latest"
)]
pub(crate) struct Backup {
    /// Where to put it
    file: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

impl Backup {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let Self { file, force } = self;
        if file.exists() && !force {
            return Err(Failure::Usage(format!("{} is there: name another file, or say --force", file.display())));
        }
        let partial = beside(&file);
        let taken = receive(session, &partial).await.and_then(|()| {
            let checked = backup::check(&partial).map_err(|error| Failure::Failed(error.to_string()))?;
            keep(&partial, &file).map_err(|error| cannot_write(&file, &error))?;
            Ok(checked)
        });
        let checked = taken.inspect_err(|_| drop(std::fs::remove_file(&partial)))?;
        let (header, size) = (checked.header, Bytes::new(checked.bytes));
        match session.output {
            Output::Json => {
                let text = serde_json::to_string(&header).map_err(|error| Failure::Failed(error.to_string()))?;
                session.print(&format!("{text}\n"))?;
            }
            Output::Table => session.print(&format!(
                "backed up cluster {} at revision {} to {} ({size})\n",
                header.cluster_id,
                header.point.revision,
                file.display()
            ))?,
        }
        Ok(Ended::Well)
    }
}

async fn receive(session: &Session, to: &Path) -> Result<(), Failure> {
    let mut stream = session.client.backup().await?;
    let mut file = berth_files::create(to).map_err(|error| cannot_write(to, &error))?;
    while let Some(piece) = stream.next().await? {
        file.write_all(&piece).map_err(|error| cannot_write(to, &error))?;
    }
    file.sync_all().map_err(|error| cannot_write(to, &error))
}

/// Gives a finished backup its name, durably.
fn keep(partial: &Path, file: &Path) -> std::io::Result<()> {
    std::fs::rename(partial, file)?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot write {}: {error}", path.display()))
}
