//! Models across the network: OpenAI's protocols, Anthropic's, Gemini's, Ollama's (feature `providers`).
//!
//! 1. A request is one attempt; retries, limits and fallbacks are decided outside (`retrying`).
//! 2. Every failure records its kind in the error's details, see [`pirn_conversation::model_call::ModelFailure`].
//! 3. The key is read from the environment for each request. It never appears in `Debug` output, events, logs or errors, even if
//!    the provider quotes it. It is sent only to the endpoint: redirects are not followed.
//! 4. Dropping the call closes its connection.
//!
//! Not here: the JSON of messages, which is in `formats`.

mod anthropic;
mod exchange;
mod failure;
mod frames;
mod gemini;
mod key;
mod ollama;
mod openai;
mod protocol;
mod reply_builder;
mod request;
mod responses;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{Model, ModelCall, max_tokens};
use pirn_conversation::conversation::{MessageRules, ModelRequest};
use pirn_conversation::model_call::{CallBound, FailureKind, ModelFailure};
use pirn_core::thread::ModelReply;
use pirn_definition::definition::{Profile, json_from_value, variable_name_fault, variable_text_fault};
use pirn_definition::error::RunError;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::{Map, Value};

use self::key::{KeySource, Keys, KeysBy};
use self::protocol::Protocol;
use self::request::parameters::{self, Parameters};
use self::request::provider_request::{CacheHints, ProviderRequest};
use crate::headers;
use crate::policy::{self, CallPolicy, Timeouts};
use crate::structured::ResponseFormat;
use crate::{ChooseKey, ProfileFault};

/// Returns the names of the providers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    Protocol::ALL.into_iter().map(Protocol::name)
}

/// Returns whether `provider` is one of these.
pub(super) fn is_one(provider: &str) -> bool {
    Protocol::of(provider).is_some()
}

/// A model accessed across the network.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

struct Shared {
    profile: String,
    protocol: Protocol,
    rules: MessageRules,
    model: String,
    endpoint: Url,
    keys: Keys,
    written: Written,
    tells_cache: bool,
    timeouts: Timeouts,
    /// Created with the first request, because reading the system's certificates takes time.
    client: OnceLock<Result<Client, String>>,
}

/// Fields of a profile that are specific to these providers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    stream: Option<bool>,
    /// `chat` or `responses`.
    api: Option<Api>,
    /// True for a gateway to a provider that requires a strict order of messages.
    strict_order: bool,
    headers: BTreeMap<String, String>,
    headers_env: BTreeMap<String, String>,
    query: BTreeMap<String, String>,
    api_key_envs: Option<KeysBy>,
    /// If true, requests contain hints about the prefix of the next request for the provider's cache.
    prompt_cache: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Api {
    Chat,
    Responses,
}

impl Written {
    const FIELDS: [&str; 8] = [
        "stream",
        "api",
        "strictOrder",
        "headers",
        "headersEnv",
        "query",
        "apiKeyEnvs",
        "promptCache",
    ];
}

impl Remote {
    /// Reads a profile whose provider is `openai`, `anthropic`, `gemini` or `ollama`.
    ///
    /// # Errors
    /// All faults of the profile.
    pub fn new(profile: &Profile) -> Result<Self, Vec<ProfileFault>> {
        Self::with_keys(profile, None)
    }

    /// Like [`Remote::new`]; `choose` is called first for the key of each call.
    ///
    /// # Errors
    /// All faults of the profile.
    pub fn with_keys(profile: &Profile, choose: Option<Arc<ChooseKey>>) -> Result<Self, Vec<ProfileFault>> {
        Self::with_variables(profile, key::from_environment(), choose)
    }

    fn with_variables(
        profile: &Profile,
        variables: KeySource,
        choose: Option<Arc<ChooseKey>>,
    ) -> Result<Self, Vec<ProfileFault>> {
        let mut faults = policy::unknown_fields(profile, &Written::FIELDS);
        let mut fault = |pointer: &str, message: String| {
            faults.push(ProfileFault::new(profile.id.as_str(), pointer, message));
        };
        let mut written = Written::default();
        for name in Written::FIELDS {
            let Some(value) = profile.rest.get(name) else { continue };
            let one = Value::Object(Map::from_iter([(name.to_owned(), value.clone())]));
            match json_from_value(one) {
                Ok(one) => written.take(one),
                Err(error) => fault(error.pointer().unwrap_or_default(), error.message().to_owned()),
            }
        }
        if let Err(error) = headers::build_headers(&written.headers, &BTreeMap::new(), |_| None) {
            fault("/headers", error.to_string());
        }
        if let Some(name) = written.headers.keys().find(|name| is_secret(name)) {
            let message = "a key must not be in a file: name its environment variable in `headersEnv`";
            fault(&format!("/headers/{name}"), message.to_owned());
        }
        for (name, source) in &written.headers_env {
            if let Some(message) = variable_text_fault(source) {
                fault(&format!("/headersEnv/{name}"), message.to_owned());
            }
        }
        for (name, variable) in written.api_key_envs.iter().flat_map(|by| &by.names) {
            if let Some(message) = variable_name_fault(variable) {
                fault(&format!("/apiKeyEnvs/names/{name}"), message.to_owned());
            }
        }
        if let Some(name) = written.query.keys().find(|name| is_secret(name)) {
            fault(&format!("/query/{name}"), "a key must not be in a file".to_owned());
        }
        let protocol = match (Protocol::of(&profile.provider), written.api) {
            (Some(Protocol::OpenAi), Some(Api::Responses)) => Protocol::Responses,
            (Some(Protocol::OpenAi), _) | (Some(_), None) => {
                Protocol::of(&profile.provider).unwrap_or(Protocol::OpenAi)
            }
            (Some(other), Some(_)) => {
                fault(
                    "/api",
                    format!("`{}` has one protocol; `api` is for openai", profile.provider),
                );
                other
            }
            (None, _) => {
                fault(
                    "/provider",
                    format!("`{}` is not a provider of this kind", profile.provider),
                );
                Protocol::OpenAi
            }
        };
        let model = profile.model.clone().unwrap_or_default();
        if model.is_empty() {
            let message = format!(
                "`{}` needs the name of a model: set `model` to the name that the provider uses",
                profile.provider
            );
            fault("/model", message);
        }
        let parameters = Parameters::read(&profile.parameters.clone().unwrap_or_default());
        if let Err((name, message)) = parameters.and_then(|read| protocol.check(&read)) {
            fault(&format!("/parameters/{name}"), message);
        }
        let endpoint = endpoint(
            profile.endpoint.as_deref().unwrap_or(protocol.endpoint()),
            &written.query,
        );
        if let Err(message) = &endpoint {
            fault("/endpoint", message.clone());
        }
        let policy = CallPolicy::read(profile, true);
        match (endpoint, policy) {
            (Ok(endpoint), Ok(policy)) if faults.is_empty() => Ok(Self {
                shared: Arc::new(Shared {
                    profile: profile.id.clone(),
                    protocol,
                    rules: if written.strict_order {
                        MessageRules::STRICT
                    } else {
                        protocol.message_rules()
                    },
                    model,
                    endpoint,
                    keys: Keys {
                        variable: key_variable(profile, protocol, &written),
                        by: written.api_key_envs.clone(),
                        variables,
                        choose,
                    },
                    // Other servers of the protocol may not support cache hints.
                    tells_cache: written.prompt_cache.unwrap_or(profile.endpoint.is_none()),
                    written,
                    timeouts: policy.timeouts,
                    client: OnceLock::new(),
                }),
            }),
            (_, policy) => {
                faults.extend(policy.err().into_iter().flatten());
                Err(faults)
            }
        }
    }
}

impl Written {
    /// Moves the one field that `one` has into this value.
    fn take(&mut self, one: Self) {
        self.stream = self.stream.or(one.stream);
        self.api = self.api.or(one.api);
        self.strict_order |= one.strict_order;
        self.headers.extend(one.headers);
        self.headers_env.extend(one.headers_env);
        self.query.extend(one.query);
        self.api_key_envs = self.api_key_envs.take().or(one.api_key_envs);
        self.prompt_cache = self.prompt_cache.or(one.prompt_cache);
    }
}

/// Returns warnings about parameters that are valid and have no equivalent at the provider, which ignores them.
pub(super) fn warnings(profile: &Profile) -> Vec<ProfileFault> {
    let parameters = Parameters::read(&profile.parameters.clone().unwrap_or_default()).unwrap_or_default();
    let is_responses = profile.rest.get("api").and_then(Value::as_str) == Some("responses");
    let passed_over: &[&str] = match Protocol::of(&profile.provider) {
        Some(Protocol::Anthropic) => &["seed"],
        Some(Protocol::OpenAi) if is_responses => &["seed", "stop", "topK"],
        _ => &[],
    };
    let is_set = |name: &str| match name {
        "seed" => parameters.seed.is_some(),
        "stop" => !parameters.stop.is_empty(),
        _ => parameters.top_k.is_some(),
    };
    let set = passed_over.iter().filter(|name| is_set(name));
    let warning = |name: &&str| {
        let message = format!("{} has no `{name}`: it is not sent", profile.provider);
        ProfileFault::new(profile.id.as_str(), format!("/parameters/{name}"), message)
    };
    set.map(warning).collect()
}

impl Model for Remote {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let shared = Arc::clone(&self.shared);
        async move { shared.ask(&call).await }.boxed()
    }

    fn is_external(&self) -> bool {
        true
    }

    fn call_bound(&self, _: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        let own = match self.shared.protocol {
            Protocol::Anthropic => Some(anthropic::most_tokens(&self.shared.model)),
            Protocol::OpenAi | Protocol::Responses | Protocol::Gemini | Protocol::Ollama => None,
        };
        CallBound {
            output: max_tokens(parameters).or(own),
            prices: None,
        }
    }

    fn message_rules(&self) -> MessageRules {
        self.shared.rules
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote")
            .field("profile", &self.shared.profile)
            .field("provider", &self.shared.protocol.name())
            .field("model", &self.shared.model)
            .finish_non_exhaustive()
    }
}

impl Shared {
    async fn ask(&self, call: &ModelCall) -> Result<ModelReply, RunError> {
        let rejected = |message: String| ModelFailure::new(FailureKind::Rejected).into_error(message);
        let key = self.keys.of(call)?;
        let parameters = Parameters::read(&call.parameters).map_err(parameters::wrong)?;
        self.protocol.check(&parameters).map_err(parameters::wrong)?;
        let format = call.response_format.as_deref().map(ResponseFormat::read);
        let provider_request = ProviderRequest {
            model: &self.model,
            messages: &call.request.messages,
            tools: &call.tools,
            parameters: &parameters,
            format: format.as_ref(),
            streams: self.written.stream.unwrap_or(true),
            cache: self.tells_cache.then(|| CacheHints::of(call)),
        };
        let body = self.protocol.body(&provider_request);
        let body = body.map_err(|error| rejected(format!("the request cannot be sent: {error}")))?;
        let variable = |name: &str| (self.keys.variables)(name);
        let headers = headers::build_headers(&self.written.headers, &self.written.headers_env, variable)
            .map_err(|error| ModelFailure::new(FailureKind::Key).into_error(error.to_string()))?;
        let mut request = self
            .client()?
            .post(self.protocol.url(&self.endpoint, &provider_request));
        for (name, value) in self.protocol.headers(&key) {
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                ModelFailure::new(FailureKind::Key)
                    .into_error("the key contains characters that are not allowed in a header")
            })?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        // Configured headers replace those of the protocol: a gateway may expect its key elsewhere.
        let key = key.and(headers.iter().skip(self.written.headers.len()).map(|(_, value)| value));
        let mut headers: HeaderMap = headers.into_iter().collect();
        headers::add_idempotency_key(&mut headers, call.idempotency_key());
        let request = request.headers(headers);
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        let exchange = exchange::Exchange {
            protocol: self.protocol,
            model: &self.model,
            streams: provider_request.streams,
            timeouts: self.timeouts,
            call,
            key: &key,
        };
        let mut reply = exchange.run(request).await?;
        if matches!(self.protocol, Protocol::OpenAi | Protocol::Responses) {
            openai::unwrap(format.as_ref(), &mut reply);
        }
        Ok(reply)
    }

    fn client(&self) -> Result<&Client, RunError> {
        let made = self
            .client
            .get_or_init(|| exchange::client(&self.endpoint, self.timeouts));
        made.as_ref().map_err(|message| {
            let message = format!("cannot create an HTTP client: {message}");
            ModelFailure::new(FailureKind::Unreachable).into_error(message)
        })
    }
}

/// Returns the environment variable of the key: the profile's, or else the provider's usual one if the profile sets neither an
/// endpoint nor keys by metadata.
fn key_variable(profile: &Profile, protocol: Protocol, written: &Written) -> Option<String> {
    match (&profile.api_key_env, &profile.endpoint, &written.api_key_envs) {
        (Some(variable), _, _) => Some(variable.clone()),
        (None, None, None) => protocol.key_variable().map(str::to_owned),
        (None, _, _) => None,
    }
}

/// Returns whether a header or URL parameter contains a key.
fn is_secret(name: &str) -> bool {
    const NAMES: [&str; 6] = ["authorization", "xapikey", "apikey", "xgoogapikey", "key", "cookie"];
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    NAMES.iter().any(|secret| plain.eq_ignore_ascii_case(secret))
}

/// Parses the base URL to which paths are appended.
fn endpoint(written: &str, query: &BTreeMap<String, String>) -> Result<Url, String> {
    let with_scheme = || {
        format!(
            "must be an http or https address, such as http://{}",
            written.trim_start_matches('/')
        )
    };
    let mut url = Url::parse(written).map_err(|_| with_scheme())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        // `localhost:8000` parses as an address with the scheme `localhost`.
        return Err(if written.contains("://") {
            "must be an http or https address".to_owned()
        } else {
            with_scheme()
        });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a key must not be in a file: name its environment variable in `apiKeyEnv`".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must have neither a query nor a fragment; `query` takes parameters".to_owned());
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    Ok(url)
}
