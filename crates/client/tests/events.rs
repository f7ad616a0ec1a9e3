//! The stream of events over connections that break.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use berth_client::{Client, EventStream, Received};
use berth_domain::Revision;
use berth_wire::{EventQuery, Problem};
use tokio::net::TcpListener;

/// What each connection gets, in order, and what each one asked for.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<Vec<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
enum Answer {
    /// A stream that ends.
    Text(String),
    /// A stream that breaks in the middle.
    Broken(String),
    Refused(u16),
}

fn event(revision: u64) -> String {
    let data = format!(
        "{{\"revision\":{revision},\"time\":\"2026-01-31T09:30:00.000Z\",\"type\":\"slot_ready\",\"text\":\"n{revision}\"}}"
    );
    format!("event: slot_ready\nid: {revision}\ndata: {data}\n\n")
}

async fn answer(State(script): State<Script>, query: RawQuery, headers: HeaderMap) -> Response {
    let last = headers.get("last-event-id").map_or("-", |value| value.to_str().unwrap());
    script.asked.lock().unwrap().push(format!("{} {last}", query.0.unwrap_or_default()));
    let mut answers = script.answers.lock().unwrap();
    let next = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
    let head = [("content-type", "text/event-stream"), ("berth-revision", "5")];
    match next {
        Answer::Text(text) => (head, text).into_response(),
        Answer::Broken(text) => (head, axum::body::Body::from_stream(Breaking(Some(text), false))).into_response(),
        Answer::Refused(status) => {
            let problem = Problem::new(status, "no", "No", "no");
            (StatusCode::from_u16(status).unwrap(), Json(problem)).into_response()
        }
    }
}

/// A body whose text is on its way before it breaks.
struct Breaking(Option<String>, bool);

impl futures_core::Stream for Breaking {
    type Item = Result<String, &'static str>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(text) = self.0.take() {
            return Poll::Ready(Some(Ok(text)));
        }
        if std::mem::replace(&mut self.1, true) {
            return Poll::Ready(Some(Err("broken")));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

async fn follow(answers: Vec<Answer>, after: Option<u64>) -> (Result<EventStream, berth_client::ClientError>, Script) {
    let script = Script { answers: Arc::new(Mutex::new(answers)), ..Script::default() };
    let router = Router::new().route("/api/v1/scheduler/events", get(answer)).with_state(script.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::builder(&base).build().unwrap();
    (client.events(EventQuery { after: after.map(Revision::new) }).await, script)
}

async fn next(stream: &mut EventStream) -> u64 {
    let received = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.unwrap().unwrap();
    match received {
        Received::Event(event) => event.revision.get(),
        Received::Reset(revision) => 1_000_000 + revision.get(),
    }
}

#[tokio::test]
async fn a_stream_resumes_where_it_broke_off() {
    let first = format!("retry: 10\n\n{}: alive\n\n{}", event(6), event(7));
    let half = event(9);
    let answers = vec![
        Answer::Text(first),
        Answer::Broken(format!("{}{}", event(8), &half[..20])),
        Answer::Refused(503),
        Answer::Text(format!("{}{}{}", event(8), event(9), event(10))),
    ];
    let (stream, script) = follow(answers, None).await;
    let mut stream = stream.unwrap();
    assert_eq!(stream.revision_at_start(), Revision::new(5));
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(next(&mut stream).await);
    }
    assert_eq!(seen, [6, 7, 8, 9, 10], "each once, in order, though 8 was sent twice");
    let asked = script.asked.lock().unwrap().clone();
    assert_eq!(asked, [" -", "after=7 7", "after=8 8", "after=8 8"]);
}

#[tokio::test]
async fn what_is_no_longer_known_is_told() {
    let reset = "retry: 10\n\nevent: reset\nid: 90\ndata: {\"revision\":90}\n\n".to_owned();
    let (stream, script) = follow(vec![Answer::Text(reset), Answer::Text(event(91))], Some(3)).await;
    let mut stream = stream.unwrap();
    assert_eq!(next(&mut stream).await, 1_000_090);
    assert_eq!(next(&mut stream).await, 91);
    assert_eq!(script.asked.lock().unwrap()[..2], ["after=3 3", "after=90 90"]);
}

#[tokio::test]
async fn what_is_not_understood_is_passed_over() {
    let odd = format!("event: weather\ndata: sunny\n\ndata: {{\"revision\": \"x\"}}\n\n{}", event(6));
    let mut stream = follow(vec![Answer::Text(odd)], None).await.0.unwrap();
    assert_eq!(next(&mut stream).await, 6);
}

#[tokio::test]
async fn a_refusal_ends_it() {
    let refused = follow(vec![Answer::Refused(401)], None).await.0;
    assert!(refused.unwrap_err().is_status(401));
    let text = format!("retry: 10\n\n{}", event(6));
    let mut stream = follow(vec![Answer::Text(text), Answer::Refused(403)], None).await.0.unwrap();
    assert_eq!(next(&mut stream).await, 6);
    let refused = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.unwrap();
    assert!(refused.unwrap_err().is_status(403), "a token that was revoked does not come back");
}
