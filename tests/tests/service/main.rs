//! The service end to end: the real program, real HTTP, real files and signals, by the letters of the cases.

mod b;
mod b4;
mod c;
mod estimates;
mod events;
mod limits;
mod listings;
mod logs;
mod n;
mod o;
mod observed;
mod q;
mod s1;
mod s2;
mod stop;
mod tls;
mod waits;
