//! The whole API on one screen: every route, and what it asks of its caller.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{any, delete, get, post};
use berth_gateway::GatewayConfig;
use berth_wire::ProblemCode;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::gateway::OwnGateway;
use super::layers::authentication::{RouteAccess, authorize};
use super::layers::refusal_audit::AuditedRequest;
use super::layers::unread_body::refuse;
use super::layers::{around_handler, response_headers};
use super::problem::Failure;
use super::{
    App, admin, agents, backup, catalogue, estimates, events, explain, fleet, health, history, joining, logs, machines,
    openapi, requests, scheduler, slots, workload_logs, workloads,
};
use crate::trust::Access;

/// Workloads, models, runners and the server's own affairs, by what they ask of their caller.
fn versioned() -> [(Access, OpenApiRouter<App>); 6] {
    let public = OpenApiRouter::new().routes(routes!(health::version));
    let read = OpenApiRouter::new()
        .routes(routes!(workloads::list))
        .routes(routes!(workloads::show))
        .routes(routes!(explain::explain))
        .routes(routes!(workload_logs::read))
        .routes(routes!(catalogue::list))
        .routes(routes!(catalogue::show))
        .routes(routes!(catalogue::fit))
        .routes(routes!(fleet::list))
        .routes(routes!(fleet::show))
        .routes(routes!(fleet::status))
        .routes(routes!(history::show));
    let submit = OpenApiRouter::new()
        .routes(routes!(workloads::submit))
        .routes(routes!(workloads::cancel))
        .routes(routes!(workloads::heartbeat))
        .routes(routes!(workloads::complete))
        .routes(routes!(estimates::make));
    let operate = OpenApiRouter::new()
        .routes(routes!(catalogue::put))
        .routes(routes!(catalogue::remove))
        .routes(routes!(fleet::cordon))
        .routes(routes!(fleet::uncordon))
        .routes(routes!(fleet::drain))
        .routes(routes!(fleet::forget))
        .routes(routes!(fleet::cordon_device))
        .routes(routes!(fleet::uncordon_device))
        .routes(routes!(machines::judge))
        .routes(routes!(admin::create_token))
        .routes(routes!(admin::list_tokens))
        .routes(routes!(admin::revoke_token))
        .routes(routes!(admin::rotate_token))
        .routes(routes!(admin::audit))
        .routes(routes!(admin::log_level))
        .routes(routes!(admin::set_log_level))
        .routes(routes!(backup::take))
        .routes(routes!(history::go_on));
    let own_runner = OpenApiRouter::new()
        .routes(routes!(agents::report))
        .routes(routes!(agents::desired))
        .routes(routes!(joining::rotate_own_token))
        .routes(routes!(requests::answer));
    [
        (Access::Public, public),
        (Access::Read, read),
        (Access::Submit, submit),
        (Access::Operate, operate),
        (Access::OwnRunner, own_runner),
        (Access::Join, OpenApiRouter::new().routes(routes!(joining::join))),
    ]
}

/// What the scheduler did and sees.
fn scheduling() -> [(Access, OpenApiRouter<App>); 2] {
    let read = OpenApiRouter::new()
        .routes(routes!(slots::list))
        .routes(routes!(slots::show))
        .routes(routes!(logs::read))
        .routes(routes!(scheduler::decisions))
        .routes(routes!(scheduler::queue))
        .routes(routes!(scheduler::ledger))
        .routes(routes!(scheduler::demand))
        .routes(routes!(events::follow));
    let operate = OpenApiRouter::new().routes(routes!(slots::stop)).routes(routes!(slots::force_release));
    [(Access::Read, read), (Access::Operate, operate)]
}

/// The same without the prefix, for people with curl.
fn short() -> [(Access, Router<App>); 2] {
    let read = Router::new()
        .route("/scheduler/slots", get(slots::list))
        .route("/scheduler/slots/{id}", get(slots::show))
        .route("/scheduler/slots/{id}/logs", get(logs::read))
        .route("/scheduler/decisions", get(scheduler::decisions))
        .route("/scheduler/queue", get(scheduler::queue))
        .route("/scheduler/ledger", get(scheduler::ledger))
        .route("/scheduler/demand", get(scheduler::demand))
        .route("/scheduler/events", get(events::follow));
    let operate = Router::new()
        .route("/scheduler/slots/{id}", delete(slots::stop))
        .route("/scheduler/slots/{id}/force-release", post(slots::force_release));
    [(Access::Read, read), (Access::Operate, operate)]
}

/// Routes of the server itself.
fn unversioned() -> [(Access, OpenApiRouter<App>); 2] {
    let public = OpenApiRouter::new().routes(routes!(health::healthz)).routes(routes!(health::readyz));
    let read = OpenApiRouter::new().routes(routes!(health::metrics));
    [(Access::Public, public), (Access::Read, read)]
}

/// Every route behind its gate, and the description of all of them.
fn assemble(app: &App) -> (Router<App>, OpenApi) {
    let layers = |access| from_fn_with_state(RouteAccess { app: app.clone(), access }, around_handler);
    let groups = versioned().into_iter().chain(scheduling()).chain(unversioned());
    let described = groups.fold(OpenApiRouter::new(), |all, (access, routes)| {
        all.merge(openapi::describe(routes, access).route_layer(layers(access)))
    });
    let (routes, description) = described.split_for_parts();
    let routes =
        short().into_iter().fold(routes, |all, (access, routes)| all.merge(routes.route_layer(layers(access))));
    (routes, openapi::finish(description))
}

/// The description of the API, as it is served.
#[must_use]
pub fn description(app: &App) -> OpenApi {
    assemble(app).1
}

/// The server's routes.
pub fn router(app: App, gateway: Option<(&OwnGateway, &GatewayConfig)>) -> Router {
    let (routes, description) = assemble(&app);
    let routes = match gateway {
        Some((gateway, config)) => routes.merge(super::gateway::routes(&app, gateway, config)),
        None => routes,
    };
    let layers = |access| from_fn_with_state(RouteAccess { app: app.clone(), access }, around_handler);
    let documents = openapi::documents(&description).route_layer(layers(Access::Public));
    // What is not there is shown to nobody who may not look.
    let nothing = any(not_found).layer(layers(Access::Read));
    routes
        .merge(documents)
        .fallback_service(nothing.with_state(app.clone()))
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

async fn not_found(uri: Uri) -> Failure {
    let detail = format!("nothing at {}: see /docs for what there is", uri.path());
    Failure::new(ProblemCode::UnknownRoute, detail)
}

/// A wrong method tells nobody what is there who may not look.
async fn wrong_method(State(app): State<App>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let route = RouteAccess { app, access: Access::Read };
    let audited = AuditedRequest::new(&parts);
    let failure = authorize(&route, &mut parts).await.err().unwrap_or_else(|| {
        let detail = "not with this method: the Allow header names those that work";
        Failure::new(ProblemCode::WrongMethod, detail)
    });
    let mut response = refuse(failure, body, parts.version).await;
    audited.record_refusal(&route.app, &response);
    response_headers::add(response.headers_mut(), &route.app);
    response
}
