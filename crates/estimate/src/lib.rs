//! How much memory a model needs on each GPU, from the headers of its files.
//!
//! It promises one number for each GPU count, with the parts it is made of and the inputs it was made for, so that a
//! ledger charges what a program will take and a check can tell when it would take something else. It promises to read
//! hostile files without harm: every count is held against the file before anything is made for it, and no more than a
//! few MiB are held whatever a file says.
//!
//! It may read the files it is given and nothing else: no network, no clock, no GPU. It starts nothing.
//!
//! Data goes one way:
//!
//! ```text
//! path -> Model::open -> headers -> Shape + Weights -> profile -> Estimate -> Memory for a catalogue
//!                                            Options -> Inputs ^         \-> table and bar for people
//!                                                                        \-> launch::disagreements
//! ```
//!
//! | room | purpose |
//! | --- | --- |
//! | [`gguf`] | GGUF files and their parts: metadata, tensors, shape |
//! | [`hf`] | Hugging Face folders: `config.json`, safetensors |
//! | `arch` | what programs know of an architecture and files do not say |
//! | `profile` | what each program does with a model; one file for each |
//! | `reach` | which files may be read |
//! | [`split`] | which GPU gets which layers |
//! | [`launch`] | whether a program is started with what was estimated |
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
mod reach;
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
pub use reach::{OutOfReach, Reach};
pub use shape::{Build, Experts, Layer, Shape, State};
pub use split::LayerSpan;
pub use weights::{Place, Weights};
