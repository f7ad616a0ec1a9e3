//! GPUs through NVML.
//!
//! Calls into the driver happen on threads that the agent does not wait for without a deadline: one opens the driver,
//! one lists GPUs, and each GPU has one that reads it. A thread that missed its deadline is not waited for again until
//! it answers.

mod known;
mod lister;
mod memory;
mod processes;
mod trouble;
mod watcher;
mod worker;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::{DeviceUuid, Timestamp};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::Detail;
use super::gpus::GpusSeen;
use super::seen::DriverStatus;
use super::settings::InventorySettings;

use known::KnownGpu;
use lister::Listing;
use watcher::{Question, Reading};
use worker::{DriverWorker, Reply};

/// Names of the library if none is configured. Machines with a driver have the first, machines with development files
/// both.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// The opened driver, and the library that it was opened from.
type Opening = Result<(Arc<Nvml>, OsString), String>;

/// The GPUs of the NVIDIA driver.
#[derive(Debug)]
pub struct NvmlGpus {
    settings: InventorySettings,
    opener: Option<DriverWorker<Option<Open>, Opening>>,
    open: Option<Open>,
    /// The driver to close before it is opened again.
    closing: Option<Open>,
    known: BTreeMap<DeviceUuid, KnownGpu>,
    listing: Listing,
    /// Why the driver cannot be used.
    absent: Option<String>,
}

/// An open driver and the threads that read it.
#[derive(Debug)]
struct Open {
    nvml: Arc<Nvml>,
    library: OsString,
    lister: DriverWorker<(), Result<Listing, String>>,
    watchers: BTreeMap<DeviceUuid, DriverWorker<Question, Reading>>,
    since: Instant,
}

impl NvmlGpus {
    /// Returns the GPUs of the driver that the settings name. The driver is not opened yet.
    #[must_use]
    pub fn new(settings: InventorySettings) -> Self {
        Self {
            settings,
            opener: None,
            open: None,
            closing: None,
            known: BTreeMap::new(),
            listing: Listing::default(),
            absent: None,
        }
    }

    /// Reads the GPUs, and takes no longer than the deadline.
    pub fn look(&mut self, now: Timestamp, detail: Detail) -> GpusSeen {
        let until = Instant::now() + Duration::from_millis(self.settings.deadline.millis());
        self.close_if_lost();
        self.open(until);
        if let Some(mut open) = self.open.take() {
            self.ask(&mut open, until, Question { now, detail });
            self.open = Some(open);
        }
        self.note_missing_gpus();
        self.tell()
    }

    /// Sends all requests at once, then waits: for the lister and the watchers of known GPUs, then for those of new
    /// ones.
    fn ask(&mut self, open: &mut Open, until: Instant, question: Question) {
        let listing = question.detail == Detail::Full || self.listing.uuids.is_empty();
        if listing {
            open.lister.ask(());
        }
        open.watch(self.known.keys(), question);
        open.collect(until, question, &mut self.known);
        match open.list(until) {
            Reply::Answer(Ok(listing)) => (self.listing, self.absent) = (listing, None),
            Reply::Answer(Err(why)) => self.absent = Some(why),
            Reply::Late(_) | Reply::Pending => self.absent = Some(open.lister.describe_delay()),
            Reply::Ended => self.absent = Some("listing the GPUs came to a bad end".to_owned()),
            Reply::Idle => {}
        }
        open.watch(self.listing.uuids.iter().filter(|uuid| !self.known.contains_key(*uuid)), question);
        open.collect(until, question, &mut self.known);
    }

    /// Opens the driver, unless it is open. Opening happens on a thread too, since it may hang.
    fn open(&mut self, until: Instant) {
        if self.open.is_some() {
            return;
        }
        if self.opener.is_none() {
            let library = self.settings.library.clone();
            let work = move |inbox: &worker::WorkerInbox<Option<Open>, Opening>| {
                inbox.work(|old| {
                    inbox.step().set("closing the driver");
                    if let Some(old) = old {
                        old.close();
                    }
                    inbox.step().set("opening the driver");
                    load(library.as_ref().map(|path| path.as_os_str().to_owned()))
                });
            };
            self.opener = DriverWorker::start("nvml-open".to_owned(), work).ok();
        }
        let Some(opener) = &mut self.opener else {
            self.absent = Some("no thread could be started to open the driver".to_owned());
            return;
        };
        if !opener.is_busy() {
            opener.ask(self.closing.take());
        }
        let opened = match opener.answer(until) {
            // A driver that was opened late is open all the same.
            Reply::Answer(opening) | Reply::Late(opening) => {
                opening.and_then(|(nvml, library)| Open::new(nvml, library))
            }
            Reply::Pending => Err(opener.describe_delay()),
            Reply::Idle | Reply::Ended => {
                self.opener = None;
                Err("opening the driver came to a bad end".to_owned())
            }
        };
        match opened {
            Ok(open) => (self.open, self.absent, self.opener) = (Some(open), None, None),
            Err(why) => self.absent = Some(why),
        }
    }

    /// Closes the driver when a GPU is lost: a GPU that comes back is visible only after the driver was opened again.
    /// The driver stays open while a thread hangs in it, because the driver counts its users.
    fn close_if_lost(&mut self) {
        let reopen = Duration::from_millis(self.settings.reopen.millis());
        let lost =
            self.known.values().any(KnownGpu::is_lost) || self.absent.is_some() || !self.listing.notes.is_empty();
        if let Some(open) = self.open.take_if(|open| lost && open.since.elapsed() >= reopen && !open.is_busy()) {
            self.closing = Some(open);
        }
    }

    /// Notes GPUs that can neither be read nor are listed any more. Without a driver this cannot be decided.
    fn note_missing_gpus(&mut self) {
        for (uuid, known) in &mut self.known {
            match (&self.open, &self.absent) {
                (None, Some(why)) => known.is_silent(why.clone()),
                (Some(_), None) if !self.listing.may_have(uuid) && known.is_in_trouble() => known.is_missing(),
                _ => {}
            }
        }
    }

    fn tell(&self) -> GpusSeen {
        let mut gpus: Vec<_> = self.known.values().flat_map(KnownGpu::seen).collect();
        // Sorted by index, an instance after its GPU.
        gpus.sort_by_key(|gpu| (gpu.index, gpu.parent.clone(), gpu.uuid.clone()));
        let unread = self.known.iter().filter(|(_, known)| !known.was_read());
        let unread = unread.filter_map(|(uuid, known)| Some(format!("{uuid}: {}", known.why()?)));
        let driver = match &self.absent {
            Some(why) => DriverStatus::Absent(why.clone()),
            None => DriverStatus::Present { version: self.listing.version.clone() },
        };
        let notes = self.listing.notes.iter().cloned().chain(unread).collect();
        GpusSeen { gpus, links: self.listing.links.clone(), driver, notes }
    }
}

impl Open {
    fn new(nvml: Arc<Nvml>, library: OsString) -> Result<Self, String> {
        let to_list = Arc::clone(&nvml);
        let lister = DriverWorker::start("nvml-list".to_owned(), move |inbox| lister::serve(&to_list, inbox))
            .map_err(|error| format!("no thread could be started to list GPUs: {error}"))?;
        Ok(Self { nvml, library, lister, watchers: BTreeMap::new(), since: Instant::now() })
    }

    /// Returns the list that was asked for. A list that comes late is asked for again.
    fn list(&mut self, until: Instant) -> Reply<Result<Listing, String>> {
        match self.lister.answer(until) {
            Reply::Late(_) => {
                self.lister.ask(());
                self.lister.answer(until)
            }
            answered => answered,
        }
    }

    /// Sends a request to the watcher of each GPU, and starts watchers that are missing.
    fn watch<'a>(&mut self, uuids: impl Iterator<Item = &'a DeviceUuid>, question: Question) {
        for uuid in uuids {
            if !self.watchers.contains_key(uuid) {
                let (nvml, library, of) = (Arc::clone(&self.nvml), self.library.clone(), uuid.clone());
                let work =
                    move |inbox: &worker::WorkerInbox<Question, Reading>| watcher::watch(&nvml, &library, &of, inbox);
                let Ok(worker) = DriverWorker::start(format!("nvml-{uuid}"), work) else { continue };
                self.watchers.insert(uuid.clone(), worker);
            }
            if let Some(watcher) = self.watchers.get_mut(uuid) {
                watcher.ask(question);
            }
        }
    }

    /// Takes in readings until the deadline. A watcher that was stuck and came back is asked again; of its late reading
    /// only the errors are kept, since the driver reports each of them once.
    fn collect(&mut self, until: Instant, question: Question, known: &mut BTreeMap<DeviceUuid, KnownGpu>) {
        self.watchers.retain(|uuid, watcher| {
            let known = known.entry(uuid.clone()).or_default();
            let mut answered = watcher.answer(until);
            if let Reply::Late(reading) = &answered {
                known.hear(&reading.xids);
                watcher.ask(question);
                answered = watcher.answer(until);
            }
            match answered {
                Reply::Answer(reading) => known.take(reading),
                Reply::Late(_) | Reply::Pending => known.is_silent(watcher.describe_delay()),
                Reply::Idle => {}
                Reply::Ended => {
                    known.is_silent("reading it came to a bad end".to_owned());
                    return false;
                }
            }
            true
        });
    }

    fn is_busy(&self) -> bool {
        self.lister.is_busy() || self.watchers.values().any(DriverWorker::is_busy)
    }

    /// Ends all threads, so that the driver is closed.
    fn close(self) {
        self.lister.end();
        self.watchers.into_values().for_each(DriverWorker::end);
    }
}

/// Opens the library that was configured, or the first one that can be opened.
fn load(named: Option<OsString>) -> Opening {
    let tried = named.map_or_else(|| LIBRARIES.map(OsString::from).to_vec(), |library| vec![library]);
    let mut why = String::new();
    for library in tried {
        match Nvml::builder().lib_path(&library).init() {
            Ok(nvml) => return Ok((Arc::new(nvml), library)),
            Err(error) => {
                why = trouble::no_driver(&error);
                // The library was found and refused to start: another name would not help.
                if !matches!(error, NvmlError::LibloadingError(_)) {
                    break;
                }
            }
        }
    }
    Err(why)
}
