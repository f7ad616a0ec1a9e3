//! What happens, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use berth_domain::Revision;
use berth_wire as wire;
use berth_wire::{EventQuery, Invalid};
use futures_util::Stream;
use futures_util::stream;

use super::App;
use super::body::Query;
use super::problem::Failure;
use crate::present;
use crate::trust::Caller;
use crate::views::stream::{Next, PublishedEvent};

/// How many events are taken from the ring at once.
const HANDFUL: usize = 256;

/// Follow what happens
///
/// Server-sent events, each with its revision as its id. `Last-Event-ID`, or `after`, resumes; without either it begins
/// now. If some of it is no longer kept, an event `reset` says so: read the listings again and go on.
#[utoipa::path(get, path = "/api/v1/scheduler/events", tag = "scheduler",
    params(EventQuery, ("Last-Event-ID" = Option<u64>, Header, description = "The revision of the last event that was seen")),
    responses((status = 200, description = "Events", body = wire::StreamEvent, content_type = "text/event-stream")))]
pub(super) async fn follow(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Query(query): Query<EventQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Failure> {
    let after = last_event_id(&headers)?.or(query.after).unwrap_or_else(|| app.views.revision());
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
    Ok(Sse::new(events(app, caller, after)).keep_alive(keep_alive))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Revision>, Failure> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok()).map(Revision::new);
    let refuse = || Failure::from(Invalid::new("Last-Event-ID", "the revision of an event, as a number"));
    number.map(Some).ok_or_else(refuse)
}

/// A follower: up to where it has read, and what it holds in its hand.
struct Follower {
    app: App,
    caller: Caller,
    after: Revision,
    hand: std::vec::IntoIter<Event>,
}

fn events(app: App, caller: Caller, after: Revision) -> impl Stream<Item = Result<Event, Infallible>> {
    let follower = Follower { app, caller, after, hand: Vec::new().into_iter() };
    stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    })
}

impl Follower {
    /// The next event; none when the server shuts down.
    async fn next(&mut self) -> Option<Event> {
        let mut latest = self.app.views.stream.follow();
        let mut stopping = self.app.stopping.clone();
        loop {
            if let Some(event) = self.hand.next() {
                return Some(event);
            }
            latest.mark_unchanged();
            self.take_handful();
            if self.hand.len() > 0 {
                continue;
            }
            tokio::select! {
                changed = latest.changed() => changed.ok()?,
                _ = stopping.wait_for(|stopping| *stopping) => return None,
            }
        }
    }

    fn take_handful(&mut self) {
        let events = match self.app.views.stream.after(self.after, HANDFUL) {
            Next::Events(events) => {
                self.after = events.last().map_or(self.after, |last| last.revision);
                let is_visible = |happened: &&PublishedEvent| happened.subject.is_visible_to(&self.caller);
                events.iter().filter(is_visible).map(|happened| told(&present::event(happened))).collect()
            }
            Next::Gap(latest) => {
                self.after = latest;
                vec![Event::default().event("reset").id(latest.to_string()).data(format!("{{\"revision\":{latest}}}"))]
            }
        };
        self.hand = Vec::into_iter(events);
    }
}

fn told(event: &wire::StreamEvent) -> Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().event(&event.kind).id(event.revision.to_string()).data(data)
}
