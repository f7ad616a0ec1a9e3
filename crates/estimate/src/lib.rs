//! How much memory a model needs on each GPU, from the headers of its files.
//!
//! The crate returns one number for each GPU count, with its parts and its inputs, so that a ledger charges what a
//! program will take and a check can tell when it would take something else. It reads hostile files without harm: each
//! count is checked against the file before memory is allocated for it, and no more than a few MiB are held whatever a
//! file states.
//!
//! The crate reads the files that it is given and nothing else: no network, no clock, no GPU. It starts no process.
//!
//! Data goes one way:
//!
//! ```text
//! path -> Model::open -> headers -> Shape + Weights -> profile -> Estimate -> Memory for a catalogue
//!                                            Options -> Inputs ^         \-> table and bar for people
//!                                                                        \-> launch::disagreements
//! ```
//!
//! | module | purpose |
//! | --- | --- |
//! | [`gguf`] | GGUF files and their parts: metadata, tensors, shape |
//! | [`hf`] | Hugging Face folders: `config.json`, safetensors |
//! | `arch` | facts about architectures that files do not state |
//! | `profile` | how much memory each program takes for a model; one file for each |
//! | `read_scope` | which files may be read |
//! | [`split`] | which GPU gets which layers |
//! | [`launch`] | comparing how a program is started with what was estimated |
//! | [`render`] | estimates for people |
//!
//! The formulas and where they come from are in `docs/ESTIMATION.md`.

mod answer;
mod arch;
mod estimate;
pub mod gguf;
pub mod hf;
mod inputs;
pub mod launch;
mod model;
mod profile;
mod projector;
mod read_scope;
pub mod render;
mod shape;
pub mod split;
mod weights;

pub use answer::{Reader, complete_arguments};
pub use estimate::{DeviceEstimate, Estimate, EstimateError, ModelSummary, Note, Parts};
pub use inputs::{CacheType, InputError, Inputs, Options, Profile, UnknownName};
pub use model::{Model, OpenError};
pub use profile::vllm::{GRAPHS_BEYOND_SHARE, utilization};
pub use projector::{NotAProjector, Projector};
pub use shape::{Build, Experts, Layer, ModelShape, State};
pub use split::LayerSpan;
pub use weights::{Place, Weights};
