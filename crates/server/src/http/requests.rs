//! What agents answer when they are asked for something: a body that goes to whoever reads it, at the reader's pace.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use berth_domain::RunnerId;
use berth_wire as wire;
use berth_wire::{PROBLEM_MEDIA_TYPE, ProblemCode, RequestId};
use http_body_util::BodyExt;

use super::App;
use super::body::NamedPair;
use super::layers::unread_body::close_after;
use super::problem::Failure;
use crate::clock;
use crate::requests::{BrokenOff, Media, Outgoing};

/// How often a silent upload is looked at: a machine that vanished does not say so.
const LOOK: Duration = Duration::from_secs(10);
/// An agent that was not heard of for so long sends nothing any more.
const SILENCE: berth_domain::Span = berth_domain::Span::from_secs(60);
/// A reader that takes nothing for so long reads no more.
const STALLED: Duration = Duration::from_secs(60);

/// Answer a request of the server
///
/// The body goes to whoever asked, as it comes: bytes, or JSON, or a problem that says why not. It is read no faster than
/// they read; when they leave, the answer comes early.
#[utoipa::path(post, path = "/api/v1/runners/{id}/requests/{request_id}", tag = "agents",
    params(("id" = wire::schema::RunnerId, Path), ("request_id" = RequestId, Path)),
    request_body(content = String, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "It was read to its end"),
        (status = 404, description = "Nobody waits for it", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is being answered already, or its reader left", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn answer(
    State(app): State<App>,
    NamedPair(runner, id): NamedPair<RunnerId, RequestId>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let taken = media(&headers).and_then(|media| Ok(app.requests.take(&runner, id, media)?));
    let piped = match taken {
        Ok(outgoing) => pipe(&app, &runner, body, outgoing).await,
        Err(failure) => Err(failure),
    };
    match piped {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(failure) => {
            // What is left of the body is not read.
            let mut response = failure.into_response();
            close_after(&mut response, version);
            response
        }
    }
}

fn media(headers: &HeaderMap) -> Result<Media, Failure> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match sent.split(';').next().unwrap_or_default().trim() {
        "application/octet-stream" => Ok(Media::Bytes),
        "application/json" => Ok(Media::Json),
        PROBLEM_MEDIA_TYPE => Ok(Media::Problem),
        _ => {
            let detail =
                format!("answer with bytes, JSON or a problem, each with its Content-Type (this was {sent:?})");
            Err(Failure::new(ProblemCode::UnsupportedMediaType, detail))
        }
    }
}

/// Passes an answer on to its end. Whoever reads it learns if it did not come to its end.
async fn pipe(app: &App, runner: &RunnerId, mut body: Body, outgoing: Outgoing) -> Result<(), Failure> {
    let Outgoing { pieces, limit } = outgoing;
    let mut left = limit.unwrap_or(u64::MAX);
    let ended = loop {
        let frame = match next(app, runner, &mut body, &pieces).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(failure) => break failure,
        };
        let Ok(data) = frame.into_data() else { continue };
        let Some(rest) = left.checked_sub(data.len() as u64) else {
            let detail = "the answer is longer than it was asked to be";
            break Failure::new(ProblemCode::BodyTooLarge, detail);
        };
        left = rest;
        if !matches!(tokio::time::timeout(STALLED, pieces.send(Ok(data))).await, Ok(Ok(()))) {
            return Err(reader_left());
        }
    };
    // Where the line to the reader is full they see it end early all the same.
    drop(pieces.try_send(Err(BrokenOff)));
    Err(ended)
}

/// The next frame; none at the end. Fails when there is no use in waiting for it.
async fn next(
    app: &App,
    runner: &RunnerId,
    body: &mut Body,
    pieces: &tokio::sync::mpsc::Sender<Result<axum::body::Bytes, BrokenOff>>,
) -> Result<Option<hyper::body::Frame<axum::body::Bytes>>, Failure> {
    let mut stopping = app.stopping.clone();
    loop {
        tokio::select! {
            frame = body.frame() => return frame.transpose().map_err(|_| Failure::cut_off()),
            () = pieces.closed() => return Err(reader_left()),
            _ = stopping.wait_for(|stopping| *stopping) => return Err(crate::writer::Unavailable::Stopping.into()),
            () = tokio::time::sleep(LOOK) => {
                let heard = app.views.last_report(runner).map(|report| report.received).unwrap_or_default();
                if clock::now().since(heard) > SILENCE {
                    return Err(Failure::cut_off());
                }
            }
        }
    }
}

fn reader_left() -> Failure {
    Failure::new(ProblemCode::ReaderLeft, "whoever asked for this reads no more: send nothing further")
}
