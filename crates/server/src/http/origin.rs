//! The names under which a request says that it reaches the server, and the page that it comes from.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

/// Checks that every name that a request gives for this server is one of this machine's own, and that the page which
/// sent it, if any, is too. Returns what is not, as the request says it.
pub(super) fn check(headers: &HeaderMap, target: &Uri) -> Result<(), String> {
    let refuse = |name: &HeaderName, value: &HeaderValue| {
        Err(format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()).escape_debug()))
    };
    if let Some(authority) = target.authority().filter(|authority| !is_loopback(authority)) {
        return Err(format!("Host: {authority}"));
    }
    for host in headers.get_all(header::HOST) {
        let authority = host.to_str().ok().and_then(|text| text.parse().ok());
        if !authority.is_some_and(|authority| is_loopback(&authority)) {
            return refuse(&header::HOST, host);
        }
    }
    for origin in headers.get_all(header::ORIGIN) {
        if !origin.to_str().is_ok_and(is_loopback_origin) {
            return refuse(&header::ORIGIN, origin);
        }
    }
    Ok(())
}

/// Whether an origin (a scheme, a host and perhaps a port, and nothing else) is a page of this machine.
fn is_loopback_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    // A host and a port have none of these: what follows them would be a path, or what stands before them a user.
    let is_bare = !rest.contains(['/', '?', '#', '@', '\\']);
    is_web && is_bare && rest.parse().is_ok_and(|authority| is_loopback(&authority))
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    // What follows the host is a port or nothing; before it stands nothing.
    let rest = authority.as_str().strip_prefix(host);
    let is_bare = match rest {
        Some("") => true,
        Some(rest) => rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()),
        None => false,
    };
    let name = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
    let is_local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_bare && is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes_host(text: &str) -> bool {
        text.parse().is_ok_and(|authority| is_loopback(&authority))
    }

    #[test]
    fn loopback_has_many_names_and_others_have_none() {
        for yes in ["localhost", "localhost:8080", "127.0.0.1:1", "127.8.9.1", "[::1]:80", "[::1]", "LOCALHOST:80"] {
            assert!(takes_host(yes), "{yes}");
        }
        for no in [
            "",
            "example.org",
            "127.0.0.1.example.org",
            "localhost.example.org:80",
            "10.0.0.1:80",
            "[fe80::1]:80",
            "localhost:evil.example",
            "localhost:80@evil.example",
            "user@localhost",
            "localhost:",
            "localhost:99999",
            "[::1]evil",
        ] {
            assert!(!takes_host(no), "{no}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port_and_nothing_else() {
        for yes in ["http://localhost", "https://localhost:8443", "http://127.0.0.1:80", "http://[::1]:8080"] {
            assert!(is_loopback_origin(yes), "{yes}");
        }
        for no in [
            "null",
            "",
            "localhost",
            "http://",
            "http://localhost:x@evil.example",
            "http://localhost:80@evil.example",
            "http://localhost@evil.example",
            "http://evil.example/localhost",
            "http://localhost/",
            "http://localhost:80/..",
            "http://localhost#evil",
            "http://localhost:evil.example",
            "http://localhost.evil.example",
            "file://localhost",
            "chrome-extension://localhost",
            "http://localhost, http://evil.example",
            "http://localhost\\@evil.example",
        ] {
            assert!(!is_loopback_origin(no), "{no}");
        }
    }

    #[test]
    fn every_header_is_looked_at_and_one_that_is_no_text_is_refused() {
        let target = Uri::from_static("/");
        let mut headers = HeaderMap::new();
        assert_eq!(check(&headers, &target), Ok(()));
        headers.append(header::ORIGIN, HeaderValue::from_static("http://localhost"));
        assert_eq!(check(&headers, &target), Ok(()));
        headers.append(header::ORIGIN, HeaderValue::from_static("http://evil.example"));
        assert!(check(&headers, &target).unwrap_err().contains("evil.example"), "the second one counts, too");
        for name in [header::HOST, header::ORIGIN] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_bytes(b"http://localhost\xff").unwrap());
            assert!(check(&headers, &target).is_err());
        }
    }
}
