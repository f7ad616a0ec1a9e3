//! Changing to the user of a slot, without a way back.

use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    clear_ambient_capability_set, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::runtime::SlotUser;

/// The ids of a user and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

impl From<&SlotUser> for Credentials {
    fn from(user: &SlotUser) -> Self {
        Self { uid: user.uid.get(), gid: user.gid, groups: user.groups.clone() }
    }
}

/// Formats the credentials for the trampoline: `UID:GID:GROUP,GROUP`.
impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.groups.iter().map(ToString::to_string).collect();
        write!(f, "{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

impl FromStr for Credentials {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let wrong = || io::Error::other(format!("{text:?} is not a user and its groups"));
        // The largest number means "no change" in the kernel's calls.
        let number = |word: &str| word.parse().ok().filter(|number| *number != u32::MAX).ok_or_else(wrong);
        let words: Vec<&str> = text.split(':').collect();
        let [uid, gid, groups] = words.as_slice() else { return Err(wrong()) };
        let groups = groups.split(',').map(number).collect::<io::Result<_>>()?;
        Ok(Self { uid: number(uid)?, gid: number(gid)?, groups })
    }
}

impl Credentials {
    /// Makes the calling thread, and all processes that it starts from now on, run as this user. Other threads of the
    /// process keep their user: the kernel stores credentials by thread.
    ///
    /// The order matters: a thread that is no longer root cannot change its groups.
    pub(super) fn assume(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        if !uid.is_root() && set_thread_res_uid(None, Uid::ROOT, None).is_ok() {
            return Err(io::Error::other("it could become root again"));
        }
        Ok(())
    }
}

/// Makes sure that processes which the calling thread starts gain no privileges: neither from a set-user-id program nor
/// from a capability of the agent.
pub(super) fn gain_no_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    match clear_ambient_capability_set() {
        // Kernels before 4.3 have no ambient set.
        Err(error) if error != Errno::INVAL => Err(error.into()),
        _ => Ok(()),
    }
}
