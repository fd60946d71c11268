//! OAuth access tokens by the client-credentials grant (RFC 6749, section 4.4).
//!
//! A token is requested when it is first needed, shortly before it expires, and when the server refuses it. Errors contain
//! neither tokens nor the client's secret, also not encoded.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use pirn_definition::definition::shown_variable_name;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;

use super::http_errors::{cause, shown_url};
use crate::config::OauthConfig;

/// Time limit of a token request.
const LIMIT: Duration = Duration::from_secs(30);

/// Time before its expiry at which a token is replaced: this, or a fifth of its lifetime if that is shorter.
const MARGIN: Duration = Duration::from_mins(1);

/// Maximum length of an answer in bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// Maximum number of characters of an answer in an error.
const SHOWN: usize = 300;

/// Number of retained tokens, which are redacted in the server's answers.
const RECENT: usize = 16;

/// Access tokens for one server.
pub(super) struct Tokens {
    config: OauthConfig,
    client: reqwest::Client,
    /// Current token. Locked during a token request, so that concurrent callers send only one.
    kept: Mutex<Option<Token>>,
    /// The last tokens, the newest at the end.
    recent: std::sync::Mutex<VecDeque<HeaderValue>>,
}

struct Token {
    text: String,
    /// Time of replacement; `None` if the endpoint gives no lifetime.
    until: Option<Instant>,
}

/// Successful answer of a token endpoint.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    token_type: String,
    /// Lifetime in seconds. Some servers send it as a string.
    #[serde(default)]
    expires_in: Value,
}

impl Tokens {
    pub(super) fn new(config: OauthConfig, client: reqwest::Client) -> Self {
        Self {
            config,
            client,
            kept: Mutex::new(None),
            recent: std::sync::Mutex::default(),
        }
    }

    /// Returns the current token, or requests one.
    ///
    /// # Errors
    /// Returns a message if the token request fails.
    pub(super) async fn token(&self) -> Result<String, String> {
        self.other_than(None).await
    }

    /// Returns the current token if it is not `refused`, or requests a new one. The endpoint may return the refused token again.
    ///
    /// # Errors
    /// Returns a message if the token request fails.
    pub(super) async fn instead_of(&self, refused: &str) -> Result<String, String> {
        self.other_than(Some(refused)).await
    }

    /// Returns the last tokens, also those that were replaced: an answer may repeat the one of its request.
    pub(super) fn recent(&self) -> VecDeque<HeaderValue> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn other_than(&self, refused: Option<&str>) -> Result<String, String> {
        let mut kept = self.kept.lock().await;
        let is_good =
            |token: &Token| refused != Some(token.text.as_str()) && token.until.is_none_or(|until| now() < until);
        if let Some(token) = kept.as_ref().filter(|token| is_good(token)) {
            return Ok(token.text.clone());
        }
        *kept = None;
        let granted = self.ask().await?;
        let text = granted.access_token.clone();
        if let Ok(token) = HeaderValue::from_str(&text) {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.push_back(token);
            if recent.len() > RECENT {
                recent.pop_front();
            }
        }
        let life = granted.life();
        let until = life.and_then(|life| now().checked_add(life.saturating_sub(MARGIN.min(life / 5))));
        *kept = Some(Token {
            text: text.clone(),
            until,
        });
        Ok(text)
    }

    async fn ask(&self) -> Result<Granted, String> {
        let config = &self.config;
        let variable = &config.secret_env;
        let secret = std::env::var(variable).map_err(|_| {
            let shown = shown_variable_name(variable);
            format!("the environment variable {shown} with the client's secret is not set")
        })?;
        let mut form = reqwest::Url::parse("form:").map_err(|error| error.to_string())?;
        {
            let mut pairs = form.query_pairs_mut();
            pairs.append_pair("grant_type", "client_credentials");
            if let Some(scope) = &config.scope {
                pairs.append_pair("scope", scope);
            }
            if !config.resource.is_empty() {
                pairs.append_pair("resource", &config.resource);
            }
            if config.is_in_body {
                pairs.append_pair("client_id", &config.client_id);
                pairs.append_pair("client_secret", &secret);
            }
        }
        let mut request = self
            .client
            .post(&config.token_url)
            .timeout(LIMIT)
            .header("accept", "application/json")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.query().unwrap_or_default().to_owned());
        if !config.is_in_body {
            request = request.basic_auth(encoded(&config.client_id), Some(encoded(&secret)));
        }
        let endpoint = reqwest::Url::parse(&config.token_url).map_or_else(|_| String::new(), |url| shown_url(&url));
        let failed = |error: reqwest::Error| format!("no token from {endpoint}: {}", cause(&error));
        let request = request.build().map_err(failed)?;
        let header = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let header = header
            .and_then(|value| value.strip_prefix("Basic "))
            .unwrap_or_default();
        // The longest first: a shorter one may be a part of it.
        let forms = [header.to_owned(), encoded(&secret), secret];
        let mut response = self.client.execute(request).await.map_err(failed)?;
        let status = response.status();
        let mut answer = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            answer.extend_from_slice(&piece);
            if answer.len() > MAX_ANSWER {
                return Err(format!("no token from {endpoint}: its answer is too long"));
            }
        }
        let refused = |why: String| {
            let forms = forms.iter().filter(|form| !form.is_empty());
            let why = forms.fold(why, |why, form| why.replace(form.as_str(), "***"));
            // Shortened after the replacement, because the cut could leave a part of the secret.
            let why: String = why.chars().take(SHOWN).collect();
            Err(format!("no token from {endpoint} ({status}): {why}"))
        };
        if !status.is_success() {
            return refused(reason(&answer));
        }
        match serde_json::from_slice::<Granted>(&answer) {
            Ok(granted) if !granted.is_bearer() => refused(format!("it gives a token of type {}", granted.token_type)),
            Ok(granted) => Ok(granted),
            // The parse error is not shown, because the answer may contain a token.
            Err(_) => refused("its answer has no `access_token`".to_owned()),
        }
    }
}

impl Granted {
    fn is_bearer(&self) -> bool {
        self.token_type.is_empty() || self.token_type.eq_ignore_ascii_case("bearer")
    }

    fn life(&self) -> Option<Duration> {
        let seconds = self
            .expires_in
            .as_u64()
            .or_else(|| self.expires_in.as_str()?.parse().ok());
        seconds.map(Duration::from_secs)
    }
}

/// Returns the reason of a refusal: `error` and `error_description`, or the whole answer if it has no `error`.
fn reason(answer: &[u8]) -> String {
    match serde_json::from_slice::<Value>(answer) {
        Ok(said) if said["error"].is_string() => {
            let code = said["error"].as_str().unwrap_or_default();
            match said["error_description"].as_str() {
                Some(about) => format!("{code}: {about}"),
                None => code.to_owned(),
            }
        }
        _other => String::from_utf8_lossy(answer).trim().to_owned(),
    }
}

/// Encodes a string as `application/x-www-form-urlencoded`, which RFC 6749 requires for the id and the secret in a header.
fn encoded(text: &str) -> String {
    let Ok(mut form) = reqwest::Url::parse("form:") else {
        return text.to_owned();
    };
    form.query_pairs_mut().append_key_only(text);
    form.query().unwrap_or_default().to_owned()
}

/// Returns the real time, even under a virtual clock, because tokens expire in real time.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}
