//! The cluster's key: it signs what agents are told, so that they can show later what they obeyed.
//!
//! A code is a text of four parts, `EPOCH.TAG.REVISION.MAC`. The MAC is over the cluster and the three numbers, so an
//! agent can show a code that it was given and cannot make one. The key is a file of its own in the data directory, and
//! part of every backup: a server that was restored knows the codes of the server before it.

use std::io;
use std::path::{Path, PathBuf};

use berth_domain::{ClusterId, Epoch, EpochTag, HistoryPoint, ObeyedAnswer, Revision};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::private_file::{self, from_hex, to_hex};

/// The name of the key's file below the data directory.
pub const FILE: &str = "cluster.key";
const KEY_BYTES: usize = 32;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file holds no key.
    #[error("{} holds no key: put it back from a backup, or remove it and a new one is made", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
    /// There is no randomness.
    #[error("the operating system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// The key that signs answers to agents.
#[derive(Clone)]
pub struct ClusterKey([u8; KEY_BYTES]);

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl ClusterKey {
    /// Reads the key of a data directory, or makes one where there is none.
    ///
    /// A key that is made anew does no lasting harm: codes of the old one are refused until each agent has obeyed an
    /// answer with a new code, which is at its next poll.
    pub fn open(data_dir: &Path) -> Result<Self, KeyError> {
        let path = data_dir.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).ok_or(KeyError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(&path),
            Err(source) => Err(KeyError::File { path, source }),
        }
    }

    fn create(path: &Path) -> Result<Self, KeyError> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(KeyError::Random)?;
        let key = Self(bytes);
        let failed = |source| KeyError::File { path: path.to_owned(), source };
        private_file::replace(path, key.to_text().as_bytes()).map_err(failed)?;
        Ok(key)
    }

    /// Reads a key from the text of its file.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        from_hex(text.trim()).map(Self)
    }

    /// Returns the text of the key's file.
    pub(crate) fn to_text(&self) -> String {
        to_hex(&self.0) + "\n"
    }

    /// Signs the answer that this cluster's server gives at a point of its history.
    #[must_use]
    pub fn sign(&self, cluster: ClusterId, point: HistoryPoint) -> String {
        let mac = self.mac(cluster, point).finalize().into_bytes();
        format!("{}.{}.{}.{}", point.epoch, point.tag, point.revision, to_hex(&mac))
    }

    /// Checks a code that an agent shows.
    #[must_use]
    pub fn check(&self, cluster: ClusterId, code: &str) -> ObeyedAnswer {
        let Some((point, mac)) = read_code(code) else { return ObeyedAnswer::Invalid };
        // The comparison takes the same time wherever the two differ.
        match self.mac(cluster, point).verify_slice(&mac) {
            Ok(()) => ObeyedAnswer::Verified(point),
            Err(_) => ObeyedAnswer::Invalid,
        }
    }

    fn mac(&self, cluster: ClusterId, point: HistoryPoint) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .unwrap_or_else(|_| unreachable!("an HMAC takes a key of any length"));
        mac.update(b"berth desired 1");
        mac.update(cluster.uuid().as_bytes());
        mac.update(&point.epoch.get().to_be_bytes());
        mac.update(&point.tag.get().to_be_bytes());
        mac.update(&point.revision.get().to_be_bytes());
        mac
    }
}

fn read_code(code: &str) -> Option<(HistoryPoint, [u8; 32])> {
    let mut parts = code.split('.');
    let epoch = Epoch::new(parts.next()?.parse().ok()?);
    let tag = EpochTag::new(u32::from_str_radix(parts.next()?, 16).ok()?);
    let revision = Revision::new(parts.next()?.parse().ok()?);
    let mac = from_hex(parts.next()?)?;
    parts.next().is_none().then_some((HistoryPoint { epoch, tag, revision }, mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_proves_one_point_of_one_cluster_with_one_key() {
        let cluster = ClusterId::new(uuid::Uuid::from_u128(7));
        let point = HistoryPoint { epoch: Epoch::new(3), tag: EpochTag::new(0xab), revision: Revision::new(41) };
        let (key, other) = (ClusterKey([1; 32]), ClusterKey([2; 32]));
        let code = key.sign(cluster, point);
        assert_eq!(key.check(cluster, &code), ObeyedAnswer::Verified(point));
        assert_eq!(other.check(cluster, &code), ObeyedAnswer::Invalid);
        assert_eq!(key.check(ClusterId::new(uuid::Uuid::from_u128(8)), &code), ObeyedAnswer::Invalid);
        let later = code.replacen("3.000000ab.41.", "3.000000ab.42.", 1);
        assert_ne!(later, code);
        for wrong in [&later, "", "3.ab.41", "3.ab.41.", "99999999999999999999.ab.1.00", &format!("{code}.1")] {
            assert_eq!(key.check(cluster, wrong), ObeyedAnswer::Invalid, "{wrong}");
        }
    }
}
