//! The description of the API: what the handlers say of themselves, and what is true of all of them.

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::{Redirect, Response};
use axum::routing::get;
use berth_wire::{PROBLEM_MEDIA_TYPE, Problem};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, InfoBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::App;
use crate::trust::Access;

const SCHEME: &str = "token";

/// Adds to each route of a group what its gate, its body and its names may answer.
pub(super) fn describe(mut routes: OpenApiRouter<App>, access: Access) -> OpenApiRouter<App> {
    for item in routes.get_openapi_mut().paths.paths.values_mut() {
        for (operation, changes) in operations(item) {
            describe_operation(operation, changes, access);
        }
    }
    routes
}

/// The operations of a path, and whether each changes anything.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&mut Operation, bool)> {
    let reading = item.get.iter_mut().map(|operation| (operation, false));
    let changing = [&mut item.put, &mut item.post, &mut item.delete];
    reading.chain(changing.into_iter().flatten().map(|operation| (operation, true)))
}

fn describe_operation(operation: &mut Operation, changes: bool, access: Access) {
    let mut add = |status: &str, description: &str| {
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| problem(description));
    };
    add("403", "Not allowed for this caller");
    add("429", "Too many requests, or too much waits; Retry-After says when to try again");
    add("503", "Not now: no space, too busy, or shutting down");
    if access != Access::Public {
        add("401", "No token, or a wrong one");
    }
    if operation.request_body.is_some() {
        let of_body = [
            ("400", "Not JSON, or cut off"),
            ("408", "The body did not arrive in time"),
            ("413", "The body is too large"),
            ("415", "Not application/json"),
        ];
        for (status, description) in of_body {
            operation.responses.responses.entry(status.to_owned()).or_insert_with(|| problem(description));
        }
    }
    let named = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    if operation.request_body.is_some() || named || changes {
        let wrong = || problem("A field, a parameter or a name is wrong; `field` says which");
        operation.responses.responses.entry("422".to_owned()).or_insert_with(wrong);
    }
    if access != Access::Public {
        operation.security = Some(vec![SecurityRequirement::new(SCHEME, Vec::<String>::new())]);
    }
}

fn problem(description: &str) -> RefOr<utoipa::openapi::Response> {
    let schema = Ref::from_schema_name(Problem::name());
    let content = Content::new(Some(RefOr::Ref(schema)));
    RefOr::T(ResponseBuilder::new().description(description).content(PROBLEM_MEDIA_TYPE, content).build())
}

/// Completes the description with what is true of all of it.
pub(super) fn finish(mut api: OpenApi) -> OpenApi {
    api.info = InfoBuilder::new()
        .title("Berth")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Places model workloads on GPUs. Sizes go out as whole bytes and come in as such or as text (\"74.49GiB\"). \
             Every answer carries the revision in its Berth-Revision header. Errors are application/problem+json with a \
             stable code.",
        ))
        .build();
    let components = api.components.get_or_insert_default();
    components.schemas.entry(Problem::name().into_owned()).or_insert_with(Problem::schema);
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.security_schemes.insert(SCHEME.to_owned(), RefOr::T(bearer));
    api
}

/// What the page with the description may load: its own files, and pictures that are written into its style sheet. Swagger
/// UI sets styles on its elements, which counts as inline.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The description itself, and a page that shows it. The page needs nothing from elsewhere.
///
/// The description is written once. Every answer shares its bytes, so that many clients who ask for it and do not read
/// it cost no memory. The files of the page are part of the program.
pub(super) fn documents(api: &OpenApi) -> Router<App> {
    let description = Bytes::from(serde_json::to_vec(api).unwrap_or_default());
    let page = SwaggerUi::new("/docs").config(Config::from("/openapi.json").validator_url("none"));
    Router::from(page)
        .layer(map_response(async |mut response: Response| {
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, PAGE_POLICY);
            response
        }))
        .route("/openapi.json", get(move || async { ([(header::CONTENT_TYPE, "application/json")], description) }))
        .route("/", get(|| async { Redirect::temporary("/docs") }))
}
