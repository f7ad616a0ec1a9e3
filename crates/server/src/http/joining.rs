//! How an agent becomes part of the fleet, and how it keeps its token fresh.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use berth_domain::RunnerId;
use berth_wire as wire;
use berth_wire::JoinRequest;
use berth_wire::ProblemCode;

use super::App;
use super::body::{Json, Named};
use super::problem::Failure;
use crate::clock;
use crate::trust::Caller;
use crate::trust::runner_certificate::ClientCertificate;

/// Join the fleet
///
/// Exchanges a join token for a token of one runner, with what the join token grants. The secret is in the answer, once;
/// an agent that lost the answer asks again with the same `key`.
#[utoipa::path(post, path = "/api/v1/join", tag = "agents", request_body = JoinRequest,
    responses(
        (status = 201, description = "The runner's token and its secret", body = wire::NewToken),
        (status = 403, description = "The join token is used up, or for another runner, or the agent has no certificate of this runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "Such a runner is known already", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn join(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    certificate: Option<Extension<Arc<ClientCertificate>>>,
    Json(request): Json<JoinRequest>,
) -> Result<Response, Failure> {
    let Some(join_token) = caller.token else {
        let detail = "a server without tokens needs no join token: start the agent without --join";
        return Err(Failure::new(ProblemCode::NoTokens, detail));
    };
    app.expect_certificate_of(&request.runner_id, certificate.as_ref().map(|Extension(shown)| shown.as_ref()))?;
    let runner = request.runner_id.clone();
    let is_known = app.writer.read(move |state| state.runner(&runner).is_some()).await?;
    let joined = app.tokens.join(join_token, &request, is_known, app.runner_token_lifetime(), clock::now());
    let joined = joined.map_err(Failure::from);
    app.put_on_record(&caller, "join", &request.runner_id, None, &joined);
    Ok((StatusCode::CREATED, Json(joined?)).into_response())
}

/// Rotate a runner's own token
///
/// Makes another secret for the token with which the agent asks. The old one is good until the new one is first used.
#[utoipa::path(post, path = "/api/v1/runners/{id}/token", tag = "agents",
    params(("id" = wire::schema::RunnerId, Path)),
    responses((status = 200, description = "The token and its new secret", body = wire::NewToken)))]
pub(super) async fn rotate_own_token(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(runner): Named<RunnerId>,
) -> Result<Json<wire::NewToken>, Failure> {
    let Some(token) = caller.token else {
        let detail = format!("a server without tokens has none for runner {runner}");
        return Err(Failure::new(ProblemCode::NoTokens, detail));
    };
    Ok(Json(app.tokens.rotate(token, clock::now())?))
}
