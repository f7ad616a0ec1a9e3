//! The demo runtime of `berth dev`: a small program that answers like an inference engine, in OpenAI's and Anthropic's
//! shapes, as fast or as slowly as it is told.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};

/// What a slot of `berth dev` runs: health, and answers like a model's.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoSlot {
    /// Where to listen
    #[arg(long)]
    port: u16,
    /// Which model to pretend to be
    #[arg(long)]
    model: String,
    /// How many words a second it says; 0: as many as it can
    #[arg(long, default_value_t = 20)]
    speed: u32,
    /// How many milliseconds it takes to load
    #[arg(long, default_value_t = 0)]
    load_ms: u64,
}

/// What all answers share.
struct Demo {
    model: String,
    pause: Duration,
    ready_at: Instant,
}

/// Serves until it is ended.
pub(crate) fn demo_slot(args: &DemoSlot) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let demo = Arc::new(Demo {
            model: args.model.clone(),
            pause: if args.speed == 0 { Duration::ZERO } else { Duration::from_secs(1) / args.speed },
            ready_at: Instant::now() + Duration::from_millis(args.load_ms),
        });
        let router = Router::new()
            .route("/health", get(health))
            .route("/v1/chat/completions", post(chat))
            .route("/v1/completions", post(complete))
            .route("/v1/messages", post(messages))
            .with_state(demo);
        let listener = tokio::net::TcpListener::bind((IpAddr::from([127, 0, 0, 1]), args.port)).await?;
        crate::print(&format!("serving {} on port {}\n", args.model, args.port))?;
        axum::serve(listener, router).await?;
        anyhow::Ok(())
    })
}

async fn health(State(demo): State<Arc<Demo>>) -> Response {
    match demo.ready_at.checked_duration_since(Instant::now()) {
        None => Json(json!({ "status": "ok" })).into_response(),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "loading" }))).into_response(),
    }
}

/// One answer: its words, and what is said about them.
struct Reply {
    words: Vec<String>,
    prompt_tokens: usize,
    finish: &'static str,
    streams: bool,
    with_usage: bool,
}

impl Reply {
    /// Whatever it is asked: a demo has no opinion on what a body should be.
    fn to(demo: &Demo, body: &[u8]) -> Self {
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        let last =
            asked["messages"].as_array().and_then(|list| list.last()).map(|message| text_of(&message["content"]));
        let prompt = last.unwrap_or_else(|| text_of(&asked["prompt"]));
        let said = format!("This is {}, and I am a demo. You said: {prompt}", demo.model);
        let mut words: Vec<String> = said.split_inclusive(' ').map(str::to_owned).collect();
        let most = asked["max_tokens"].as_u64().or_else(|| asked["max_completion_tokens"].as_u64());
        let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX).max(1);
        let finish = if words.len() > most { "length" } else { "stop" };
        words.truncate(most);
        Self {
            words,
            prompt_tokens: prompt.split_whitespace().count(),
            finish,
            streams: asked["stream"] == true,
            with_usage: asked["stream_options"]["include_usage"] == true,
        }
    }

    fn text(&self) -> String {
        self.words.concat()
    }

    fn usage(&self) -> Value {
        let (prompt, completion) = (self.prompt_tokens, self.words.len());
        json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
    }

    /// How long a whole answer takes.
    fn duration(&self, demo: &Demo) -> Duration {
        demo.pause * u32::try_from(self.words.len()).unwrap_or(u32::MAX)
    }
}

/// The words of a message, whose content is a text or a list of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

async fn chat(State(demo): State<Arc<Demo>>, body: Bytes) -> Response {
    let reply = Reply::to(&demo, &body);
    let model = demo.model.clone();
    if !reply.streams {
        tokio::time::sleep(reply.duration(&demo)).await;
        let message = json!({ "role": "assistant", "content": reply.text() });
        let choice = json!({ "index": 0, "message": message, "finish_reason": reply.finish });
        let whole = json!({ "id": "demo", "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": reply.usage() });
        return Json(whole).into_response();
    }
    let chunk = move |delta: Value, finish: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        json!({ "id": "demo", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice] })
    };
    let mut last = vec![chunk(json!({}), Some(reply.finish))];
    if reply.with_usage {
        let usage = reply.usage();
        last.push(json!({ "id": "demo", "object": "chat.completion.chunk", "created": 0, "model": demo.model, "choices": [], "usage": usage }));
    }
    let first = data(&chunk(json!({ "role": "assistant", "content": "" }), None));
    let words = paced(reply.words, demo.pause).map(move |word| data(&chunk(json!({ "content": word }), None)));
    let last = last.iter().map(data).chain(["data: [DONE]\n\n".to_owned()]).collect::<Vec<_>>();
    events(stream::iter([first]).chain(words).chain(stream::iter(last)))
}

async fn complete(State(demo): State<Arc<Demo>>, body: Bytes) -> Response {
    let reply = Reply::to(&demo, &body);
    let model = demo.model.clone();
    let chunk = move |text: &str, finish: Option<&str>, usage: Value| {
        let choice = json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": finish });
        json!({ "id": "demo", "object": "text_completion", "created": 0, "model": model, "choices": [choice], "usage": usage })
    };
    if !reply.streams {
        tokio::time::sleep(reply.duration(&demo)).await;
        return Json(chunk(&reply.text(), Some(reply.finish), reply.usage())).into_response();
    }
    let last = [data(&chunk("", Some(reply.finish), Value::Null)), "data: [DONE]\n\n".to_owned()];
    let words = paced(reply.words, demo.pause).map(move |word| data(&chunk(&word, None, Value::Null)));
    events(words.chain(stream::iter(last)))
}

async fn messages(State(demo): State<Arc<Demo>>, body: Bytes) -> Response {
    let reply = Reply::to(&demo, &body);
    let stop = if reply.finish == "length" { "max_tokens" } else { "end_turn" };
    let message = |content: Value, stop: Value, output: usize| {
        let usage = json!({ "input_tokens": reply.prompt_tokens, "output_tokens": output });
        json!({ "id": "demo", "type": "message", "role": "assistant", "model": demo.model, "content": content, "stop_reason": stop, "stop_sequence": null, "usage": usage })
    };
    if !reply.streams {
        tokio::time::sleep(reply.duration(&demo)).await;
        let content = json!([{ "type": "text", "text": reply.text() }]);
        return Json(message(content, json!(stop), reply.words.len())).into_response();
    }
    let first = [
        named("message_start", &json!({ "type": "message_start", "message": message(json!([]), Value::Null, 0) })),
        named(
            "content_block_start",
            &json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        ),
    ];
    let usage = json!({ "output_tokens": reply.words.len() });
    let last = [
        named("content_block_stop", &json!({ "type": "content_block_stop", "index": 0 })),
        named(
            "message_delta",
            &json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null }, "usage": usage }),
        ),
        named("message_stop", &json!({ "type": "message_stop" })),
    ];
    let words = paced(reply.words, demo.pause).map(|word| {
        let delta = json!({ "type": "text_delta", "text": word });
        named("content_block_delta", &json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
    });
    events(stream::iter(first).chain(words).chain(stream::iter(last)))
}

/// Words, each after a pause.
fn paced(words: Vec<String>, pause: Duration) -> impl Stream<Item = String> {
    stream::iter(words).then(move |word| async move {
        tokio::time::sleep(pause).await;
        word
    })
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(event: &str, value: &Value) -> String {
    format!("event: {event}\ndata: {value}\n\n")
}

fn events(lines: impl Stream<Item = String> + Send + 'static) -> Response {
    let body = Body::from_stream(lines.map(|line| Ok::<_, Infallible>(Bytes::from(line))));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
