//! A client that hides nothing: status, headers and body as they come.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use ureq::http::{HeaderMap, Response};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::Events;

/// A client of one server. It follows the server through restarts: the address is looked up for each request.
#[derive(Clone, Debug)]
pub struct Api {
    base: Arc<RwLock<String>>,
    agent: Agent,
    token: Option<String>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body as JSON; null if it is none.
    pub body: Value,
    /// The body as it came.
    pub text: String,
}

impl Reply {
    /// The same, if the status is this one; else the test has failed, and says what came instead.
    #[track_caller]
    #[must_use]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// The stable code of a problem.
    #[must_use]
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// A header, or nothing.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The `id` of what came back.
    #[track_caller]
    #[must_use]
    pub fn id(&self) -> String {
        self.body["id"].as_str().unwrap_or_else(|| panic!("no id in {}", self.text)).to_owned()
    }

    /// The rows of a listing.
    #[track_caller]
    #[must_use]
    pub fn rows(&self) -> &[Value] {
        self.body.as_array().unwrap_or_else(|| panic!("no list: {}", self.text))
    }
}

impl Api {
    /// A client of whatever the base says.
    #[must_use]
    pub fn new(base: Arc<RwLock<String>>) -> Self {
        Self::with_tls(base, TlsConfig::default())
    }

    /// A client that trusts one certificate, given as PEM.
    #[must_use]
    pub fn trusting(base: Arc<RwLock<String>>, certificate: &str) -> Self {
        Self::with_tls(base, tls(certificate, None))
    }

    /// The same client on connections of its own, which trust one certificate and show another one, with its key.
    #[must_use]
    pub fn showing(&self, trusted: &str, certificate: &str, key: &str) -> Self {
        let shown = Certificate::from_pem(certificate.as_bytes()).expect("a PEM certificate");
        let key = PrivateKey::from_pem(key.as_bytes()).expect("a PEM key");
        let shown = ClientCert::new_with_certs(&[shown], key);
        Self { token: self.token.clone(), ..Self::with_tls(self.base.clone(), tls(trusted, Some(shown))) }
    }

    fn with_tls(base: Arc<RwLock<String>>, tls: TlsConfig) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .tls_config(tls)
            .allow_non_standard_methods(true)
            .max_idle_connections(256)
            .max_idle_connections_per_host(256)
            .timeout_global(Some(Duration::from_secs(90)))
            .build();
        Self { base, agent: config.into(), token: None }
    }

    /// The same client with a token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The same client without the connections that it has open.
    #[must_use]
    pub fn on_new_connections(&self) -> Self {
        Self { agent: Agent::new_with_config(self.agent.config().clone()), ..self.clone() }
    }

    /// Where the server is: `http://127.0.0.1:41234`.
    #[must_use]
    pub fn base(&self) -> String {
        self.base.read().unwrap().clone()
    }

    /// A request to be completed.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str) -> Ask<'_> {
        let headers = self.token.iter().map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        Ask { api: self, method: method.to_owned(), path: path.to_owned(), headers: headers.collect(), body: None }
    }

    /// GET.
    #[track_caller]
    #[must_use]
    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path).send()
    }

    /// POST of a JSON body.
    #[track_caller]
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path).json(body).send()
    }

    /// PUT of a JSON body.
    #[track_caller]
    #[must_use]
    pub fn put(&self, path: &str, body: &Value) -> Reply {
        self.ask("PUT", path).json(body).send()
    }

    /// DELETE.
    #[track_caller]
    #[must_use]
    pub fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path).send()
    }

    /// Adds a model to the catalogue.
    #[track_caller]
    pub fn model(&self, name: &str, mut about: Value) {
        if about["runtime"].is_null() {
            about["runtime"] = json!("vllm");
        }
        let reply = self.put(&format!("/api/v1/models/{}", name.replace('/', "%2F").replace(' ', "%20")), &about);
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text);
    }

    /// Submits a lease on a model.
    #[track_caller]
    #[must_use]
    pub fn lease(&self, model: &str) -> Reply {
        self.post("/api/v1/workloads", &json!({ "model": model }))
    }

    /// Submits a job of a model.
    #[track_caller]
    #[must_use]
    pub fn job(&self, model: &str) -> Reply {
        self.post("/api/v1/workloads", &json!({ "model": model, "kind": "job" }))
    }

    /// A workload as it is now.
    #[track_caller]
    #[must_use]
    pub fn workload(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/workloads/{id}")).is(200).body
    }

    /// The state of a workload.
    #[track_caller]
    #[must_use]
    pub fn state(&self, id: &str) -> String {
        self.workload(id)["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Completes an attempt of a workload.
    #[track_caller]
    #[must_use]
    pub fn complete(&self, id: &str, attempt: u64) -> Reply {
        self.post(&format!("/api/v1/workloads/{id}/complete"), &json!({ "attempt": attempt }))
    }

    /// Takes a workload back.
    #[track_caller]
    #[must_use]
    pub fn cancel(&self, id: &str) -> Reply {
        self.delete(&format!("/api/v1/workloads/{id}"))
    }

    /// Makes a token and returns its secret.
    #[track_caller]
    #[must_use]
    pub fn token(&self, name: &str, role: &str, runner: Option<&str>) -> String {
        let mut body = json!({ "name": name, "role": role });
        if let Some(runner) = runner {
            body["runner_id"] = json!(runner);
        }
        self.token_with(&body)
    }

    /// Makes a token as the body says, and returns its secret.
    #[track_caller]
    #[must_use]
    pub fn token_with(&self, body: &Value) -> String {
        let made = self.post("/api/v1/tokens", body).is(201);
        made.body["token"].as_str().expect("a secret").to_owned()
    }
}

fn tls(trusted: &str, shown: Option<ClientCert>) -> TlsConfig {
    let trusted = Certificate::from_pem(trusted.as_bytes()).expect("a PEM certificate");
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&[trusted]))
        .client_cert(shown)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

/// A request to be completed and sent.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    api: &'a Api,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Ask<'_> {
    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.bytes("application/json", body.to_string().into_bytes())
    }

    /// With a body of any kind.
    #[must_use]
    pub fn bytes(mut self, media_type: &str, body: Vec<u8>) -> Self {
        self.body = Some(body);
        self.header("Content-Type", media_type)
    }

    /// Sends it. The test fails if there is no answer at all.
    #[track_caller]
    #[must_use]
    pub fn send(self) -> Reply {
        let what = format!("{} {}", self.method, self.path);
        self.try_send().unwrap_or_else(|error| panic!("{what}: no answer: {error}"))
    }

    /// Sends it. An error if there is no answer: the server was killed, or the connection cut.
    pub fn try_send(self) -> Result<Reply, ureq::Error> {
        let response = self.open()?;
        let (parts, mut body) = response.into_parts();
        let bytes = body.with_config().limit(u64::MAX).read_to_vec()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body, text })
    }

    /// Sends it and looks at the status only: an answer that never ends is no trouble.
    #[track_caller]
    #[must_use]
    pub fn status(self) -> u16 {
        let what = format!("{} {}", self.method, self.path);
        self.open().unwrap_or_else(|error| panic!("{what}: no answer: {error}")).status().as_u16()
    }

    /// Sends it and reads the answer as it comes. The test fails if it is none.
    #[track_caller]
    #[must_use]
    pub fn reader(self) -> impl std::io::Read + Send + use<> {
        let response = self.open().expect("an answer");
        assert_eq!(response.status().as_u16(), 200);
        response.into_body().into_reader()
    }

    /// Sends it and reads the answer as a stream of events.
    #[track_caller]
    #[must_use]
    pub fn stream(self) -> Events {
        let response = self.open().expect("an answer");
        assert_eq!(response.status().as_u16(), 200);
        Events::new(response.into_body().into_reader())
    }

    fn open(self) -> Result<Response<Body>, ureq::Error> {
        let url = format!("{}{}", self.api.base(), self.path);
        // Any method may have a body here, or none: tests send mistakes, too.
        let mut request = ureq::http::Request::builder().method(self.method.as_str()).uri(url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let forbids_body = matches!(self.method.as_str(), "GET" | "DELETE" | "HEAD" | "OPTIONS" | "TRACE");
        match &self.body {
            Some(body) if forbids_body => self.despite(body),
            Some(body) => self.api.agent.run(request.body(body.as_slice())?),
            None => self.api.agent.run(request.body(())?),
        }
    }

    /// A body with a method that usually has none.
    fn despite(&self, body: &[u8]) -> Result<Response<Body>, ureq::Error> {
        let url = format!("{}{}", self.api.base(), self.path);
        let mut request = match self.method.as_str() {
            "DELETE" => self.api.agent.delete(url),
            "GET" => self.api.agent.get(url),
            other => panic!("no body with {other}"),
        };
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.force_send_body().send(body)
    }
}
