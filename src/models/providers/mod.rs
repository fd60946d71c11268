//! Models across the network: OpenAI-compatible, Anthropic, Gemini, Ollama (feature `providers`).
//!
//! 1. A request is one attempt; trying again, limits and fallbacks are decided outside ([`super::guarded`]).
//! 2. Every failure says its kind in the error's details, see [`pirn_core::model_call::ModelFailure`].
//! 3. The key is read from the environment for each request. It is in no `Debug`, event, log or error, also where the
//!    provider quotes it back. It goes to the endpoint and nowhere else: redirects are not followed.
//! 4. Dropping the call closes its connection.

mod failure;
mod key;
mod options;
mod protocol;
mod reasoning;
mod reply;
mod request;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use genai::chat::ChatFrameSink;
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, Headers, ModelIden, ServiceTarget};
use pirn_actors::ports::{Model, ModelCall};
use pirn_core::definition::Profile;
use pirn_core::error::RunError;
use pirn_core::model_call::{FailureKind, ModelFailure};
use pirn_core::thread::ModelReply;
use reqwest::Url;

use self::key::{Key, KeySource};
use self::protocol::Protocol;
use self::reasoning::Speaker;
use self::watch::Watch;
use super::ProfileFault;
use super::policy::{self, CallPolicy, Timeouts};
use super::structured::ResponseFormat;

/// The names of the providers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    Protocol::ALL.into_iter().map(Protocol::name)
}

/// Whether `provider` is one of these.
pub(super) fn is_one(provider: &str) -> bool {
    Protocol::of(provider).is_some()
}

/// A model across the network.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

struct Shared {
    profile: String,
    protocol: Protocol,
    model: String,
    endpoint: Endpoint,
    is_near: bool,
    key_variable: Option<String>,
    keys: KeySource,
    streams: bool,
    timeouts: Timeouts,
    /// Made with the first request: reading the system's certificates takes its time.
    client: OnceLock<Result<Client, String>>,
}

impl Remote {
    /// Reads a profile whose provider is `openai`, `anthropic`, `gemini` or `ollama`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(profile: &Profile) -> Result<Self, Vec<ProfileFault>> {
        Self::with_keys(profile, key::from_environment())
    }

    fn with_keys(profile: &Profile, keys: KeySource) -> Result<Self, Vec<ProfileFault>> {
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, message: String| {
            faults.push(ProfileFault::new(profile.id.as_str(), pointer, message));
        };
        let protocol = Protocol::of(&profile.provider);
        if protocol.is_none() {
            fault(
                "/provider",
                format!("`{}` is no provider of this kind", profile.provider),
            );
        }
        let protocol = protocol.unwrap_or(Protocol::OpenAi);
        let model = profile.model.clone().unwrap_or_default();
        if model.is_empty() {
            fault("/model", format!("`{}` needs the name of a model", profile.provider));
        }
        let endpoint = endpoint(profile.endpoint.as_deref().unwrap_or(protocol.endpoint()));
        if let Err(message) = &endpoint {
            fault("/endpoint", message.clone());
        }
        let streams = match profile.rest.get("stream") {
            None => true,
            Some(serde_json::Value::Bool(streams)) => *streams,
            Some(_) => {
                fault("/stream", "must be true or false".to_owned());
                true
            }
        };
        for name in profile.rest.keys() {
            if name != "stream" && !policy::FIELDS.contains(&name.as_str()) {
                let known = policy::FIELDS.join(", ");
                fault(&format!("/{name}"), format!("unknown field; known are stream, {known}"));
            }
        }
        let policy = CallPolicy::read(profile, true);
        match (endpoint, policy) {
            (Ok(endpoint), Ok(policy)) if faults.is_empty() => Ok(Self {
                shared: Arc::new(Shared {
                    profile: profile.id.clone(),
                    protocol,
                    model,
                    is_near: is_near(&endpoint),
                    endpoint: Endpoint::from_owned(endpoint.as_str()),
                    key_variable: key_variable(profile, protocol),
                    keys,
                    streams,
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

impl Model for Remote {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let shared = Arc::clone(&self.shared);
        async move { shared.ask(&call).await }.boxed()
    }

    fn is_external(&self) -> bool {
        true
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
        let key = self.key()?;
        let client = self.client()?;
        let format = call.response_format.as_deref().map(ResponseFormat::read);
        let mut options = options::options(self.protocol, &call.parameters, format.as_ref())?;
        options.reasoning_effort = options
            .reasoning_effort
            .or_else(|| self.protocol.effort_that_keeps(&self.model));
        if let (Protocol::Ollama, Some(key)) = (self.protocol, key.expose()) {
            // The protocol has no key; what stands in front of it may want one.
            options.extra_headers = Some(Headers::from(("Authorization".to_owned(), format!("Bearer {key}"))));
        }
        let speaker = Speaker {
            protocol: self.protocol,
            model: &self.model,
        };
        let request = request::chat_request(speaker, &call.request, &call.tools);
        let target = self.target(&key);
        if self.streams {
            let watch = Arc::new(Watch::new(self.protocol));
            options.raw_frame_sink = Some(Arc::clone(&watch) as Arc<dyn ChatFrameSink>);
            let stream = client.exec_chat_stream(target, request, Some(&options)).await;
            let stream = stream.map_err(|error| failure::error_of(&error, &key))?.stream;
            let reply = reply::streamed(stream, speaker, &watch, self.timeouts, call, &key).await;
            // A reply that broke off costs what was reported of it until then.
            reply.map_err(|error| ModelFailure::spending(error, watch.spent()))
        } else {
            options.capture_content = None;
            let reply = client.exec_chat(target, request, Some(&options));
            reply::whole(reply, speaker, self.timeouts, call, &key).await
        }
    }

    fn key(&self) -> Result<Key, RunError> {
        let Some(variable) = &self.key_variable else {
            return Ok(Key::none());
        };
        Key::of(&self.keys, variable).ok_or_else(|| {
            let message = format!("the environment variable {variable} with the key is not set");
            ModelFailure::new(FailureKind::Key).into_error(message)
        })
    }

    fn target(&self, key: &Key) -> ServiceTarget {
        // Servers without keys take any; the protocols have no request without one.
        let key = key.expose().unwrap_or("none");
        ServiceTarget {
            endpoint: self.endpoint.clone(),
            auth: AuthData::from_single(key),
            model: ModelIden::new(self.protocol.adapter(), self.model.as_str()),
        }
    }

    fn client(&self) -> Result<&Client, RunError> {
        let made = self.client.get_or_init(|| {
            let mut web = reqwest::Client::builder()
                .user_agent(concat!("pirn/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .tcp_nodelay(true);
            if let Some(connect) = self.timeouts.connect {
                web = web.connect_timeout(Duration::from_millis(connect));
            }
            if self.is_near {
                web = web.no_proxy();
            }
            let web = web.build().map_err(|error| error.to_string())?;
            let client = Client::builder().with_reqwest(web).build();
            client.map_err(|error| error.to_string())
        });
        made.as_ref().map_err(|message| {
            let message = format!("no HTTP client: {message}");
            ModelFailure::new(FailureKind::Unreachable).into_error(message)
        })
    }
}

/// The profile's own variable; the provider's usual one only where the endpoint is the provider's own.
fn key_variable(profile: &Profile, protocol: Protocol) -> Option<String> {
    match (&profile.api_key_env, &profile.endpoint) {
        (Some(variable), _) => Some(variable.clone()),
        (None, None) => protocol.key_variable().map(str::to_owned),
        (None, Some(_)) => None,
    }
}

/// The address that paths are put after.
fn endpoint(written: &str) -> Result<Url, String> {
    let mut url = Url::parse(written).map_err(|error| format!("not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("must be an http or https address".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "a key has no place in a file: name the environment variable that holds it in `apiKeyEnv`".to_owned(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must have neither a query nor a fragment".to_owned());
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

/// Whether the endpoint is on this machine: no proxy stands before it.
fn is_near(endpoint: &Url) -> bool {
    match endpoint.host_str().map(|host| host.trim_matches(['[', ']'])) {
        Some("localhost") => true,
        Some(host) => host
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback()),
        None => false,
    }
}
