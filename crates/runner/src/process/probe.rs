//! One health probe, in a minimal HTTP client.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::health::Probed;
use crate::runtime::{ModelQuestion, Question};

/// The longest list of models that is read.
const LONGEST_ANSWER: u64 = 1024 * 1024;

/// Sends a probe. Any 2xx status is healthy; a model must also be named in the answer. A program that answers too
/// slowly is cut off after `timeout`.
pub async fn probe(address: SocketAddr, question: &Question, timeout: Duration) -> Probed {
    match tokio::time::timeout(timeout, ask(address, question)).await {
        Ok(Ok(probed)) => probed,
        Ok(Err(_)) | Err(_) => Probed::Silent,
    }
}

async fn ask(address: SocketAddr, question: &Question) -> io::Result<Probed> {
    // The body is not read.
    let mut stream = send(address, &question.path, "HTTP/1.1").await?;
    match (status(&mut stream).await?, &question.model) {
        (Status::Yes, Some(model)) => ask_for_model(address, model).await,
        (Status::Yes, None) => Ok(Probed::Healthy),
        (Status::No(status), _) => Ok(Probed::Unhealthy(status)),
    }
}

/// Asks for the models. An answer to HTTP/1.0 is never sent in chunks, so the body is what follows the empty line.
async fn ask_for_model(address: SocketAddr, question: &ModelQuestion) -> io::Result<Probed> {
    let mut stream = send(address, &question.path, "HTTP/1.0").await?;
    if let Status::No(status) = status(&mut stream).await? {
        return Ok(Probed::WithoutModel(status));
    }
    let mut answer = Vec::new();
    let mut stream = stream.take(LONGEST_ANSWER);
    loop {
        let is_over = stream.read_buf(&mut answer).await? == 0;
        let body = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| &answer[at + 4..]);
        // Some programs leave the connection open after a complete body.
        if body.is_some_and(|body| names_model(body, &question.names)) {
            return Ok(Probed::Healthy);
        }
        if is_over || body.is_some_and(|body| serde_json::from_slice::<Value>(body).is_ok()) {
            return Ok(Probed::WithoutModel(None));
        }
    }
}

async fn send(address: SocketAddr, path: &str, version: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} {version}\r\nHost: {address}\r\nUser-Agent: berth\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

enum Status {
    Yes,
    No(Option<u16>),
}

/// Reads "HTTP/1.1 200", the only part of the head that is needed.
async fn status(stream: &mut TcpStream) -> io::Result<Status> {
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if !start.starts_with(b"HTTP/1.") {
        return Ok(Status::No(None));
    }
    let status = std::str::from_utf8(&start[9..]).ok().and_then(|digits| digits.parse().ok());
    Ok(if start[9] == b'2' { Status::Yes } else { Status::No(status) })
}

/// Returns whether an answer in OpenAI's format names one of these models: a single model, or a list, each with its id
/// and, for llama-server, its other names.
fn names_model(body: &[u8], names: &[String]) -> bool {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return false };
    let is_one = |value: &Value| value.as_str().is_some_and(|text| names.iter().any(|name| name == text));
    let is_named = |model: &Value| {
        let others = model["aliases"].as_array().into_iter().flatten();
        is_one(&model["id"]) || others.into_iter().any(is_one)
    };
    is_named(&answer) || answer["data"].as_array().into_iter().flatten().any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_by_its_id_alone() {
        let names = ["a/b".to_owned()];
        for body in [
            r#"{"id":"a/b","object":"model"}"#,
            r#"{"object":"list","data":[{"id":"c"},{"id":"a/b"}]}"#,
            r#"{"data":[{"id":"file.gguf","aliases":["a/b"]}]}"#,
        ] {
            assert!(names_model(body.as_bytes(), &names), "{body}");
        }
        for body in ["", "a/b", r#""a/b""#, r#"{"data":[]}"#, r#"{"data":[{"id":"a/bc"}]}"#, r#"{"owned_by":"a/b"}"#] {
            assert!(!names_model(body.as_bytes(), &names), "{body}");
        }
    }
}
