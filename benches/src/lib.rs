//! How fast the core and the service are, and how much they hold: worlds to measure in, samples, and the table they
//! end up in.
//!
//! `cargo bench -p berth-benches` prints one table with a goal and a verdict beside each number. A slow machine is no
//! failure: the exit code is 0 whatever the numbers are. `cargo bench -p berth-benches -- --quick` is a short run.
//!
//! | file | purpose |
//! | --- | --- |
//! | [`catalogue`] | the models that are submitted and those that fleets are filled with |
//! | [`world`] | a fleet with simulated agents, built and driven through commands only |
//! | [`measure`] | samples of one kind of step |
//! | [`table`] | rows with goals and verdicts |
//! | [`service`] | servers as processes of their own, and those who load them over HTTP |

pub mod catalogue;
pub mod measure;
pub mod service;
pub mod table;
pub mod world;
