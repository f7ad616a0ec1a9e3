//! What people see: types of the API in, text out. Nothing here prints, asks or reads a clock.

mod attempts;
mod bar;
pub(crate) mod catalogue;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod ledger;
pub(crate) mod look;
pub(crate) mod records;
mod table;
pub(crate) mod work;

#[cfg(test)]
mod tests;
