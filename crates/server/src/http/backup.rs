//! A backup of the server, taken while it serves.

use berth_wire::ProblemCode;
use std::io::{self, Write};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use tokio::sync::mpsc;

use super::App;
use super::problem::Failure;
use crate::backup::{self, Contents};
use crate::clock;
use crate::trust::Caller;
use crate::writer::Unavailable;

/// How many pieces may wait for a slow reader.
const PIECES: usize = 8;

/// Take a backup
///
/// Everything that a server needs to go on, as of one revision: state, tokens and the cluster's key. It holds secrets.
/// If it breaks off before its end, the connection does too, and `berth restore` refuses what was received.
#[utoipa::path(get, path = "/api/v1/backup", tag = "admin",
    responses(
        (status = 200, description = "The backup", body = String, content_type = "application/octet-stream"),
        (status = 503, description = "The server shuts down", body = berth_wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn take(State(app): State<App>, Extension(caller): Extension<Caller>) -> Result<Response, Failure> {
    let gathered = gather(&app).await;
    app.put_on_record(&caller, "backup", &"state, tokens and key", None, &gathered);
    let contents = gathered?;
    let (to, pieces) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut body = ToBody { to };
        if let Err(error) = backup::write(&contents, clock::now(), &mut body) {
            tracing::warn!(%error, "a backup was not finished: its reader has to take it again");
            // The reader sees a broken connection instead of an end.
            drop(body.to.blocking_send(Err(error)));
        }
    });
    let body = Body::from_stream(stream::unfold(pieces, |mut pieces: mpsc::Receiver<io::Result<Bytes>>| async move {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    }));
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Copies the state between two batches, and reads what else belongs to a backup.
async fn gather(app: &App) -> Result<Contents, Failure> {
    let cluster = app.views.cluster().ok_or(Unavailable::Stopping)?;
    let writer = app.writer.clone();
    let copied = tokio::task::spawn_blocking(move || writer.snapshot()).await;
    let state = copied.map_err(|_| Unavailable::Stopping)??;
    let unreadable = |error: serde_json::Error| {
        Failure::new(ProblemCode::Internal, format!("the tokens cannot be written: {error}"))
    };
    Ok(Contents { cluster, key: app.key.to_text(), tokens: app.tokens.to_text().map_err(unreadable)?, state })
}

/// Writes into the body of an answer, as fast as its reader reads.
struct ToBody {
    to: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for ToBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        self.to.blocking_send(piece).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
