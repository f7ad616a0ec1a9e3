//! Servers as processes of their own, so that their CPU can be told from ours, and those who load them over HTTP.

pub mod agent;
pub mod child;
pub mod fleet;
pub mod gateway;
pub mod http;
pub mod lines;
pub mod load;
pub mod null;
pub mod past;
