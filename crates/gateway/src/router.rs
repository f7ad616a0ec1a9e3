//! The routes below `/v1`, and what happens to one request.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use berth_domain::{EngineRoute, ModelName};
use berth_wire::Problem;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::answer::{AnswerBody, is_event_stream};
use crate::asked::Asked;
use crate::config::{GatewayConfig, duration};
use crate::cors;
use crate::held::HeldRequests;
use crate::keeper;
use crate::lease::KeeperMessage;
use crate::models;
use crate::obtain::{Call, Obtained, obtain};
use crate::slot::{Question, Slots, passed_headers};
use crate::source::LeaseSource;
use crate::trouble::{Shape, Trouble, note_workload};

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Shared<S: LeaseSource> {
    pub(crate) source: S,
    pub(crate) config: GatewayConfig,
    pub(crate) keeper: UnboundedSender<KeeperMessage<S::Caller>>,
    pub(crate) held: Arc<HeldRequests>,
    pub(crate) slots: Slots,
}

/// A gateway. Copies are the same one.
#[derive(Debug)]
pub struct Gateway<S: LeaseSource>(Arc<Shared<S>>);

impl<S: LeaseSource> Clone for Gateway<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The routes of a gateway by what they do, so that whoever mounts them can ask something of their callers. Paths are
/// without `/v1`.
#[derive(Debug)]
pub struct Groups<T> {
    /// Listing models.
    pub read: Router<T>,
    /// Asking models.
    pub submit: Router<T>,
}

impl<S: LeaseSource> Gateway<S> {
    /// Starts a gateway. Must be called within the runtime that is to run it.
    pub fn start(source: S, config: GatewayConfig) -> Result<Self, reqwest::Error> {
        let keeper = keeper::start(source.clone(), duration(config.lease_ttl));
        let held = HeldRequests::new(config.held_per_model, config.held);
        let slots = Slots::new(duration(config.silence))?;
        Ok(Self(Arc::new(Shared { source, config, keeper, held, slots })))
    }

    /// The routes.
    pub fn routes<T: Clone + Send + Sync + 'static>(&self) -> Groups<T> {
        let read = Router::new()
            .route("/models", get(list_models::<S>))
            .route("/models/{*id}", get(show_model::<S>))
            .with_state(self.clone());
        let submit = EngineRoute::ALL.into_iter().fold(Router::new(), |router, route| {
            let answer = move |State(gateway): State<Self>, request: Request| async move {
                gateway.answer(route, request).await
            };
            router.route(&format!("/{route}"), post(answer))
        });
        Groups { read, submit: submit.with_state(self.clone()) }
    }

    /// Waits until every lease that was to end so far has ended.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.0.keeper.send(KeeperMessage::Flush(done)).is_ok() {
            drop(flushed.await);
        }
    }

    async fn answer(&self, route: EngineRoute, request: Request) -> Response {
        let shape = Shape::of(route);
        match self.try_answer(route, shape, request).await {
            Ok(response) => response,
            Err(trouble) => trouble.into_response(shape),
        }
    }

    async fn try_answer(&self, route: EngineRoute, shape: Shape, request: Request) -> Result<Response, Trouble> {
        let (parts, body) = request.into_parts();
        let caller = self.0.source.caller(&parts)?;
        let body = self.receive(&parts.headers, body).await?;
        let asked = Asked::read(&parts.headers, &body)?;
        let model = self.0.source.find_model(&caller, &asked.model).await?;
        let model = model.ok_or_else(|| Trouble::model_not_found(asked.model.as_str()))?;
        if !model.routes.contains(&route) {
            return Err(Trouble::route_not_served(model.name.as_str(), route, &model.routes));
        }
        let path = match parts.uri.query() {
            Some(query) => format!("/v1/{route}?{query}"),
            None => format!("/v1/{route}"),
        };
        let body = asked.body_for(&model.name, body);
        let question = Question { path, headers: passed_headers(&parts.headers), body };
        let workload = Arc::new(OnceLock::new());
        let call = Call { caller, model, question, workload: workload.clone() };
        let mut obtaining = Box::pin(obtain(self.0.clone(), call));
        drop(parts);
        let silence = duration(self.0.config.silence);
        if !asked.streams {
            return Ok(respond(obtaining.await?, shape, silence));
        }
        let every = duration(self.0.config.keep_alive);
        match tokio::time::timeout(every, &mut obtaining).await {
            Ok(obtained) => Ok(respond(obtained?, shape, silence)),
            Err(_) => {
                let body = Body::new(AnswerBody::waiting(obtaining, every, shape, silence));
                let mut response = body.into_response();
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                if let Some(workload) = workload.get() {
                    note_workload(headers, *workload);
                }
                Ok(response)
            }
        }
    }

    /// Receives a body within its limits of size and time.
    async fn receive(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Trouble> {
        let limit = self.0.config.body.get();
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit) {
            return Err(Trouble::body_too_large(limit));
        }
        let limited = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX));
        let collected = tokio::time::timeout(duration(self.0.config.body_timeout), limited.collect()).await;
        let collected =
            collected.map_err(|_| Trouble::body_timeout())?.map_err(|error| match error.is::<LengthLimitError>() {
                true => Trouble::body_too_large(limit),
                false => Trouble::invalid("the body ended before it was complete"),
            })?;
        let bytes = collected.to_bytes();
        // A small body shares the buffer of its connection, which is larger, and may be kept for minutes.
        const SMALL: usize = 16 * 1024;
        Ok(if bytes.len() < SMALL { Bytes::copy_from_slice(&bytes) } else { bytes })
    }
}

fn respond<C: Clone + Send + Sync + Unpin + 'static>(
    obtained: Obtained<C>,
    shape: Shape,
    silence: Duration,
) -> Response {
    let (status, workload) = (obtained.answer.status, obtained.workload);
    let mut headers = obtained.answer.headers.clone();
    note_workload(&mut headers, workload);
    if is_event_stream(&headers) {
        // An error event at its end would make it longer than the engine said.
        headers.remove(header::CONTENT_LENGTH);
    }
    let mut response = Body::new(AnswerBody::passing(obtained, shape, silence)).into_response();
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn list_models<S: LeaseSource>(State(Gateway(shared)): State<Gateway<S>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let listed = async {
        let caller = shared.source.caller(&parts)?;
        shared.source.catalogue(&caller, None).await
    };
    match listed.await {
        Ok(catalogue) => json(&models::list(&catalogue)),
        Err(problem) => Trouble::from(problem).into_response(Shape::OpenAi),
    }
}

async fn show_model<S: LeaseSource>(
    State(Gateway(shared)): State<Gateway<S>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let shown = async {
        let caller = shared.source.caller(&parts)?;
        let not_found = || Trouble::model_not_found(&id);
        let name = ModelName::new(&id).map_err(|_| not_found())?;
        let model = shared.source.find_model(&caller, &name).await?.ok_or_else(not_found)?;
        // Slots of others too: those that leave for it are among them.
        let mut catalogue = shared.source.catalogue(&caller, None).await?;
        catalogue.models.retain(|entry| entry.name == model.name);
        let entry = catalogue.models.first().ok_or_else(not_found)?;
        Ok::<_, Trouble>(models::describe(entry, &catalogue.slots))
    };
    match shown.await {
        Ok(model) => json(&model),
        Err(trouble) => trouble.into_response(Shape::OpenAi),
    }
}

/// Mounts everything below `/v1`: `inner` is what [`Gateway::routes`] returned, behind whatever asks who the caller is.
///
/// Callers of Anthropic's API send their key in a header of their own; from here on it is where everybody expects it. A
/// refusal of whoever stands in between is put into the shape that callers expect; `problem_of` finds it in an answer.
pub fn finish<T: Clone + Send + Sync + 'static>(
    inner: Router<T>,
    config: &GatewayConfig,
    problem_of: fn(&Response) -> Option<Problem>,
) -> Router<T> {
    let origins: Arc<[String]> = config.cors_origins.clone().into();
    let shaped = move |request: Request, next: Next| {
        let origins = origins.clone();
        async move { shape(request, next, &origins, problem_of).await }
    };
    let inner = inner
        .fallback(not_found)
        .method_not_allowed_fallback(async || Trouble::wrong_method().into_response(Shape::OpenAi));
    Router::new().nest("/v1", inner.layer(axum::middleware::from_fn(shaped)))
}

async fn not_found(OriginalUri(uri): OriginalUri) -> Response {
    Trouble::unknown_route(uri.path()).into_response(Shape::of_path(uri.path()))
}

async fn shape(
    mut request: Request,
    next: Next,
    origins: &[String],
    problem_of: fn(&Response) -> Option<Problem>,
) -> Response {
    let origin = cors::allowed_origin(origins, request.headers());
    if cors::is_preflight(request.method(), request.headers()) {
        return match origin {
            Some(origin) => cors::preflight(origin),
            None => StatusCode::FORBIDDEN.into_response(),
        };
    }
    move_key(request.headers_mut());
    let shape = Shape::of_path(request.uri().path());
    let mut response = next.run(request).await;
    if let Some(problem) = problem_of(&response) {
        let told = Trouble::from(problem).into_response(shape);
        let (parts, body) = told.into_parts();
        *response.body_mut() = body;
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response.headers_mut().extend(parts.headers);
    }
    if let Some(origin) = origin {
        cors::allow(response.headers_mut(), origin);
    }
    response
}

/// A key in `x-api-key` counts as a bearer token, unless there is one.
fn move_key(headers: &mut HeaderMap) {
    let Some(key) = headers.remove("x-api-key") else { return };
    if headers.contains_key(header::AUTHORIZATION) {
        return;
    }
    if let Ok(mut value) = HeaderValue::from_bytes(&[b"Bearer ", key.as_bytes()].concat()) {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
}
