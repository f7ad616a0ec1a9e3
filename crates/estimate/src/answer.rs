//! Estimates on behalf of a caller that cannot read the files itself: the server for its clients, an agent for its
//! server.
//!
//! Files below listed directories are read, and a path elsewhere is refused before the disk is asked, so that the
//! caller learns nothing of other files.

use std::path::{Path, PathBuf};

use berth_domain::estimate::{Asked, Estimate, Launch, Question, Refusal};
use berth_domain::{Arg, FilePath};

use crate::Model;
use crate::launch::{self, NotAgreed, Program};
use crate::read_scope::ReadScope;

/// The reader of files: its name, its directories, and the setting that lists them.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The name of the reader in messages, for example `the server`.
    pub who: String,
    /// The setting that lists the directories.
    pub setting: &'static str,
    /// The directories below which files may be read.
    pub directories: Vec<PathBuf>,
}

impl Reader {
    /// Reads the headers and estimates. Takes as long as the disk does.
    pub fn answer(&self, question: &Question) -> Result<Estimate, Refusal> {
        self.check(question)?;
        let model = self.open(question)?;
        match &question.launch {
            None => model.estimate(&question.options).map_err(|error| refuse(Asked::File, error.to_string())),
            Some(launch) => {
                let (program, args) = (Program::of(&launch.runtime), words(&launch.args));
                launch::estimate_for_launch(&model, program, &question.options, &args, u64::from(launch.concurrency))
                    .map_err(|why| not_agreed(launch, &why))
            }
        }
    }

    /// Refuses a path that is not below the directories: elsewhere, reached by a link that leads there, or missing. The
    /// message is the same for all three, so that the caller does not learn which files exist elsewhere.
    fn check(&self, question: &Question) -> Result<(), Refusal> {
        let paths = [(Asked::File, Some(&question.file)), (Asked::Projector, question.projector.as_ref())];
        for (of, path) in paths.into_iter().filter_map(|(of, path)| Some((of, path?))) {
            let place = Path::new(path.as_str());
            let is_below = self.directories.iter().any(|directory| place.starts_with(directory));
            // The disk is not asked about a path elsewhere.
            if !is_below || !ReadScope::below(&self.directories).has(place) {
                return Err(refuse(of, self.outside(path)));
            }
        }
        Ok(())
    }

    fn outside(&self, path: &FilePath) -> String {
        let Self { who, setting, directories } = self;
        if directories.is_empty() {
            return format!(
                "{who} reads no model files: list the directory of {path} in {setting} of its configuration, or state \
                 the memory"
            );
        }
        let list: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
        format!(
            "{who} finds no {path} below {}, and reads model files there only: put it there, or add its directory to \
             {setting} of its configuration",
            list.join(", ")
        )
    }

    fn open(&self, question: &Question) -> Result<Model, Refusal> {
        let scope = ReadScope::below(&self.directories);
        let path = |path: &FilePath| PathBuf::from(path.as_str());
        let model = Model::open_within(&scope, &path(&question.file))
            .map_err(|error| refuse(Asked::File, error.to_string()))?;
        match &question.projector {
            None => Ok(model),
            Some(projector) => model
                .with_projector_within(&scope, &path(projector))
                .map_err(|error| refuse(Asked::Projector, error.to_string())),
        }
    }
}

fn refuse(of: Asked, why: String) -> Refusal {
    Refusal { of, why }
}

/// Completes the arguments of a launch so that they match the estimate, whichever reader made it.
pub fn complete_arguments(launch: &Launch, estimate: &Estimate) -> Result<Vec<Arg>, Refusal> {
    let missing = launch::missing_arguments(Program::of(&launch.runtime), &words(&launch.args), estimate)
        .map_err(|why| not_agreed(launch, &why))?;
    let missing = missing.into_iter().map(Arg::new).collect::<Result<_, _>>();
    missing.map_err(|error| refuse(Asked::Args, error.to_string()))
}

fn words(args: &[Arg]) -> Vec<&str> {
    args.iter().map(Arg::as_str).collect()
}

fn not_agreed(launch: &Launch, why: &NotAgreed) -> Refusal {
    match why {
        NotAgreed::Estimate(error) => refuse(Asked::Options, error.to_string()),
        NotAgreed::OtherProgram(_) => {
            refuse(Asked::File, format!("{why} ({}): name other files, or state the memory", launch.runtime))
        }
        NotAgreed::Args(_) | NotAgreed::Differ(_) => {
            refuse(Asked::Args, format!("{why}: say the same in args and in memory, or leave it out of one of them"))
        }
    }
}
