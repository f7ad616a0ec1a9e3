//! The client against a real server.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{OriginalUri, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use berth_client::{Client, ClientError, routes};
use berth_domain::{Epoch, Incarnation, ModelName, Revision, RunnerId, RuntimeName, Span};
use berth_wire::{
    DesiredQuery, DrainQuery, FitQuery, ModelRequest, PageQuery, Problem, ProblemCode, SubmitRequest, TimeSpan,
    WorkloadFilter,
};
use serde_json::json;
use tokio::net::TcpListener;

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn client(base: &str) -> Client {
    Client::builder(base).token(Some("berth_s3cret".into())).build().unwrap()
}

fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

/// Says in a problem what was asked for: whatever the method, it comes back as an error to look at.
async fn echo(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
    let detail = format!(
        "{} {} | {} | {} | {}",
        parts.method,
        parts.uri,
        header("authorization"),
        header("idempotency-key"),
        String::from_utf8_lossy(&body)
    );
    (StatusCode::IM_A_TEAPOT, Json(Problem::new(418, "echo", "Echo", detail))).into_response()
}

fn said<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> String {
    answer.unwrap_err().problem().unwrap().detail.clone()
}

#[tokio::test]
async fn every_route_is_asked_for_as_it_is_designed() {
    let client = client(&serve(Router::new().fallback(echo)).await);
    let runner = RunnerId::new("rack 1/box").unwrap();
    let model = name("Qwen/Qwen2.5-VL-7B-Instruct");
    let wait = Some(TimeSpan(Span::from_secs(30)));
    let submitted = client.submit(&SubmitRequest::lease(model.clone()), Some("k1"), wait).await;
    assert_eq!(
        said(submitted),
        "POST /api/v1/workloads?wait=30s | Bearer berth_s3cret | k1 | {\"model\":\"Qwen/Qwen2.5-VL-7B-Instruct\"}"
    );
    let asked = |text: String| text.split(" | ").next().unwrap().to_owned();
    let filter = WorkloadFilter { model: Some(name("a/b c")), ..WorkloadFilter::default() };
    assert_eq!(asked(said(client.workloads(&filter).await)), "GET /api/v1/workloads?model=a%2Fb+c");
    assert_eq!(
        asked(said(client.fit(&model, FitQuery::default()).await)),
        "POST /api/v1/models/Qwen%2FQwen2.5-VL-7B-Instruct/fit"
    );
    let request = ModelRequest::new(RuntimeName::new("vllm").unwrap());
    assert_eq!(asked(said(client.put_model(&name("50%?#x"), &request).await)), "PUT /api/v1/models/50%25%3F%23x");
    let deadline = Some(TimeSpan(Span::from_secs(600)));
    assert_eq!(
        asked(said(client.drain(&runner, DrainQuery { deadline }).await)),
        "POST /api/v1/runners/rack%201%2Fbox/drain?deadline=10m"
    );
    let query = DesiredQuery {
        epoch: Some(Epoch::new(2)),
        after: Some(Revision::new(7)),
        wait,
        incarnation: Incarnation::new(3),
        obeyed: None,
    };
    assert_eq!(
        asked(said(client.desired(&runner, &query).await)),
        "GET /api/v1/runners/rack%201%2Fbox/desired?epoch=2&after=7&wait=30s&incarnation=3"
    );
    assert_eq!(asked(said(client.health().await)), "GET /healthz");
    assert_eq!(asked(said(client.ledger().await)), "GET /api/v1/scheduler/ledger");
    assert_eq!(asked(said(client.tokens().await)), "GET /api/v1/tokens");
}

#[tokio::test]
async fn a_base_with_a_path_is_kept() {
    let client = client(&format!("{}/berth/", serve(Router::new().fallback(echo)).await));
    assert!(said(client.ledger().await).starts_with("GET /berth/api/v1/scheduler/ledger"));
    assert!(client.base().ends_with("/berth"));
}

#[tokio::test]
async fn a_listing_comes_with_its_revision_and_its_text() {
    let list = || async { ([("berth-revision", "42")], Json(json!([{"id": "x", "new_field": 1}]))) };
    let router = Router::new().route("/api/v1/tokens", get(list));
    let models = || async { ([("Berth-Revision", "43")], Json(json!([]))) };
    let client = client(&serve(router.route("/api/v1/models", get(models))).await);
    assert_eq!(client.models(&PageQuery::default()).await.unwrap(), (vec![], Revision::new(43)));
    let answer = client.ask(&routes::models(&PageQuery::default())).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.revision), ("[]", Revision::new(43)));
    let error = client.tokens().await.unwrap_err();
    assert!(matches!(error, ClientError::NotBerth { .. }), "a token without a role is none of ours: {error}");
}

#[tokio::test]
async fn an_answer_without_a_body_is_done() {
    let router =
        Router::new().route("/api/v1/models/{name}", axum::routing::delete(|| async { StatusCode::NO_CONTENT }));
    client(&serve(router).await).delete_model(&name("a/b")).await.unwrap();
}

#[tokio::test]
async fn what_the_server_says_is_told_from_what_others_say() {
    let refuse = || async {
        let problem = Problem::new(404, "unknown_model", "Not Found", "no model m");
        (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "application/problem+json")], Json(problem))
    };
    let router = Router::new()
        .route("/api/v1/models/{name}", get(refuse))
        .route("/api/v1/scheduler/ledger", get(|| async { Html("<h1>It works!</h1>") }))
        .fallback(|| async { (StatusCode::NOT_FOUND, Html("<h1>404</h1>")) });
    let client = client(&serve(router).await);
    let error = client.model(&name("m")).await.unwrap_err();
    assert!(error.is_status(404) && error.is_code(ProblemCode::UnknownModel));
    assert_eq!(error.to_string(), "no model m (unknown_model)");
    for error in [client.ledger().await.unwrap_err(), client.health().await.map(|_| ()).unwrap_err()] {
        assert!(matches!(error, ClientError::NotBerth { .. }), "{error:?}");
        assert!(error.to_string().contains("check --server"), "{error}");
    }
}

#[tokio::test]
async fn nobody_there_says_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&base).ledger().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&base) && text.contains("berth serve") && text.contains("--server"), "{text}");
    let no_such_host = Client::builder("http://no-such-host.invalid").build().unwrap().ledger().await.unwrap_err();
    assert!(matches!(no_such_host, ClientError::Unreachable { .. }), "{no_such_host:?}");
}

#[tokio::test]
async fn bad_addresses_and_files_are_refused_before_anything_is_sent() {
    for bad in ["", "localhost:8080", "ftp://x", "http://", "http://user:pass@host", "not a url"] {
        let error = Client::builder(bad).build().unwrap_err();
        assert!(matches!(error, ClientError::BadUrl { .. }), "{bad:?}: {error:?}");
    }
    let error = Client::builder("http://h").token(Some("a\nb".into())).build().unwrap_err();
    assert_eq!(error, ClientError::BadToken);
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path(), std::path::Path::new("/no/such/file")] {
        let error = Client::builder("http://h").ca(Some(path.to_owned())).build().unwrap_err();
        assert!(matches!(error, ClientError::BadCa { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn the_token_is_never_shown_and_never_sent_elsewhere() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = |State(seen): State<Arc<AtomicUsize>>| async move { seen.fetch_add(1, Ordering::SeqCst).to_string() };
    let elsewhere = serve(Router::new().fallback(count).with_state(seen.clone())).await;
    let to = format!("{elsewhere}/api/v1/scheduler/ledger");
    let router = Router::new().fallback(move || {
        let to = to.clone();
        async move { Redirect::temporary(&to) }
    });
    let client = client(&serve(router).await);
    assert!(!format!("{client:?}").contains("s3cret"));
    let builder = Client::builder("http://h").token(Some("berth_s3cret".into()));
    assert!(!format!("{builder:?}").contains("s3cret"));
    let error = client.ledger().await.unwrap_err();
    assert!(matches!(error, ClientError::NotBerth { .. }), "{error:?}");
    assert!(!format!("{error:?}").contains("s3cret"));
    assert_eq!(seen.load(Ordering::SeqCst), 0, "a redirect was followed");
}

#[tokio::test]
async fn a_token_is_not_sent_over_plain_http_beyond_this_machine() {
    let token = || Some("berth_s3cret".into());
    for private in
        ["http://127.0.0.1:1", "http://127.9.9.9:1", "http://[::1]:1", "http://LOCALHOST:1", "https://berth.example"]
    {
        assert!(Client::builder(private).token(token()).build().is_ok(), "{private}");
    }
    for open in [
        "http://10.7.0.9:8080",
        "http://berth.example:8080",
        "http://[2001:db8::1]:8080",
        "http://0.0.0.0:8080",
        "http://localhost.example:8080",
        "http://a.localhost:8080",
        "http://127.0.0.1.example:8080",
    ] {
        let error = Client::builder(open).token(token()).build().unwrap_err();
        assert!(matches!(error, ClientError::TokenOverHttp { .. }), "{open}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(open) && text.contains("https") && text.contains("--allow-token-over-http"), "{text}");
        assert!(!text.contains("s3cret") && !error.is_passing(), "{text}");
        // Without a token there is nothing to protect; a token that comes later, from joining or rotating, is refused.
        let client = Client::builder(open).build().unwrap();
        let error = client.set_token(&"berth_s3cret".into()).unwrap_err();
        assert!(matches!(error, ClientError::TokenOverHttp { .. }), "{open}: {error:?}");
        assert!(Client::builder(open).token(token()).allow_token_over_http(true).build().is_ok(), "{open}");
    }
}

#[tokio::test]
async fn a_wait_is_waited_for_and_nothing_else_is() {
    let slow = |uri: OriginalUri| async move {
        let wait = if uri.query().is_some_and(|query| query.contains("wait")) { 900 } else { 30_000 };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        (StatusCode::NOT_FOUND, Json(Problem::new(404, "waited", "Not Found", "waited")))
    };
    let base = serve(Router::new().fallback(slow)).await;
    let client = Client::builder(&base).timeout(Duration::from_millis(400)).build().unwrap();
    let wait = Some(TimeSpan(Span::from_secs(1)));
    let answer = client.submit(&SubmitRequest::lease(name("m")), None, wait).await.unwrap_err();
    assert!(answer.problem().is_some_and(|problem| problem.code == "waited"), "a long poll was cut off: {answer}");
    let started = std::time::Instant::now();
    let error = client.ledger().await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// Closes the first `failures` connections after it read the request, then answers.
async fn flaky(failures: usize) -> (String, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 65_536];
            let _ = stream.read(&mut buffer).await;
            if counted.fetch_add(1, Ordering::SeqCst) < failures {
                continue;
            }
            let body = serde_json::to_string(&Problem::new(404, "reached", "Not Found", "reached")).unwrap();
            let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\nconnection: close\r\n";
            let _ = stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await;
        }
    });
    (base, count)
}

#[tokio::test]
async fn only_what_may_be_repeated_is_sent_again() {
    let request = SubmitRequest::lease(name("m"));
    let model = ModelRequest::new(RuntimeName::new("vllm").unwrap());
    let runner = RunnerId::new("r1").unwrap();
    let report: berth_wire::ReportRequest = serde_json::from_value(json!({"machine_id": "m", "boot_id": "b"})).unwrap();

    for what in ["read", "put", "submit with a key"] {
        let (base, count) = flaky(2).await;
        let client = client(&base);
        let error = match what {
            "read" => client.ledger().await.unwrap_err(),
            "put" => client.put_model(&name("m"), &model).await.unwrap_err(),
            _ => client.submit(&request, Some("k"), None).await.unwrap_err(),
        };
        assert!(error.problem().is_some_and(|problem| problem.code == "reached"), "{what}: {error}");
        assert_eq!(count.load(Ordering::SeqCst), 3, "{what}");
    }
    for what in ["submit without a key", "report", "cordon", "forget"] {
        let (base, count) = flaky(2).await;
        let client = client(&base);
        let reason = berth_wire::ForgetRequest { reason: "sold".parse().unwrap() };
        let error = match what {
            "report" => client.report(&runner, &report).await.unwrap_err(),
            "cordon" => client.cordon(&runner).await.unwrap_err(),
            "forget" => client.forget(&runner, &reason).await.unwrap_err(),
            _ => client.submit(&request, None, None).await.unwrap_err(),
        };
        assert!(matches!(error, ClientError::Interrupted { .. }), "{what}: {error:?}");
        assert_eq!(count.load(Ordering::SeqCst), 1, "{what} was sent twice");
    }
    let (base, count) = flaky(100).await;
    let error = client(&base).ledger().await.unwrap_err();
    assert!(matches!(error, ClientError::Interrupted { .. }), "{error:?}");
    assert_eq!(count.load(Ordering::SeqCst), 3, "it gives up");
}

#[tokio::test]
async fn a_server_that_cannot_work_says_so_without_failing() {
    let ready = || async { (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"ready": false, "reasons": ["no room"]}))) };
    let client = client(&serve(Router::new().route("/readyz", get(ready))).await);
    let answer = client.ready().await.unwrap();
    assert!(!answer.ready);
    assert_eq!(answer.reasons, ["no room"]);
}

#[tokio::test]
async fn bodies_and_headers_arrive_as_json() {
    let check = |Path(name): Path<String>, headers: HeaderMap, Json(body): Json<serde_json::Value>| async move {
        assert_eq!(headers[header::CONTENT_TYPE], "application/json");
        let agent = headers[header::USER_AGENT].to_str().unwrap();
        (StatusCode::CONFLICT, Json(Problem::new(409, "seen", "Conflict", format!("{name} {body} {}", &agent[..6]))))
    };
    let router = Router::new()
        .route("/api/v1/models/{name}", put(check))
        .route("/api/v1/tokens", post(|| async { StatusCode::OK }));
    let client = client(&serve(router).await);
    let request = ModelRequest::new(RuntimeName::new("vllm").unwrap());
    let text = said(client.put_model(&name("a/b"), &request).await);
    assert!(text.starts_with("a/b {") && text.contains("\"runtime\":\"vllm\"") && text.ends_with("berth/"), "{text}");
}

/// A TLS server with a certificate of its own CA, and the file that has the CA.
async fn serve_tls() -> (SocketAddr, tempfile::NamedTempFile) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    berth_client::install_crypto_provider();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ca.pem()).unwrap();

    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = vec![0; 65_536];
                let _ = stream.read(&mut buffer).await;
                let body = "{\"status\": \"ok\"}";
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ";
                let _ = stream.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (address, file)
}

#[tokio::test]
async fn a_server_is_trusted_by_its_ca_and_not_otherwise() {
    let (address, ca) = serve_tls().await;
    let base = format!("https://{address}");
    let trusting = Client::builder(&base).ca(Some(ca.path().to_owned())).build().unwrap();
    assert_eq!(trusting.health().await.unwrap().status, "ok");

    // Another CA is there, so that this does not depend on what the system trusts.
    let (_, other) = serve_tls().await;
    let doubting = Client::builder(&base).ca(Some(other.path().to_owned())).build().unwrap();
    let error = doubting.health().await.unwrap_err();
    assert!(matches!(error, ClientError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains("--ca"), "{error}");

    let plain = Client::builder(&format!("http://{address}")).build().unwrap();
    assert!(plain.health().await.is_err(), "TLS is not spoken to by HTTP");
}
