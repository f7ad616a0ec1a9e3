//! The catalogue of models.

use axum::Extension;
use axum::extract::{OriginalUri, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use berth_core::Command;
use berth_core::view::ModelView;
use berth_domain::{ModelName, ModelRevision};
use berth_wire as wire;
use berth_wire::{FitQuery, ModelRequest, PageQuery, ProblemCode};
use std::sync::Arc;

use super::App;
use super::body::{Json, Named, Query};
use super::listing::Page;
use super::problem::Failure;
use crate::clock;
use crate::present;
use crate::trust::Caller;

impl App {
    /// A model with everything about it.
    pub(super) fn model_as_shown(&self, view: &ModelView) -> wire::Model {
        let load_median_ms = self.views.load_times.median(&view.name).map(berth_domain::Span::millis);
        wire::Model { load_median_ms, ..present::model(view) }
    }
}

/// List models
#[utoipa::path(get, path = "/api/v1/models", tag = "models", params(PageQuery),
    responses((status = 200, description = "Models by name", body = Vec<wire::Model>)))]
pub(super) async fn list(State(app): State<App>, uri: OriginalUri, Query(page): Query<PageQuery>) -> Page<wire::Model> {
    app.see_fleet().await;
    let is_new = |view: &Arc<ModelView>| page.after.as_deref().is_none_or(|after| view.name.as_str() > after);
    let rows = app.views.models().into_iter().filter(is_new);
    Page::of(rows, page.limit, &uri, |view| view.name.to_string()).map(|view| app.model_as_shown(&view))
}

/// Look at a model
#[utoipa::path(get, path = "/api/v1/models/{name}", tag = "models", params(("name" = wire::schema::ModelName, Path)),
    responses(
        (status = 200, description = "The model", body = wire::Model),
        (status = 404, description = "No such model", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn show(State(app): State<App>, Named(name): Named<ModelName>) -> Result<Json<wire::Model>, Failure> {
    app.see_fleet().await;
    let view = app.views.model(&name).ok_or_else(|| Failure::unknown(ProblemCode::UnknownModel, &name))?;
    Ok(Json(app.model_as_shown(&view)))
}

/// Add or change a model
///
/// A changed model is a new revision: slots of the old one take no new leases. The same model again changes nothing.
///
/// With `memory.file` its memory is estimated from that file, once, for each GPU count; the number is stored with what
/// it is made of, and is what is charged. Arguments that say something else than `memory` are refused; what `memory`
/// leaves out is estimated as the arguments say, and what these leave out is added to them.
#[utoipa::path(put, path = "/api/v1/models/{name}", tag = "models", params(("name" = wire::schema::ModelName, Path)),
    request_body = ModelRequest,
    responses(
        (status = 200, description = "Changed, or as it was", body = wire::Model),
        (status = 201, description = "Added", body = wire::Model),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 502, description = "The runner's agent answered with something else", body = wire::Problem, content_type = "application/problem+json"),
        (status = 504, description = "The runner's agent did not answer", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<ModelName>,
    Json(request): Json<ModelRequest>,
) -> Result<Response, Failure> {
    let file = request.file().cloned();
    let mut spec = request.into_spec(name.clone())?;
    if let Some(file) = file {
        app.find_reader(&file).await?;
        spec = app.estimator.complete(&file, spec).await?;
    }
    app.see_fleet().await;
    let known = app.views.model(&name).is_some();
    app.operate(&caller, "put_model", &name, None, Command::PutModel { spec: Box::new(spec) }).await?;
    app.see_fleet().await;
    let view = app.views.model(&name).ok_or_else(|| Failure::unknown(ProblemCode::UnknownModel, &name))?;
    let status = if known || view.revision > ModelRevision::new(1) { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(app.model_as_shown(&view))).into_response())
}

/// Remove a model
///
/// Its leases finish; its slots stop once they are idle.
#[utoipa::path(delete, path = "/api/v1/models/{name}", tag = "models", params(("name" = wire::schema::ModelName, Path)),
    responses(
        (status = 204, description = "Removed"),
        (status = 404, description = "No such model", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn remove(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(name): Named<ModelName>,
) -> Result<StatusCode, Failure> {
    app.operate(&caller, "delete_model", &name, None, Command::DeleteModel { model: name.clone() }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Would it fit?
///
/// A dry run: where a slot of this model would go now, and who would be evicted for it. Nothing is done.
#[utoipa::path(post, path = "/api/v1/models/{name}/fit", tag = "models",
    params(("name" = wire::schema::ModelName, Path), FitQuery),
    responses(
        (status = 200, description = "What would be decided", body = wire::Fit),
        (status = 404, description = "No such model", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn fit(
    State(app): State<App>,
    Named(name): Named<ModelName>,
    Query(query): Query<FitQuery>,
) -> Result<Json<wire::Fit>, Failure> {
    let kind = query.kind.unwrap_or_default();
    let (model, now) = (name.clone(), clock::now());
    let report = app.writer.read(move |state| state.fit(&model, kind, now)).await?;
    let report = report.ok_or_else(|| Failure::unknown(ProblemCode::UnknownModel, &name))?;
    Ok(Json(present::fit(kind, &report)))
}
