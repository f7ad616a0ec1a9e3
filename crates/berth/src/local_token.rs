//! How the command line finds the admin's token of a server that the same user runs on this machine.
//!
//! The server's process writes the token into a directory that nobody else can read; commands of the same user look there
//! when they are given no token and ask a loopback address. The token goes to nobody else: a command first looks whether
//! the socket that listens there belongs to its own user, since another user could listen on the port of a server that
//! has ended.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use secrecy::SecretString;

/// A token that is where commands find it. It is taken away when this is dropped.
#[derive(Debug)]
pub(crate) struct Announced(PathBuf);

impl Drop for Announced {
    fn drop(&mut self) {
        // A server that came after this one may have put its own there; that one says so again at its next start.
        let _ = fs::remove_file(&self.0);
    }
}

/// Puts the admin's token of the server at this address where commands of the same user find it.
pub(crate) fn announce(address: SocketAddr, secret: &str) -> io::Result<Announced> {
    let path = directory()?.join(file_name(address.port()));
    let beside = path.with_extension("tmp");
    let _ = fs::remove_file(&beside);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    io::Write::write_all(&mut file, secret.as_bytes())?;
    fs::rename(&beside, &path)?;
    Ok(Announced(path))
}

/// Finds the token for a server's URL: none, unless the server is on this machine and runs as the same user.
pub(crate) fn find(url: &str) -> Option<SecretString> {
    let port = loopback_port(url)?;
    let path = directory().ok()?.join(file_name(port));
    let text = fs::read_to_string(path).ok()?;
    let is_own = |uid: &u32| *uid == own_uid();
    let listeners = listeners(port);
    (!listeners.is_empty() && listeners.iter().all(is_own)).then(|| SecretString::from(text.trim()))
}

fn file_name(port: u16) -> String {
    format!("{port}.token")
}

/// The directory for tokens, made if it is missing. It must be this user's, and closed to everybody else.
fn directory() -> io::Result<PathBuf> {
    let uid = own_uid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = match runtime {
        Some(runtime) => runtime.join("berth"),
        None if uid == 0 => PathBuf::from("/run/berth"),
        None => std::env::temp_dir().join(format!("berth-{uid}")),
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    let found = fs::symlink_metadata(&path)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        let why = format!("{} is not a directory that only user {uid} can enter", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(path)
}

fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |found| found.uid())
}

/// The port of a URL that leads to this machine.
fn loopback_port(url: &str) -> Option<u16> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_here.then_some(port)
}

/// The users whose sockets listen on a port of this machine's loopback addresses, or of all its addresses.
fn listeners(port: u16) -> Vec<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| listener(line, port)).collect()
}

/// The user of a line of the kernel's table, if it is a socket that listens on this port.
fn listener(line: &str, port: u16) -> Option<u32> {
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, uid) = (fields.get(1)?, fields.get(3)?, fields.get(7)?);
    let (address, local_port) = local.rsplit_once(':')?;
    let is_here = is_reachable_by_loopback(address);
    let is_it = *state == LISTENS && is_here && u16::from_str_radix(local_port, 16) == Ok(port);
    is_it.then(|| uid.parse().ok()).flatten()
}

/// Whether an address of the kernel's table answers who asks loopback. Of IPv6 everything counts: being careful costs
/// nothing here.
fn is_reachable_by_loopback(address: &str) -> bool {
    match u32::from_str_radix(address, 16) {
        Ok(word) if address.len() == 8 => {
            let ip = Ipv4Addr::from(word.to_le_bytes());
            ip.is_loopback() || ip.is_unspecified()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_this_machine_have_a_port_here() {
        for (url, port) in [
            ("http://127.0.0.1:8080", Some(8080)),
            ("https://localhost/x:1", Some(443)),
            ("http://[::1]:9", Some(9)),
            ("http://[::1]", Some(80)),
            ("http://127.0.0.1.example.org:8080", None),
            ("http://10.0.0.1:8080", None),
            ("http://localhost.example.org", None),
            ("ftp://localhost:1", None),
            ("localhost:8080", None),
        ] {
            assert_eq!(loopback_port(url), port, "{url}");
        }
    }

    #[test]
    fn a_socket_that_listens_here_has_its_user_and_others_have_none() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0"
            )
        };
        assert_eq!(listener(&line("0100007F:1F90", "0A"), 8080), Some(1000));
        assert_eq!(listener(&line("00000000:1F90", "0A"), 8080), Some(1000));
        assert_eq!(listener(&line("0100007F:1F90", "01"), 8080), None, "a connection");
        assert_eq!(listener(&line("0100007F:1F91", "0A"), 8080), None, "another port");
        assert_eq!(listener(&line("0500000A:1F90", "0A"), 8080), None, "another address");
    }

    #[test]
    fn a_real_socket_is_seen_with_its_user() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listeners(socket.local_addr().unwrap().port()), [own_uid()]);
    }
}
