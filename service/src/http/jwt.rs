//! Bearer tokens of an identity provider: JSON Web Tokens, verified with the public keys that the provider publishes.
//!
//! 1. The key is chosen by the token's `kid`, and the algorithm must be one of those that the key allows. A symmetric algorithm, or
//!    none, is never allowed, whatever the token's header states.
//! 2. Keys are cached. They are fetched again in the background when they are old, and before an answer when a token names an
//!    unknown key: the provider may have changed its keys. The time between two fetches is limited, so tokens with invented keys
//!    cause few requests.
//! 3. While the provider is unreachable, the cached keys stay in use. A token with an unknown key then gets 503, because it may be
//!    valid.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use reqwest::Url;
use serde_json::{Map, Value};

use super::invalid_option::InvalidOption;
use crate::http::caller::{Caller, Role, Roles};
use crate::http::problem::{Problem, ProblemCode};
use crate::http::tenant::{Scope, Tenant};

/// Maximum size of a document of the provider.
const MAX_BYTES: usize = 1 << 20;

/// Maximum number of keys that are read.
const MAX_KEYS: usize = 100;

/// Time limit for a request to the provider.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Time between two fetches after a failed one.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Time after which keys expire if they cannot be fetched again.
const MAX_AGE: Duration = Duration::from_hours(24);

/// Tolerated difference between the clocks of the provider and of this process, in seconds.
const LEEWAY: u64 = 30;

/// Identity provider of the accepted tokens.
#[derive(Clone, Debug)]
pub struct JwtOptions {
    /// The `iss` of its tokens. Its keys are found by OpenID Connect discovery, unless [`jwks`](Self::jwks) is set.
    pub issuer: String,
    /// Accepted values of `aud`.
    pub audiences: Vec<String>,
    /// URL of the provider's keys. `https`, or `http` to a loopback address.
    pub jwks: Option<String>,
    /// The claim with the caller's roles, by name or as a JSON pointer: a list, or words separated by spaces.
    pub roles_claim: String,
    /// Roles of a token without that claim.
    pub default_roles: Roles,
    /// The claim with the caller's tenant, by name or as a JSON pointer. `None`: there are no tenants.
    pub tenant_claim: Option<String>,
    /// Age at which keys are fetched again (default 10 minutes).
    pub refresh: Duration,
    /// Minimum time between two fetches because of unknown keys (default 10 s).
    pub retry: Duration,
}

impl JwtOptions {
    /// Creates options with the claim `roles`, no default roles and no tenants.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: vec![audience.into()],
            jwks: None,
            roles_claim: "roles".to_owned(),
            default_roles: Roles::default(),
            tenant_claim: None,
            refresh: Duration::from_mins(10),
            retry: Duration::from_secs(10),
        }
    }
}

/// Verifies tokens. Cheap to clone: clones share the keys.
#[derive(Clone)]
pub struct JwtVerifier(Arc<Inner>);

struct Inner {
    options: JwtOptions,
    client: reqwest::Client,
    cache: RwLock<Cache>,
    /// Held during a fetch, so that concurrent requests wait for one.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Cache {
    keys: Arc<Vec<Key>>,
    fetched: Option<Instant>,
    attempted: Option<Instant>,
    /// Reason why the last attempt failed.
    error: Option<Arc<str>>,
}

struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

impl std::fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

impl JwtVerifier {
    /// Creates a verifier. The keys are fetched when the first token arrives.
    ///
    /// # Errors
    /// Returns a message if an option is invalid.
    pub fn new(options: JwtOptions) -> Result<Self, InvalidOption> {
        if options.audiences.is_empty() || options.audiences.iter().any(String::is_empty) {
            return Err("an audience is needed: the `aud` of the tokens that are meant for this service".into());
        }
        checked_url(&options.issuer).map_err(|why| format!("issuer: {why}"))?;
        if let Some(url) = &options.jwks {
            checked_url(url).map_err(|why| format!("jwks: {why}"))?;
        }
        let client = reqwest::Client::builder()
            .timeout(FETCH_TIME)
            // A redirect could lead to a document of another server.
            .redirect(reqwest::redirect::Policy::none())
            .build();
        Ok(Self(Arc::new(Inner {
            client: client.map_err(|error| error.to_string())?,
            options,
            cache: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
        })))
    }

    /// Returns the caller of a valid token.
    pub(crate) async fn verify(&self, token: &str) -> Result<Caller, Problem> {
        let header = decode_header(token).map_err(|_| refused("it is not a signed JSON Web Token"))?;
        if header.crit.is_some() {
            return Err(refused("its header has a critical extension, and none is supported"));
        }
        let claims = self.claims(token, &header).await?;
        self.caller(&claims)
    }

    async fn claims(&self, token: &str, header: &Header) -> Result<Map<String, Value>, Problem> {
        let cache = self.keys(header).await?;
        let Some(key) = cache.find(header) else {
            return Err(refused("the provider has no key of its `kid`"));
        };
        if !key.algorithms.contains(&header.alg) {
            return Err(refused("its algorithm is not one that its key allows"));
        }
        let options = &self.0.options;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&options.issuer]);
        validation.set_audience(&options.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY;
        let decoded = decode::<Map<String, Value>>(token, &key.decoding, &validation);
        decoded
            .map(|decoded| decoded.claims)
            .map_err(|error| match error.kind() {
                ErrorKind::ExpiredSignature => refused("it has expired"),
                ErrorKind::ImmatureSignature => refused("it is not valid yet"),
                ErrorKind::InvalidIssuer => refused("it was issued by another provider (`iss`)"),
                ErrorKind::InvalidAudience => refused("it is meant for another service (`aud`)"),
                ErrorKind::MissingRequiredClaim(claim) => refused(&format!("it lacks the claim `{claim}`")),
                ErrorKind::InvalidSignature => refused("its signature is wrong"),
                _other => refused("it is not a valid JSON Web Token"),
            })
    }

    fn caller(&self, claims: &Map<String, Value>) -> Result<Caller, Problem> {
        let options = &self.0.options;
        let roles = match claim(claims, &options.roles_claim) {
            Some(Value::String(words)) => Roles::of(words.split_whitespace()),
            Some(Value::Array(words)) => Roles::of(words.iter().filter_map(Value::as_str)),
            Some(_) | None => options.default_roles,
        };
        let tenant = options.tenant_claim.as_deref().map(|name| (name, claim(claims, name)));
        let tenant = match tenant {
            None => None,
            Some((name, Some(Value::String(tenant)))) => Some(Tenant::new(tenant).map_err(|why| {
                let detail = format!("the claim `{name}` of the token is not a tenant: {why}");
                Problem::new(ProblemCode::Forbidden, detail)
            })?),
            Some((_, None)) if roles.include(Role::Admin) => None,
            Some((name, _)) => {
                let detail = format!("the token names no tenant: its claim `{name}` must be a string");
                return Err(Problem::new(ProblemCode::Forbidden, detail));
            }
        };
        let name = claims.get("sub").and_then(Value::as_str).unwrap_or("unnamed");
        Ok(Caller {
            name: name.into(),
            is_verified: true,
            roles,
            scope: Scope(tenant),
        })
    }

    /// Returns the keys to use for a token: those in the cache if they have its key and are not too old.
    async fn keys(&self, header: &Header) -> Result<Cache, Problem> {
        let cache = self.cached();
        if cache.find(header).is_some() && cache.fetched.is_some_and(|at| at.elapsed() < MAX_AGE) {
            if cache.fetched.is_some_and(|at| at.elapsed() >= self.0.options.refresh) && self.may_fetch(&cache) {
                let verifier = self.clone();
                // In the background: an unreachable provider must not delay requests with a cached key.
                tokio::spawn(async move { verifier.refresh().await });
            }
            return Ok(cache);
        }
        if self.may_fetch(&cache) {
            self.refresh().await;
        }
        let cache = self.cached();
        match &cache.error {
            Some(error) if cache.find(header).is_none() || cache.fetched.is_none_or(|at| at.elapsed() >= MAX_AGE) => {
                let detail = format!(
                    "the keys of {} cannot be read, so the token cannot be checked: {error}",
                    self.0.options.issuer
                );
                Err(Problem::new(ProblemCode::KeysUnavailable, detail).retry_after(5))
            }
            Some(_) | None => Ok(cache),
        }
    }

    fn may_fetch(&self, cache: &Cache) -> bool {
        let pause = if cache.error.is_some() {
            AFTER_FAILURE.min(self.0.options.retry)
        } else {
            self.0.options.retry
        };
        cache.attempted.is_none_or(|at| at.elapsed() >= pause)
    }

    async fn refresh(&self) {
        let _one = self.0.fetching.lock().await;
        // Check again under the lock: the request that held it before has fetched the keys.
        if !self.may_fetch(&self.cached()) {
            return;
        }
        let fetched = self.fetch().await;
        let mut cache = self.0.cache.write().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        cache.attempted = Some(now);
        match fetched {
            Ok(keys) => {
                (cache.keys, cache.fetched, cache.error) = (Arc::new(keys), Some(now), None);
            }
            Err(error) => {
                tracing::warn!(
                    issuer = self.0.options.issuer,
                    error,
                    "reading the keys of the identity provider failed"
                );
                cache.error = Some(error.into());
            }
        }
    }

    fn cached(&self) -> Cache {
        self.0.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn fetch(&self) -> Result<Vec<Key>, String> {
        let options = &self.0.options;
        let url = match &options.jwks {
            Some(url) => url.clone(),
            None => self.discovered().await?,
        };
        let document = self.document(&url).await?;
        let keys = document["keys"]
            .as_array()
            .ok_or_else(|| format!("{url} has no `keys`"))?;
        let keys: Vec<Key> = keys.iter().take(MAX_KEYS).filter_map(key).collect();
        if keys.is_empty() {
            return Err(format!("{url} has no public key for signatures"));
        }
        Ok(keys)
    }

    /// Returns the URL of the keys by OpenID Connect discovery.
    async fn discovered(&self) -> Result<String, String> {
        let issuer = &self.0.options.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let document = self.document(&url).await?;
        if document["issuer"] != issuer.as_str() {
            return Err(format!(
                "{url} is the configuration of another issuer: {}",
                document["issuer"]
            ));
        }
        let keys = document["jwks_uri"]
            .as_str()
            .ok_or_else(|| format!("{url} has no `jwks_uri`"))?;
        checked_url(keys).map_err(|why| format!("the `jwks_uri` of {url}: {why}"))?;
        Ok(keys.to_owned())
    }

    async fn document(&self, url: &str) -> Result<Value, String> {
        let failed = |error: reqwest::Error| {
            // The outer message does not contain the cause, such as a refused connection.
            let mut cause: &dyn std::error::Error = &error;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            format!("{url}: {cause}")
        };
        let mut response = self.0.client.get(url).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("{url} answers {}", response.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_BYTES {
                return Err(format!("{url} has more than {MAX_BYTES} bytes"));
            }
        }
        serde_json::from_slice(&bytes).map_err(|error| format!("{url} is not JSON: {error}"))
    }
}

impl Cache {
    /// Returns the key of a token. Without a `kid`, the provider's only key.
    fn find(&self, header: &Header) -> Option<&Key> {
        match &header.kid {
            Some(id) => self.keys.iter().find(|key| key.id.as_ref() == Some(id)),
            None if self.keys.len() == 1 => self.keys.first(),
            None => None,
        }
    }
}

/// Reads a public key for signatures; `None` for keys of other kinds and uses.
fn key(value: &Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    let is_for_signatures = |usage: &PublicKeyUse| *usage == PublicKeyUse::Signature;
    if !jwk.common.public_key_use.as_ref().is_none_or(is_for_signatures) {
        return None;
    }
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) => match &key.curve {
            EllipticCurve::P256 => vec![Algorithm::ES256],
            EllipticCurve::P384 => vec![Algorithm::ES384],
            _unsupported => Vec::new(),
        },
        AlgorithmParameters::OctetKeyPair(key) => match &key.curve {
            EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
            _unsupported => Vec::new(),
        },
        // A published symmetric key is no secret: every reader could sign with it.
        AlgorithmParameters::OctetKey(_) => Vec::new(),
    };
    if let Some(only) = jwk.common.key_algorithm {
        algorithms.retain(|algorithm| only.to_string() == format!("{algorithm:?}"));
    }
    if algorithms.is_empty() {
        return None;
    }
    Some(Key {
        decoding: DecodingKey::from_jwk(&jwk).ok()?,
        id: jwk.common.key_id,
        algorithms,
    })
}

/// Returns a claim by its name or, if the name starts with a slash, by a JSON pointer.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    match name.strip_prefix('/') {
        None => claims.get(name),
        Some(path) => {
            let (first, rest) = path
                .split_once('/')
                .map_or((path, String::new()), |(first, rest)| (first, format!("/{rest}")));
            claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(&rest)
        }
    }
}

/// Checks that a URL is https, or that of a loopback address: other answers could be replaced in transit.
fn checked_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{text} is not a URL: {error}"))?;
    let is_loopback = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback => Ok(url),
        _insecure => Err(format!("{text} must be an https URL")),
    }
}

fn refused(why: &str) -> Problem {
    Problem::new(ProblemCode::Unauthorized, format!("the token is not accepted: {why}"))
}
