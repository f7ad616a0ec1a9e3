//! How well the core places and evicts, beside published policies and bounds.
//!
//! | file | purpose |
//! | --- | --- |
//! | [`trace`] | machines and work: read from published traces, or generated in the same shapes |
//! | [`fleet`] | the real core with such a fleet, and an independent account of every placement |
//! | [`fill`] | work arrives and nothing leaves: what is left unallocated |
//! | [`churn`] | work comes and goes: what finds no place |
//! | [`reference`] | best fit and tightest device, to compare with |
//! | [`eviction`] | requests for more models than fit: how often a model is there |
//! | [`caches`] | LRU, LFU and a bound for the same requests |
//! | [`scores`] | what was measured beside what it should be |
//! | [`picture`] | fills as curves |
//! | [`random`] | numbers that are the same in every run |

pub mod caches;
pub mod churn;
pub mod eviction;
pub mod fill;
pub mod fleet;
pub mod picture;
pub mod random;
pub mod reference;
pub mod scores;
pub mod trace;
