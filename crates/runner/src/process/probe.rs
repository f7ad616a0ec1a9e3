//! One question for a program's health: the least of HTTP that it takes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::health::Probed;

/// Asks for `path`. Any 2xx is a yes. The answer's body is not read; a program that trickles is cut off.
pub async fn probe(address: SocketAddr, path: &str, timeout: Duration) -> Probed {
    match tokio::time::timeout(timeout, ask(address, path)).await {
        Ok(Ok(probed)) => probed,
        Ok(Err(_)) | Err(_) => Probed::Silent,
    }
}

async fn ask(address: SocketAddr, path: &str) -> io::Result<Probed> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: berth\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    // "HTTP/1.1 200" is all that is wanted.
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    let is_http = start.starts_with(b"HTTP/1.");
    Ok(if is_http && start[9] == b'2' { Probed::Healthy } else { Probed::Unhealthy })
}
