//! Finding the script, and reading it again when it changed.

use std::env;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error_code::{ErrorCode, NvmlResult};
use crate::script::{Script, ScriptError};

/// The variable that names the script.
pub const SCRIPT_VARIABLE: &str = "BERTH_NVML_SCRIPT";
/// The variable that names the directory of claims.
pub const CLAIMS_VARIABLE: &str = "BERTH_NVML_CLAIMS";

/// A file that was younger than this when it was read may change again without a new modification time.
const YOUNG: Duration = Duration::from_millis(100);

/// The script's file and what was last read from it.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    read: Option<Reading>,
    readings: u64,
}

#[derive(Debug)]
struct Reading {
    stamp: Stamp,
    was_young: bool,
    text: String,
    script: Option<Arc<Script>>,
}

/// Tells one state of a file from another without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Source {
    /// Finds the script: the variable's value, else a file beside this library with its name and `.toml` or `.json`.
    pub(crate) fn find() -> NvmlResult<Self> {
        let path = env::var_os(SCRIPT_VARIABLE).map(PathBuf::from).or_else(beside_the_library);
        let path = path.filter(|path| path.exists()).ok_or(ErrorCode::DriverNotLoaded)?;
        Ok(Self { path, read: None, readings: 0 })
    }

    /// Returns the current script and the number of this reading. A script that cannot be read is reported on standard
    /// error, and then each call fails: a test should not continue with a script that it did not mean.
    pub(crate) fn current(&mut self) -> NvmlResult<(Arc<Script>, u64)> {
        let stamp = fs::metadata(&self.path).map(|found| Stamp::of(&found)).map_err(|_| ErrorCode::Unknown)?;
        let known = self.read.as_ref().is_some_and(|read| read.stamp == stamp && !read.was_young);
        if !known {
            self.take(stamp);
        }
        let script = self.read.as_ref().and_then(|read| read.script.clone());
        script.map(|script| (script, self.readings)).ok_or(ErrorCode::Unknown)
    }

    /// Returns the directory where programs put their claims.
    pub(crate) fn claims(&self, script: &Script) -> PathBuf {
        let beside = |name: &Path| self.path.parent().map_or_else(|| name.to_owned(), |parent| parent.join(name));
        env::var_os(CLAIMS_VARIABLE)
            .map(PathBuf::from)
            .unwrap_or_else(|| beside(script.claims.as_deref().unwrap_or(Path::new("claims"))))
    }

    fn take(&mut self, stamp: Stamp) {
        let was_young = stamp.is_young();
        let text = fs::read_to_string(&self.path)
            .map_err(|source| ScriptError::File { path: self.path.clone(), source })
            .inspect_err(tell)
            .unwrap_or_default();
        if let Some(read) = self.read.as_mut().filter(|read| read.text == text) {
            (read.stamp, read.was_young) = (stamp, was_young);
            return;
        }
        let script = Script::parse(&self.path, &text).inspect_err(tell).ok().map(Arc::new);
        self.readings += 1;
        self.read = Some(Reading { stamp, was_young, text, script });
    }
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    fn is_young(&self) -> bool {
        let seconds = u64::try_from(self.modified.0).unwrap_or_default();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        // Whole seconds are enough: treating a file as young for longer costs a few more reads.
        SystemTime::now().duration_since(modified).map_or(true, |age| age < YOUNG + Duration::from_secs(1))
    }
}

fn tell(error: &ScriptError) {
    eprintln!("berth-nvml-mock: {error}");
}

fn beside_the_library() -> Option<PathBuf> {
    let library = own_file()?;
    ["toml", "json"].into_iter().map(|extension| library.with_extension(extension)).find(|path| path.exists())
}

/// Returns the file that this code was loaded from: the mapping that contains one of its functions.
fn own_file() -> Option<PathBuf> {
    let address = own_file as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, _) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let bounds = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        bounds.contains(&address).then(|| line.find('/').map(|at| PathBuf::from(&line[at..])))?
    })
}
