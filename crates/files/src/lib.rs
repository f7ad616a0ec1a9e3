//! Files and directories that no other user of the machine may read.
//!
//! The server, the agent and the command line keep secrets on disk: tokens, keys, records of what was started. This
//! crate makes those files and keeps three promises:
//!
//! - **Data directories are 0700 and what is in them is closed.** [`make_directory`] makes one, and closes an existing
//!   one with everything below it. It refuses a directory that is meant to be shared, such as `/tmp`.
//! - **New files are 0600 from their first byte**, whatever file was there before: [`create`], and [`NewFile`] for a
//!   file that must appear as a whole or not at all.
//! - **Files of the operator are not changed.** [`loose_mode`] returns the mode of a file that other users can read or
//!   change, and [`warn_if_loose`] logs it.

mod directory;
mod loose;
mod new_file;

pub use directory::make_directory;
pub use loose::{loose_mode, warn_if_loose};
pub use new_file::{NewFile, create};

/// The permission bits of users other than the owner.
const OTHERS: u32 = 0o077;
