//! HTTP client of the server: object calls through its ingress, SQL queries and registration through its admin API.
//!
//! A call without an answer is sent again with its idempotency key, and takes effect once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pirn_store::StoreError;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connect::{ConnectError, RestateOptions};
use crate::objects::{LAYOUT, LAYOUT_NAME, RUN, Target, WAIT};

/// Maximum size of a call in bytes. The server itself would retry a larger one without end.
pub(crate) const MAX_CALL: usize = 16 << 20;
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LAST_DELAY: Duration = Duration::from_secs(1);
/// Path of SQL queries in the admin API.
const QUERY: &str = "query";
/// Timeout of requests to the admin API.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone)]
pub(crate) struct Server {
    http: Client,
    ingress: Url,
    admin: Url,
    /// URL without user and password, for messages.
    pub(crate) name: Arc<str>,
    /// Time for which a call is retried before it fails.
    patience: Duration,
}

/// Reason why a call has no answer.
enum Fault {
    /// The call may be sent again.
    Lost(String),
    Failed(String),
}

fn url(text: &str) -> Result<Url, ConnectError> {
    let url = Url::parse(text).map_err(|error| ConnectError::Url(format!("{text}: {error}")))?;
    if url.scheme() != "http" && url.scheme() != "https" || url.host_str().is_none() {
        return Err(ConnectError::Url(format!("{text}: such as http://localhost:8080")));
    }
    Ok(url)
}

/// True for a server on this machine.
fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

impl Server {
    pub(crate) fn parse(text: &str, options: &RestateOptions) -> Result<Self, ConnectError> {
        let mut ingress = url(text)?;
        let is_cloud = ingress.host_str().is_some_and(|host| host.ends_with(".restate.cloud"));
        if is_cloud && ingress.port().is_none() {
            // The URL of an environment of Restate Cloud, as its page shows it.
            let _ = ingress.set_port(Some(8080));
        }
        let admin = if let Some(admin) = &options.admin {
            url(admin)?
        } else {
            let mut admin = ingress.clone();
            // The ingress may have a path, for example behind a proxy. The admin API does not share it.
            admin.set_path("/");
            // `set_port` fails only for schemes that `url` refuses.
            let _ = admin.set_port(Some(9070));
            admin
        };
        let mut headers = HeaderMap::new();
        if let Some(token) = &options.token {
            for url in [&ingress, &admin] {
                if url.scheme() != "https" && !is_local(url) {
                    return Err(ConnectError::Url(format!(
                        "the token would be sent to {} without encryption: use https",
                        url.host_str().unwrap_or_default()
                    )));
                }
            }
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut value =
                value.map_err(|_| ConnectError::Url("the token has characters that no header can have".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let http = Client::builder()
            .tcp_nodelay(true)
            .default_headers(headers)
            // A limit for the connection only: a wait for a promise may last for days.
            .connect_timeout(ADMIN_PATIENCE)
            .build();
        let http = http.map_err(|error| ConnectError::Url(error.to_string()))?;
        let port = ingress.port_or_known_default().unwrap_or(8080);
        // Built from the parts, because the URL may contain a password.
        let name = format!(
            "{}://{}:{port}",
            ingress.scheme(),
            ingress.host_str().unwrap_or_default()
        );
        Ok(Self {
            http,
            ingress,
            admin,
            name: name.into(),
            patience: options.patience,
        })
    }

    /// Returns the error of an answer that is none of the objects.
    async fn refusal(&self, answer: Response) -> ConnectError {
        let server = self.name.to_string();
        let is_unauthorized = matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let why = said(answer).await;
        if is_unauthorized {
            ConnectError::Unauthorized { server, why }
        } else {
            ConnectError::Refused { server, why }
        }
    }

    fn of(base: &Url, segments: &[&str]) -> Url {
        let mut url = base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            // Segments are percent-encoded, so a key may contain any character, also a slash.
            path.pop_if_empty().extend(segments);
        }
        url
    }

    fn unreachable(&self, error: &reqwest::Error) -> ConnectError {
        ConnectError::Unreachable {
            server: self.name.to_string(),
            why: why(error),
        }
    }

    /// Registers the URL of the objects' code with the server.
    pub(crate) async fn register(&self, endpoint: &str) -> Result<(), ConnectError> {
        let to = Self::of(&self.admin, &["deployments"]);
        let asked = self
            .http
            .post(to)
            // Not retried: the caller of `connect` sees the error and decides.
            .timeout(ADMIN_PATIENCE)
            .json(&json!({"uri": endpoint}));
        let answer = asked.send().await.map_err(|error| self.unreachable(&error))?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(match self.refusal(answer).await {
            ConnectError::Refused { server, why } => ConnectError::Refused {
                server,
                why: format!("{endpoint} was not registered: {why}"),
            },
            other => other,
        })
    }

    /// Checks that the server answers and has the objects of this version.
    pub(crate) async fn check(&self) -> Result<(), ConnectError> {
        let server = self.name.to_string();
        let asked = self.http.get(Self::of(&self.admin, &["services", RUN]));
        let answer = asked.timeout(ADMIN_PATIENCE).send().await;
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Err(ConnectError::NotSetUp { server });
        }
        if !answer.status().is_success() {
            return Err(self.refusal(answer).await);
        }
        let known: Value = answer.json().await.map_err(|error| self.unreachable(&error))?;
        // Compared before the first call, because objects of another layout would misread the state.
        match known["metadata"][LAYOUT_NAME].as_str() {
            Some(LAYOUT) => Ok(()),
            found => Err(ConnectError::Version {
                server,
                why: format!(
                    "its objects have layout {}; this pirn requires {LAYOUT}",
                    found.unwrap_or("none")
                ),
            }),
        }
    }

    /// Calls an object, with retries. `key` is an idempotency key: a call that is sent again takes effect once.
    pub(crate) async fn call<A: DeserializeOwned>(
        &self,
        target: &Target,
        key: Option<&str>,
        asked: &impl Serialize,
    ) -> Result<A, StoreError> {
        let to = Self::of(&self.ingress, &[target.object, &target.key, target.handler]);
        self.ask(to, key, asked, Some(self.patience)).await
    }

    /// Waits for a promise of the server, without a timeout.
    pub(crate) async fn wait<A: DeserializeOwned>(
        &self,
        handler: &str,
        asked: &impl Serialize,
    ) -> Result<A, StoreError> {
        // Without an idempotency key: a wait that is sent again gets a promise of its own.
        let to = Self::of(&self.ingress, &[WAIT, handler]);
        self.ask(to, None, asked, None).await
    }

    /// Resolves a promise.
    pub(crate) async fn keep(&self, promise: &str, answer: &impl Serialize) -> Result<(), StoreError> {
        // Resolving twice has no effect, so a retry needs no key.
        let to = Self::of(&self.ingress, &["restate", "awakeables", promise, "resolve"]);
        self.ask(to, None, answer, Some(self.patience)).await
    }

    /// Returns the rows of an SQL query.
    pub(crate) async fn rows<R: DeserializeOwned>(&self, sql: &str) -> Result<Vec<R>, StoreError> {
        #[derive(serde::Deserialize)]
        struct Rows<R> {
            rows: Vec<R>,
        }
        let to = Self::of(&self.admin, &[QUERY]);
        let rows: Rows<R> = self.ask(to, None, &json!({"query": sql}), Some(self.patience)).await?;
        Ok(rows.rows)
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        to: Url,
        key: Option<&str>,
        asked: &impl Serialize,
        lasts: Option<Duration>,
    ) -> Result<A, StoreError> {
        let failed = |why: String| StoreError::Failed {
            file: Arc::clone(&self.name),
            run: None,
            why,
        };
        // Serialized once for all attempts, so that every attempt sends the same bytes.
        let body = serde_json::to_vec(asked).map_err(|error| failed(error.to_string()))?;
        if body.len() > MAX_CALL {
            return Err(StoreError::TooLarge {
                what: format!(
                    "a step has {} bytes as JSON; a call to a Restate server has at most {MAX_CALL}",
                    body.len()
                ),
            });
        }
        let until = Instant::now() + self.patience;
        let mut delay = FIRST_DELAY;
        loop {
            match self.once(&to, key, &body, lasts).await {
                Ok(answer) => return Ok(answer),
                Err(Fault::Failed(why)) => return Err(failed(why)),
                Err(Fault::Lost(why)) if Instant::now() > until => return Err(failed(why)),
                Err(Fault::Lost(why)) => {
                    // At debug level: a restart of the server makes every pending call pass here many times.
                    tracing::debug!(server = &*self.name, why, "tried again");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(LAST_DELAY);
                }
            }
        }
    }

    async fn once<A: DeserializeOwned>(
        &self,
        to: &Url,
        key: Option<&str>,
        body: &[u8],
        lasts: Option<Duration>,
    ) -> Result<A, Fault> {
        let mut request = self.http.post(to.clone()).body(body.to_vec());
        request = request
            .header("content-type", "application/json")
            .header("accept", "application/json");
        if let Some(lasts) = lasts {
            request = request.timeout(lasts);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let answer = request.send().await.map_err(|error| lost(&error))?;
        let status = answer.status();
        if status.is_success() {
            let bytes = answer.bytes().await.map_err(|error| lost(&error))?;
            // A handler without a result has an empty body, which is no JSON.
            let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
            return serde_json::from_slice(text).map_err(|error| {
                Fault::Failed(format!(
                    "the answer cannot be decoded, it may be of another version: {error}"
                ))
            });
        }
        let is_lost = match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => true,
            // A 500 of a call is an error of the object. Queries also return 500 while the server starts, so they are retried.
            StatusCode::INTERNAL_SERVER_ERROR => to.path().ends_with(QUERY),
            _ => false,
        };
        let why = said(answer).await;
        Err(if is_lost { Fault::Lost(why) } else { Fault::Failed(why) })
    }
}

fn lost(error: &reqwest::Error) -> Fault {
    if error.is_timeout() {
        // The server accepts a call without any worker and waits for one, so a timeout is the only symptom.
        return Fault::Lost("no answer in time: is a worker running?".to_owned());
    }
    Fault::Lost(why(error))
}

/// Returns the innermost cause: the outer ones contain only that a request failed.
fn why(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

async fn said(answer: Response) -> String {
    let status = answer.status();
    // The status alone is still an answer.
    let text = answer.text().await.unwrap_or_default();
    let message = serde_json::from_str::<Value>(&text).ok();
    let message = message.as_ref().and_then(|said| said["message"].as_str());
    format!("{status}: {}", message.unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str, options: &RestateOptions) -> Result<(String, String), ConnectError> {
        let server = Server::parse(url, options)?;
        Ok((server.ingress.to_string(), server.admin.to_string()))
    }

    #[test]
    fn a_url_of_restate_cloud_has_the_ports_of_its_ingress_and_admin_api() {
        let none = RestateOptions::default();
        let expected = (
            "https://201abc.env.eu.restate.cloud:8080/".to_owned(),
            "https://201abc.env.eu.restate.cloud:9070/".to_owned(),
        );
        for url in [
            "https://201abc.env.eu.restate.cloud",
            "https://201abc.env.eu.restate.cloud:8080",
        ] {
            assert_eq!(parsed(url, &none), Ok(expected.clone()), "{url}");
        }
        let own = parsed("https://restate.example.com", &none).expect("valid");
        assert_eq!(own.0, "https://restate.example.com/");
    }

    #[test]
    fn a_token_is_sent_encrypted_or_to_this_machine_only() {
        let with = RestateOptions::default().token("secret");
        for url in [
            "https://restate.example.com:8080",
            "http://localhost:8080",
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
        ] {
            assert!(parsed(url, &with).is_ok(), "{url}");
        }
        let remote = with.clone().admin("http://restate.example.com:9070");
        for (url, options) in [
            ("http://restate.example.com:8080", &with),
            ("https://restate.example.com:8080", &remote),
        ] {
            let error = parsed(url, options).expect_err(url).to_string();
            assert!(error.contains("use https") && !error.contains("secret"), "{error}");
        }
        assert!(!format!("{with:?}").contains("secret"));
    }
}
