//! Whether the server lives and can work, and its numbers.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use berth_wire as wire;
use berth_wire::ProblemCode;
use prometheus_client::encoding::text::encode;

use super::App;
use super::body::Json;
use super::problem::Failure;
use crate::clock;
use crate::present;
use crate::views::metrics::gauges;

/// Does it live?
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "It does", body = wire::Health)))]
pub(super) async fn healthz() -> Json<wire::Health> {
    Json(wire::Health { status: "ok".into() })
}

/// Can it work?
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "It can", body = wire::Ready),
        (status = 503, description = "It cannot, and why", body = wire::Ready),
    ))]
pub(super) async fn readyz(State(app): State<App>) -> Response {
    let mut reasons = Vec::new();
    if app.views.is_read_only() {
        reasons.push("the journal has no room left: writes are refused".to_owned());
    }
    if let Some(violation) = app.views.violation() {
        reasons.push(format!("a ledger is not the fold of its claims: {violation}"));
    }
    if let Some(shown) = app.views.went_back() {
        reasons.push(present::went_back(shown));
    }
    if let Some(busy) = app.views.writer_stalled(clock::now()) {
        reasons.push(format!("the writer has been busy with one batch for {busy}: nothing is decided meanwhile"));
    }
    if *app.stopping.borrow() {
        reasons.push("the server shuts down".to_owned());
    }
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(wire::Ready { ready: reasons.is_empty(), reasons })).into_response()
}

/// Numbers for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(app): State<App>) -> Result<Response, Failure> {
    app.see_fleet().await;
    let mut text = String::new();
    let failed = |_| Failure::new(ProblemCode::Internal, "the numbers cannot be written");
    encode(&mut text, app.views.metrics.registry()).map_err(failed)?;
    // Each registry ends its text; there is one end to an answer.
    let body = text.trim_end().trim_end_matches("# EOF").to_owned();
    let mut rest = String::new();
    encode(&mut rest, &gauges(&app.views)).map_err(failed)?;
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, media_type)], body + &rest).into_response())
}

/// Which server is this?
///
/// Its program, and which cluster it serves in which of its starts.
#[utoipa::path(get, path = "/api/v1/version", tag = "health", responses((status = 200, description = "Who it is", body = wire::Version)))]
pub(super) async fn version(State(app): State<App>) -> Json<wire::Version> {
    Json(wire::Version {
        version: env!("CARGO_PKG_VERSION").into(),
        api: "v1".into(),
        cluster_id: app.views.cluster(),
        epoch: app.views.epoch(),
        protocol: wire::PROTOCOL,
    })
}
