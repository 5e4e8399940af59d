//! The server of the status page: reads the board, asks the task only for the panes of single keys, changes nothing.
//!
//! The one file that knows HTTP. It has a thread of its own, and answers on this machine only unless told otherwise.

mod connections;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use self::connections::Bounded;
use super::board::Board;
use super::history::Resolution;
use super::panes::{KeyPanes, PanesRequest};
use super::snapshot::{Phase, Snapshot};
use super::why::{Asked, why};
use super::{metrics, page};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::Key;
use crate::pipeline::config::{PipelineConfig, WindowConfig};
use crate::pipeline::explain::parse_instant;

/// The longest wait for an answer of the task.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A task that has shown nothing for so long is taken for stuck.
const STUCK_AFTER_MS: i64 = 30_000;
/// Every path there is.
const PATHS: [&str; 8] = [
    "/",
    "/healthz",
    "/metrics",
    "/api/v1/status",
    "/api/v1/history",
    "/api/v1/warnings",
    "/api/v1/panes",
    "/api/v1/why",
];

/// What a server shows.
pub(super) struct Shown {
    pub(super) board: Arc<Board>,
    pub(super) config: Arc<PipelineConfig>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) questions: SyncSender<PanesRequest>,
    /// Whether anything of single keys may be shown.
    pub(super) keys: bool,
}

/// Listens for as long as it lives.
pub(super) struct Server {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    /// Starts to listen. With port 0 any free one is taken.
    pub(super) fn start(address: SocketAddr, shown: Shown) -> Result<Self> {
        let cannot = |error: std::io::Error| cannot_listen(address, error);
        let listener = TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("floodmark-status")
            .enable_all()
            .build()
            .map_err(cannot)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(cannot)?
        };
        let routes = routes(Arc::new(shown));
        runtime.spawn(async move {
            // It ends with the runtime; single connections that break are nobody's concern.
            if let Err(error) = axum::serve(Bounded::new(listener), routes).await {
                tracing::warn!(%error, "the status page is gone; the run goes on");
            }
        });
        Ok(Self { address, _runtime: runtime })
    }

    /// The address that it listens at.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn cannot_listen(address: SocketAddr, error: std::io::Error) -> Error {
    let (message, remedy) = match error.kind() {
        std::io::ErrorKind::AddrInUse => (
            format!("the address of the status page is taken: address={address}"),
            "choose another one with --status or in [status], or stop what listens there; port 0 takes any that is free",
        ),
        std::io::ErrorKind::PermissionDenied => (
            format!("this user may not listen there: address={address}"),
            "choose a port above 1023 with --status or in [status]",
        ),
        _ => (
            format!("the status page cannot listen: address={address}"),
            "choose an address of this machine with --status or in [status]; a port alone is on this machine only",
        ),
    };
    Error::new(ErrorKind::Unavailable, message).with_remedy(remedy).with_source(error)
}

fn routes(shown: Arc<Shown>) -> Router {
    Router::new()
        .route("/", get(show_page))
        .route("/healthz", get(show_health))
        .route("/metrics", get(show_metrics))
        .route("/api/v1/status", get(show_status))
        .route("/api/v1/history", get(show_history))
        .route("/api/v1/warnings", get(show_warnings))
        .route("/api/v1/panes", get(show_panes))
        .route("/api/v1/why", get(show_why))
        .fallback(unknown_path)
        .layer(from_fn(guard))
        .with_state(shown)
}

/// Keeps web pages of elsewhere out, which could have their name point to this machine, and says what a browser may do
/// with an answer.
async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = match host.is_none_or(is_plain_host) {
        true => next.run(request).await,
        false => Refusal::new(
            StatusCode::FORBIDDEN,
            "this host name is not known here",
            "ask by address, or as localhost; a proxy in front of this page has to set Host to one of these",
        )
        .into_response(),
    };
    let headers: [(HeaderName, &str); 4] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; connect-src 'self'; \
             img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// True for an IP address and for `localhost`, with a port or not.
fn is_plain_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// An answer that says what is wrong, as JSON.
struct Refusal {
    status: StatusCode,
    message: String,
    remedy: String,
}

impl Refusal {
    fn new(status: StatusCode, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status, message: message.into(), remedy: remedy.into() }
    }

    /// What was asked for cannot be.
    fn invalid(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message, remedy)
    }

    fn of(error: &Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string(), error.remedy().unwrap_or_default())
    }
}

#[derive(Serialize)]
struct RefusalBody<'a> {
    error: &'a str,
    remedy: &'a str,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json(self.status, &RefusalBody { error: &self.message, remedy: &self.remedy })
    }
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, kind, bytes).into_response(),
        // Plain data always serialises.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn ok(body: &impl Serialize) -> Response {
    json(StatusCode::OK, body)
}

async fn unknown_path() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such page", format!("there are {}", PATHS.join(", ")))
}

async fn show_page(State(shown): State<Arc<Shown>>) -> Response {
    let (snapshot, warnings) = (shown.board.snapshot(), shown.board.warnings());
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (kind, page::html(&snapshot, &warnings)).into_response()
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    phase: Phase,
    shown_ms_ago: i64,
}

async fn show_health(State(shown): State<Arc<Shown>>) -> Response {
    let snapshot = shown.board.snapshot();
    let ago = shown.clock.wall_millis().saturating_sub(snapshot.taken_at_ms).max(0);
    let (code, status) = match snapshot.run.phase {
        Phase::Failed => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
        Phase::Running if ago > STUCK_AFTER_MS => (StatusCode::SERVICE_UNAVAILABLE, "stuck"),
        _ => (StatusCode::OK, "ok"),
    };
    json(code, &Health { status, phase: snapshot.run.phase, shown_ms_ago: ago })
}

async fn show_metrics(State(shown): State<Arc<Shown>>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepted: Vec<&str> = accepted.collect();
    let format = metrics::Format::accepted(&accepted.join(","));
    let (snapshot, warnings) = (shown.board.snapshot(), shown.board.warnings());
    let text = metrics::text(&snapshot, &warnings, shown.clock.wall_millis(), format);
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

/// A snapshot, and how old it is.
#[derive(Serialize)]
struct Shot<'a> {
    now_ms: i64,
    keys_shown: bool,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

async fn show_status(State(shown): State<Arc<Shown>>) -> Response {
    let snapshot = shown.board.snapshot();
    ok(&Shot { now_ms: shown.clock.wall_millis(), keys_shown: shown.keys, snapshot: &snapshot })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    resolution: Option<String>,
}

/// What a query says, or why it cannot be read.
fn parameters<T>(
    query: std::result::Result<Query<T>, axum::extract::rejection::QueryRejection>,
    known: &str,
) -> Result<T, Refusal> {
    let unread = |error: axum::extract::rejection::QueryRejection| {
        Refusal::invalid(error.body_text(), format!("the parameters are {known}"))
    };
    query.map(|Query(query)| query).map_err(unread)
}

type Asks<T> = std::result::Result<Query<T>, axum::extract::rejection::QueryRejection>;

async fn show_history(
    State(shown): State<Arc<Shown>>,
    query: Asks<HistoryQuery>,
) -> Result<Response, Refusal> {
    let query = parameters(query, "resolution")?;
    let resolution = match query.resolution.as_deref() {
        None | Some("seconds") => Resolution::Seconds,
        Some("minutes") => Resolution::Minutes,
        Some(other) => {
            let message = format!("there is no such resolution: {other}");
            return Err(Refusal::invalid(message, "ask for seconds or minutes"));
        }
    };
    Ok(ok(&shown.board.history(resolution)))
}

async fn show_warnings(State(shown): State<Arc<Shown>>) -> Response {
    ok(&*shown.board.warnings())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyQuery {
    operator: Option<String>,
    key: Option<String>,
    window: Option<String>,
}

async fn show_panes(State(shown): State<Arc<Shown>>, query: Asks<KeyQuery>) -> Result<Response, Refusal> {
    let query = parameters(query, "operator and key")?;
    let (index, window) = operator(&shown.config, query.operator.as_deref())?;
    let key = key(&shown, window, query.key.as_deref())?.ok_or_else(|| {
        Refusal::invalid("no key is asked for", "add key=…; several components as a JSON list of texts")
    })?;
    Ok(ok(&shown.panes(index, key).await?))
}

async fn show_why(State(shown): State<Arc<Shown>>, query: Asks<KeyQuery>) -> Result<Response, Refusal> {
    let query = parameters(query, "operator, key and window")?;
    let (index, window) = operator(&shown.config, query.operator.as_deref())?;
    let start = query.window.as_deref().map(parse_instant).transpose();
    let start = start.map_err(|error| Refusal::of(&error))?;
    let panes = match key(&shown, window, query.key.as_deref())? {
        Some(key) => Some(shown.panes(index, key).await?),
        None => None,
    };
    let snapshot = shown.board.snapshot();
    let asked = Asked { operator: index, start, panes: panes.as_ref(), now_ms: shown.clock.wall_millis() };
    why(&shown.config, &snapshot, &asked).map(|answer| ok(&answer)).map_err(|error| Refusal::of(&error))
}

/// The windowed aggregation that is asked for; the first of the pipeline when none is.
fn operator<'c>(
    config: &'c PipelineConfig,
    name: Option<&str>,
) -> Result<(usize, &'c WindowConfig), Refusal> {
    let mut windows = config.windows.iter().enumerate();
    let found = windows.find(|(_, window)| name.is_none_or(|name| name == window.name));
    found.ok_or_else(|| {
        let names: Vec<&str> = config.windows.iter().map(|window| window.name.as_str()).collect();
        let message = match name {
            Some(name) => format!("there is no such window: operator={name}"),
            None => "the pipeline has no windows".to_owned(),
        };
        Refusal::new(StatusCode::NOT_FOUND, message, format!("there are: {}", names.join(", ")))
    })
}

/// The key that is asked for: text, or a JSON list with one text for each key field.
fn key(shown: &Shown, window: &WindowConfig, text: Option<&str>) -> Result<Option<Key>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    if !shown.keys {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "this run shows nothing of single keys",
            "start it with --status-keys, or set `keys = true` in [status]",
        ));
    }
    let listed = Some(text).filter(|text| text.starts_with('[') && window.key.len() != 1);
    let components: Vec<String> = match listed {
        Some(list) => serde_json::from_str(list).map_err(|error| {
            Refusal::invalid(format!("the key cannot be read: {error}"), "write [\"…\",\"…\"]")
        })?,
        None => vec![text.to_owned()],
    };
    let fields: Vec<&str> = window.key.iter().map(|key| key.field.as_str()).collect();
    if components.len() != fields.len().max(1) {
        let message = format!("a key of {} has other components: {}", window.name, fields.join(", "));
        return Err(Refusal::invalid(message, "write a JSON list with one text for each of them"));
    }
    Ok(Some(Key(components.into_iter().map(String::into_bytes).collect())))
}

impl Shown {
    /// Asks the task.
    async fn panes(&self, operator: usize, key: Key) -> Result<KeyPanes, Refusal> {
        let busy =
            |message: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message, "ask again in a moment");
        let (request, answer) = PanesRequest::new(operator, key);
        self.questions.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => busy("too many questions wait for the task"),
            TrySendError::Disconnected(_) => busy("the run is over"),
        })?;
        match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(Ok(panes)) => panes.map_err(|error| Refusal::of(&error)),
            Ok(Err(_)) => Err(busy("the run is over")),
            Err(_) => {
                Err(busy("the task has not answered in time: it is starting, or in the middle of a block"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_hosts_of_this_page() {
        for host in ["127.0.0.1:9470", "localhost", "LOCALHOST:1", "[::1]:9470", "10.1.2.3", "[::1]"] {
            assert!(is_plain_host(host), "{host}");
        }
        for host in ["attacker.example", "attacker.example:9470", "localhost.attacker.example", "", "[x]:1"] {
            assert!(!is_plain_host(host), "{host}");
        }
    }
}
