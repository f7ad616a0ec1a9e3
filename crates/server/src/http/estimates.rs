//! Estimates of a model's memory.

use axum::extract::State;
use berth_domain::Arg;
use berth_estimate::launch;
use berth_wire as wire;
use berth_wire::EstimateRequest;
use berth_wire::ProblemCode;

use super::App;
use super::body::Json;
use super::problem::Failure;

/// Estimate how much memory a model needs
///
/// From the headers of its files, for each GPU count, with what it is made of. Nothing is kept. The server reads files
/// below `estimate.model_dirs` of its configuration only; with `runner`, its agent reads its own disk, below its
/// `agent.model_dirs`. Whoever only looks (a viewer) may not make it read its disk.
#[utoipa::path(post, path = "/api/v1/estimate", tag = "models", request_body = EstimateRequest,
    responses(
        (status = 200, description = "The estimate", body = wire::Estimate),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 502, description = "The runner's agent answered with something else", body = wire::Problem, content_type = "application/problem+json"),
        (status = 504, description = "The runner's agent did not answer", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn make(
    State(app): State<App>,
    Json(request): Json<EstimateRequest>,
) -> Result<Json<wire::Estimate>, Failure> {
    app.find_reader(&request).await?;
    let estimate = app.estimator.estimate(&request).await?;
    let args = launch::arguments(&estimate).into_iter().map(Arg::new).collect::<Result<_, _>>();
    let internal = |error: berth_domain::NameError| Failure::new(ProblemCode::Internal, error.to_string());
    Ok(Json(wire::Estimate { args: args.map_err(internal)?, ..wire::Estimate::of(request.file, &estimate) }))
}

impl App {
    /// Whether somebody is there to read the files of a model.
    pub(super) async fn find_reader(&self, request: &EstimateRequest) -> Result<(), Failure> {
        let Some(runner) = &request.runner else { return Ok(()) };
        self.see_fleet().await;
        self.expect_answers_of(runner)
    }
}
