//! The user that the slots of a runtime run as.
//!
//! An operator writes `user` (and `group`) as a name or a number. Both are looked up once, when the configuration is
//! checked, in the machine's user database (`/etc/passwd`, LDAP, whatever it is configured to ask). A slot also gets the
//! user's supplementary groups, since device nodes of GPUs often belong to one (`video`, `render`).

use std::ffi::CString;
use std::fmt;
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use rustix::process::{getegid, geteuid};
use serde::{Deserialize, Serialize};

/// The id that means "no change" in system calls; no user has it.
const NO_ID: u32 = u32::MAX;

/// The id of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserId(u32);

impl UserId {
    /// Returns the user with this id.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the user that this process runs as.
    #[must_use]
    pub fn own() -> Self {
        Self(geteuid().as_raw())
    }

    /// Returns whether the user is root.
    #[must_use]
    pub const fn is_root(self) -> bool {
        self.0 == 0
    }

    /// Returns the id as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A user or a group as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the name or the number of a user or group")]
pub enum Account {
    /// The id as a number.
    Number(u32),
    /// The name; a number in quotes is an id too, unless a user has that name.
    Name(String),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => write!(f, "{name:?}"),
        }
    }
}

/// A user that slots run as, with everything that a process needs to change to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotUser {
    /// The user's id.
    pub uid: UserId,
    /// The group: the one that the operator named, else the user's own.
    pub gid: u32,
    /// All groups of the user.
    pub groups: Vec<u32>,
    /// The user's name, where the machine has one.
    pub name: Option<String>,
    /// The home directory; `/` where the machine has none.
    pub home: PathBuf,
}

/// Why a `user` or a `group` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserError {
    /// The field: `user` or `group`.
    pub(super) field: &'static str,
    /// The reason as text.
    pub(super) why: String,
}

/// Looks up the user that slots run as. Returns `None` if they run as the agent's own user: none was named, or that
/// one.
pub(super) fn look_up(user: Option<&Account>, group: Option<&Account>) -> Result<Option<SlotUser>, UserError> {
    let wrong = |field, why: String| UserError { field, why };
    let Some(user) = user else {
        let alone = group.map(|_| wrong("group", "it needs a `user` beside it".to_owned()));
        return alone.map_or(Ok(None), Err);
    };
    let (uid, entry) = find_user(user).map_err(|why| wrong("user", why))?;
    let gid = match (group, &entry) {
        (Some(group), _) => find_group(group).map_err(|why| wrong("group", why))?,
        (None, Some(entry)) => entry.gid.as_raw(),
        (None, None) => {
            let why =
                format!("user {user} has no entry on this machine, so its group is not known: name a `group` too");
            return Err(wrong("group", why));
        }
    };
    let own = UserId::own();
    if !own.is_root() {
        if uid != own {
            let why = format!(
                "this agent runs as user {own}, and only root can start slots as user {user}: run the agent as root, or \
                 leave `user` out"
            );
            return Err(wrong("user", why));
        }
        if group.is_some() && gid != getegid().as_raw() {
            return Err(wrong("group", "only an agent that runs as root can give slots another group".to_owned()));
        }
        return Ok(None);
    }
    let groups = groups_of(entry.as_ref(), gid).map_err(|why| wrong("user", why))?;
    let home = entry.as_ref().map_or_else(|| PathBuf::from("/"), |entry| entry.dir.clone());
    Ok(Some(SlotUser { uid, gid, groups, name: entry.map(|entry| entry.name), home }))
}

fn find_user(user: &Account) -> Result<(UserId, Option<User>), String> {
    let failed = |error| format!("the machine's users cannot be looked up: {error}");
    let number = match user {
        Account::Number(number) => *number,
        Account::Name(name) => match User::from_name(name).map_err(failed)? {
            Some(entry) => return Ok((UserId(entry.uid.as_raw()), Some(entry))),
            None => name.parse().map_err(|_| format!("there is no user {user} on this machine"))?,
        },
    };
    if number == NO_ID {
        return Err(format!("{number} is not a number of a user"));
    }
    Ok((UserId(number), User::from_uid(Uid::from_raw(number)).map_err(failed)?))
}

fn find_group(group: &Account) -> Result<u32, String> {
    let number = match group {
        Account::Number(number) => *number,
        Account::Name(name) => {
            let found = Group::from_name(name);
            match found.map_err(|error| format!("the machine's groups cannot be looked up: {error}"))? {
                Some(entry) => return Ok(entry.gid.as_raw()),
                None => name.parse().map_err(|_| format!("there is no group {group} on this machine"))?,
            }
        }
    };
    if number == NO_ID { Err(format!("{number} is not a number of a group")) } else { Ok(number) }
}

fn groups_of(entry: Option<&User>, gid: u32) -> Result<Vec<u32>, String> {
    let Some(entry) = entry else { return Ok(vec![gid]) };
    let name = CString::new(entry.name.as_str()).map_err(|error| error.to_string())?;
    let groups = getgrouplist(&name, Gid::from_raw(gid));
    let groups = groups.map_err(|error| format!("the groups of {} cannot be looked up: {error}", entry.name))?;
    Ok(groups.into_iter().map(Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Account {
        Account::Name(name.to_owned())
    }

    #[test]
    fn a_user_is_a_name_or_a_number_in_quotes_or_not() {
        let own = UserId::own();
        let accounts = [Account::Number(own.get()), named(&own.to_string())];
        let root = own.is_root().then(|| named("root"));
        for account in accounts.iter().chain(&root) {
            let found = look_up(Some(account), None);
            assert_eq!(found.map(|user| user.map(|user| user.uid)), Ok(own.is_root().then_some(own)), "{account}");
        }
    }

    #[test]
    fn an_invalid_account_is_refused_with_its_field() {
        let field = |user: Option<Account>, group: Option<Account>| {
            let error = look_up(user.as_ref(), group.as_ref()).unwrap_err();
            (error.field, error.why)
        };
        let (at, why) = field(Some(named("no-such-user")), None);
        assert_eq!((at, why.as_str()), ("user", "there is no user \"no-such-user\" on this machine"));
        let (at, why) = field(Some(named("root")), Some(named("no-such-group")));
        assert_eq!((at, why.as_str()), ("group", "there is no group \"no-such-group\" on this machine"));
        assert_eq!(field(None, Some(named("root"))).0, "group");
        assert_eq!(field(Some(Account::Number(NO_ID)), None).0, "user");
        // A number that the machine knows nothing of has no group of its own.
        assert_eq!(field(Some(Account::Number(NO_ID - 1)), None).0, "group");
    }

    #[test]
    fn only_root_can_start_slots_as_another_user() {
        let another = look_up(Some(&Account::Number(NO_ID - 1)), Some(&Account::Number(7)));
        if UserId::own().is_root() {
            let user = another.unwrap().unwrap();
            assert_eq!((user.uid.get(), user.gid, user.groups.as_slice()), (NO_ID - 1, 7, [7].as_slice()));
            assert_eq!((user.name, user.home), (None, PathBuf::from("/")));
        } else {
            assert!(another.unwrap_err().why.contains("only root can start slots"), "nothing is promised");
        }
    }
}
