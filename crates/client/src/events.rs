//! The stream of events, which resumes by itself.

use std::collections::VecDeque;
use std::time::Duration;

use berth_domain::Revision;
use berth_wire::{EventQuery, StreamEvent};
use reqwest::Response;
use serde::Deserialize;

use crate::client::revision_of;
use crate::sse::{Frame, Parser};
use crate::{Client, ClientError, routes};

/// One message of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// An event.
    Event(Box<StreamEvent>),
    /// The server no longer has all events since the last one: read the listings again. The next events are after this
    /// revision.
    Reset(Revision),
}

/// The events of a server, in order. When the connection breaks, the stream connects again and goes on where it broke
/// off.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    response: Option<Response>,
    parser: Parser,
    ready: VecDeque<Received>,
    after: Option<Revision>,
    at_start: Revision,
    failures: u32,
}

impl EventStream {
    /// The silence after which a connection counts as dead. The server sends something far more often.
    const SILENCE: Duration = Duration::from_secs(60);
    const PAUSE: Duration = Duration::from_secs(1);
    const LONGEST_PAUSE: Duration = Duration::from_secs(15);

    pub(crate) async fn open(client: Client, query: EventQuery) -> Result<Self, ClientError> {
        let mut stream = Self {
            client,
            response: None,
            parser: Parser::default(),
            ready: VecDeque::new(),
            after: query.after,
            at_start: Revision::default(),
            failures: 0,
        };
        stream.connect().await?;
        Ok(stream)
    }

    /// Returns the server's revision when the stream began. Events after it are new.
    #[must_use]
    pub fn revision_at_start(&self) -> Revision {
        self.at_start
    }

    /// Returns the next message. Waits without limit, and fails only if the server refuses.
    pub async fn next(&mut self) -> Result<Received, ClientError> {
        loop {
            if let Some(received) = self.ready.pop_front() {
                return Ok(received);
            }
            let Some(response) = &mut self.response else {
                self.reconnect().await?;
                continue;
            };
            match tokio::time::timeout(Self::SILENCE, response.chunk()).await {
                Ok(Ok(Some(piece))) => self.take(&piece),
                // Ended, broken or silent: all the same to us.
                Ok(Ok(None) | Err(_)) | Err(_) => self.response = None,
            }
        }
    }

    fn take(&mut self, piece: &[u8]) {
        let Ok(frames) = self.parser.feed(piece) else {
            self.response = None;
            return;
        };
        for received in frames.iter().filter_map(read) {
            let revision = match &received {
                Received::Event(event) => event.revision,
                Received::Reset(revision) => *revision,
            };
            // After a connection was made again, nothing is told twice.
            if matches!(received, Received::Reset(_)) || self.after.is_none_or(|after| revision > after) {
                self.after = Some(revision);
                self.ready.push_back(received);
            }
            self.failures = 0;
        }
    }

    async fn reconnect(&mut self) -> Result<(), ClientError> {
        let pause = self.parser.pause.unwrap_or(Self::PAUSE);
        let longer = pause.saturating_mul(2u32.pow(self.failures.min(10)));
        tokio::time::sleep(longer.min(Self::LONGEST_PAUSE.max(pause))).await;
        match self.connect().await {
            Err(error) if error.is_passing() => {
                self.failures = self.failures.saturating_add(1);
                Ok(())
            }
            done => done,
        }
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let after = self.after;
        let route = routes::events(EventQuery { after });
        let last = |request: reqwest::RequestBuilder| match after {
            Some(revision) => request.header("last-event-id", revision.to_string()),
            None => request,
        };
        let response = self.client.open(&route, last).await?;
        if self.at_start == Revision::default() {
            self.at_start = revision_of(response.headers());
        }
        // From now on a broken connection is made again from here, whether anything happened or not.
        self.after = after.or(Some(self.at_start).filter(|revision| *revision > Revision::default()));
        self.parser.restart();
        self.response = Some(response);
        Ok(())
    }
}

#[derive(Deserialize)]
struct ResetText {
    revision: Revision,
}

/// Parses a message. Returns `None` for one that this version does not understand.
fn read(frame: &Frame) -> Option<Received> {
    if frame.event == "reset" {
        let reset: Option<ResetText> = serde_json::from_str(&frame.data).ok();
        return reset.map(|reset| Received::Reset(reset.revision));
    }
    serde_json::from_str(&frame.data).ok().map(|event| Received::Event(Box::new(event)))
}
