//! A copy of the mock library with its script beside it, for tests.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use berth_domain::Bytes;

use crate::script::{Script, ScriptError};

const LIBRARY: &str = "libberth_nvml_mock.so";

/// A mock driver in a directory of its own: a copy of the library, its script and its claims. The dynamic loader treats
/// each copy as a separate library, so tests in one process do not share state, and no variable has to be set.
#[derive(Clone, Debug)]
pub struct ScriptedDriver {
    directory: PathBuf,
}

impl ScriptedDriver {
    /// Copies the library into an existing directory and makes the directory for claims. A script must follow before
    /// the library can be started; without one, the library reports that no driver is loaded.
    pub fn in_directory(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let driver = Self { directory: directory.into() };
        fs::copy(built_library()?, driver.library())?;
        fs::create_dir_all(driver.claims())?;
        Ok(driver)
    }

    /// Returns the path of the library to load.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.directory.join(LIBRARY)
    }

    /// Returns the path of the script.
    #[must_use]
    pub fn script(&self) -> PathBuf {
        self.library().with_extension("toml")
    }

    /// Returns the directory of the claims.
    #[must_use]
    pub fn claims(&self) -> PathBuf {
        self.directory.join("claims")
    }

    /// Checks a script and puts it in place in one step.
    pub fn rewrite(&self, text: &str) -> Result<(), ScriptError> {
        let path = self.script();
        Script::parse(&path, text)?;
        let failed = |source| ScriptError::File { path: path.clone(), source };
        replace(&path, text).map_err(failed)
    }

    /// Claims memory of a GPU or MIG instance for a process, as long as the process lives.
    pub fn claim(&self, pid: u32, uuid: &str, bytes: Bytes) -> io::Result<()> {
        replace(&self.claims().join(format!("{pid}.{uuid}")), &bytes.get().to_string())
    }

    /// Removes such a claim.
    pub fn unclaim(&self, pid: u32, uuid: &str) -> io::Result<()> {
        fs::remove_file(self.claims().join(format!("{pid}.{uuid}")))
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

/// Returns the library that Cargo built beside the running test or program.
fn built_library() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let beside = program.ancestors().skip(1).take(2);
    let found = beside.flat_map(|directory| [directory.join(LIBRARY), directory.join("deps").join(LIBRARY)]);
    found.into_iter().find(|path| path.exists()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("{LIBRARY} is not beside {}: build it first", program.display()),
        )
    })
}
