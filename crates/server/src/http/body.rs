//! What comes in: bodies, queries and paths, refused by name where they are wrong.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use berth_wire::{Invalid, ProblemCode, body};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::App;
use super::problem::Failure;

/// A JSON body of a request, or of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(error) => Failure::new(ProblemCode::Internal, error.to_string()).into_response(),
        }
    }
}

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let limit = usize::try_from(app.limits.current().body.get()).unwrap_or(usize::MAX);
        read(request, limit, app).await.map(Self)
    }
}

/// A report of an agent, as it came: it may be larger than what people and gateways send.
#[derive(Clone, Debug)]
pub(super) struct LargeBody(pub(super) axum::body::Bytes);

impl FromRequest<App> for LargeBody {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let limit = usize::try_from(app.limits.current().report.get()).unwrap_or(usize::MAX);
        receive(request, limit, app).await.map(Self)
    }
}

async fn read<T: DeserializeOwned>(request: Request, limit: usize, app: &App) -> Result<T, Failure> {
    Ok(body::read(&receive(request, limit, app).await?)?)
}

/// Receives a body that says that it is JSON, within its limits of size and time.
async fn receive(request: Request, limit: usize, app: &App) -> Result<axum::body::Bytes, Failure> {
    check_media_type(request.headers())?;
    let patience = Duration::from_millis(app.limits.current().body_timeout.millis());
    let collected = tokio::time::timeout(patience, collect(request.into_body(), limit)).await;
    let late = |_| Failure::new(ProblemCode::BodyTimeout, "the body did not arrive in time");
    collected.map_err(late)?
}

async fn collect(body: Body, limit: usize) -> Result<axum::body::Bytes, Failure> {
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let detail = format!("a body here has at most {limit} bytes");
            Failure::new(ProblemCode::BodyTooLarge, detail)
        } else {
            Failure::cut_off()
        }
    })?;
    Ok(collected.to_bytes())
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Failure> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = format!("send JSON, with Content-Type: application/json (this was {sent:?})");
    Err(Failure::new(ProblemCode::UnsupportedMediaType, detail))
}

/// The query of a request. An unknown parameter is an error: a typo must not be ignored.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Failure> {
        let text = parts.uri.query().unwrap_or_default();
        let pairs = serde_urlencoded::Deserializer::new(form(text));
        serde_path_to_error::deserialize(pairs).map(Self).map_err(|error| {
            let field = error.path().to_string();
            let detail = error.into_inner().to_string();
            let named = detail.split('`').nth(1).filter(|_| field == ".").unwrap_or(&field).to_owned();
            Failure::from(Invalid::new(named, detail))
        })
    }
}

fn form(text: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(text.as_bytes())
}

/// The one name in a path, percent-decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<T>(pub T);

impl<T> FromRequestParts<App> for Named<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        parse(path_name(parts, app).await?).map(Self)
    }
}

/// The first parameter of a path: what it is called, and what it says.
pub(super) async fn path_name(parts: &mut Parts, app: &App) -> Result<(String, String), Failure> {
    let first = path_names(parts, app).await?.into_iter().next();
    first.ok_or_else(|| Invalid::new("path", "a name is missing").into())
}

async fn path_names(parts: &mut Parts, app: &App) -> Result<Vec<(String, String)>, Failure> {
    let refuse = |error: &dyn std::fmt::Display| Failure::from(Invalid::new("path", error.to_string()));
    let params = RawPathParams::from_request_parts(parts, app).await.map_err(|error| refuse(&error))?;
    Ok(params.iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect())
}

/// The two names in a path, percent-decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedPair<A, B>(pub A, pub B);

impl<A, B> FromRequestParts<App> for NamedPair<A, B>
where
    A: std::str::FromStr<Err: std::fmt::Display>,
    B: std::str::FromStr<Err: std::fmt::Display>,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let mut names = path_names(parts, app).await?.into_iter();
        let mut next = || names.next().ok_or_else(|| Failure::from(Invalid::new("path", "a name is missing")));
        Ok(Self(parse(next()?)?, parse(next()?)?))
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>((name, text): (String, String)) -> Result<T, Failure> {
    text.parse().map_err(|error: T::Err| Invalid::new(name, error.to_string()).into())
}
