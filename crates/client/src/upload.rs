//! Answers of an agent to requests of the server.

use std::convert::Infallible;

use berth_domain::RunnerId;
use berth_wire::{PROBLEM_MEDIA_TYPE, Problem, RequestId};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Body, Method};
use serde::Serialize;

use crate::{Client, ClientError, routes};

/// How many pieces may wait to be sent.
const IN_FLIGHT: usize = 2;

/// Takes the pieces of an answer. The answer is complete when this is dropped.
pub struct Upload {
    pieces: Sender<Bytes, Infallible>,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upload")
    }
}

impl Upload {
    /// Sends a piece, at the pace of the reader. Returns whether there is still a reader.
    pub async fn send(&mut self, piece: Vec<u8>) -> bool {
        self.pieces.send_data(piece.into()).await.is_ok()
    }
}

impl Client {
    /// Answers a request of the server with a stream of bytes. The returned future does the sending: it ends once the
    /// answer is complete, or once there is no reader.
    pub fn answer_with_bytes(
        &self,
        runner: &RunnerId,
        request: RequestId,
    ) -> (Upload, impl Future<Output = Result<(), ClientError>> + Send + use<>) {
        let (pieces, body) = Channel::new(IN_FLIGHT);
        let sending = self.clone().send_answer(runner.clone(), request, "application/octet-stream", Body::wrap(body));
        (Upload { pieces }, sending)
    }

    /// Answers a request of the server with a document.
    pub async fn answer_with_json(
        &self,
        runner: &RunnerId,
        request: RequestId,
        document: &impl Serialize,
    ) -> Result<(), ClientError> {
        let body = serde_json::to_vec(document).unwrap_or_default().into();
        self.clone().send_answer(runner.clone(), request, "application/json", body).await
    }

    /// Says why a request of the server has no answer.
    pub async fn answer_with_problem(
        &self,
        runner: &RunnerId,
        request: RequestId,
        problem: &Problem,
    ) -> Result<(), ClientError> {
        let body = serde_json::to_vec(problem).unwrap_or_default().into();
        self.clone().send_answer(runner.clone(), request, PROBLEM_MEDIA_TYPE, body).await
    }

    /// Sends an answer without a time limit: its reader decides how long it takes.
    async fn send_answer(
        self,
        runner: RunnerId,
        request: RequestId,
        media_type: &'static str,
        body: Body,
    ) -> Result<(), ClientError> {
        let url = self.url(&routes::answer(&runner, request));
        let request = self.send_to(Method::POST, url);
        let sent = request.header(CONTENT_TYPE, HeaderValue::from_static(media_type)).body(body).send();
        let response = sent.await.map_err(|error| ClientError::of_transport(self.base(), &error, 0))?;
        if response.status().is_success() {
            return Ok(());
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap_or_default();
        Err(self.refusal(status, &headers, &text))
    }
}
