//! A conversation through the server's gateway.

use std::collections::VecDeque;

use berth_wire::Problem;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use crate::client::problem_in;
use crate::sse::Parser;
use crate::{Client, ClientError, Route};

/// An answer that comes word by word.
#[derive(Debug)]
pub struct ChatStream {
    response: reqwest::Response,
    parser: Parser,
    waiting: VecDeque<Value>,
    url: String,
}

impl Client {
    /// Asks a model: `body` is what OpenAI's `chat/completions` takes. The answer is streamed.
    pub async fn chat(&self, body: &Value) -> Result<ChatStream, ClientError> {
        let route: Route<Value> = Route::post(&["v1", "chat", "completions"]);
        let mut body = body.clone();
        body["stream"] = Value::Bool(true);
        let request = self.send_to(Method::POST, self.url(&route));
        let json = HeaderValue::from_static("application/json");
        let sent = request.header(CONTENT_TYPE, json).body(body.to_string()).send().await;
        let response = sent.map_err(|error| ClientError::of_transport(self.base(), &error, self.timeout.as_secs()))?;
        if response.status().is_success() {
            let url = self.base().to_owned();
            return Ok(ChatStream { response, parser: Parser::default(), waiting: VecDeque::new(), url });
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap_or_default();
        let told = serde_json::from_str::<Value>(&text).ok().and_then(|value| gateway_error(status.as_u16(), &value));
        Err(told.or_else(|| problem_in(&text)).unwrap_or_else(|| self.refusal(status, &headers, &text)))
    }

    /// How a model fares, as the gateway says it: whether it is loaded, and how far its load has come.
    pub async fn model_status(&self, model: &str) -> Result<Value, ClientError> {
        let path: Vec<&str> = ["v1", "models"].into_iter().chain(model.split('/')).collect();
        let route: Route<Value> = Route::get(&path);
        self.ask(&route).await.map(|answer| answer.body)
    }
}

impl ChatStream {
    /// The next piece of the answer, or nothing when it is over. An empty one says that the server still works on it.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                if let Some(error) = gateway_error(502, &event) {
                    return Err(error);
                }
                let word = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
                return Ok(Some(word.to_owned()));
            }
            let broke = |error: &reqwest::Error| ClientError::of_transport(&self.url, error, 0);
            let Some(piece) = self.response.chunk().await.map_err(|error| broke(&error))? else { return Ok(None) };
            let not_ours = |_| ClientError::NotBerth { url: self.url.clone(), why: "an endless event".to_owned() };
            let events = self.parser.feed(&piece).map_err(not_ours)?;
            self.waiting.extend(events.iter().filter_map(|event| serde_json::from_str::<Value>(&event.data).ok()));
        }
    }
}

/// What a gateway says went wrong, in OpenAI's shape.
fn gateway_error(status: u16, value: &Value) -> Option<ClientError> {
    let error = value.get("error")?;
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    Some(ClientError::Problem(Box::new(Problem::new(status, text("code"), text("type"), text("message")))))
}
