//! Arguments that have a setting in `[service]` of a config file: access to a service, and the retention of ended runs.

use std::fmt::Display;
use std::time::Duration;

use pirn_service::{Access, Grant, InvalidOption, JwtOptions, JwtVerifier, Role, Roles, Service};

use crate::config::service_settings::{JwtSettings, ServiceSettings, Words, age};
use crate::files;
use crate::output::failure::Failure;
use crate::store::place::Place;

/// Arguments about the data of ended runs in the store.
#[derive(clap::Args)]
pub(crate) struct RetentionArgs {
    /// Remove runs from the store that ended longer ago than this age: 90s, 30m, 12h, 30d
    #[arg(long, value_name = "AGE", value_parser = age)]
    keep_ended: Option<Duration>,
    /// Drop the events and steps of runs that ended longer ago than this age; their reports stay. Needs a store file
    #[arg(long, value_name = "AGE", value_parser = age)]
    keep_events: Option<Duration>,
}

/// Ages after which data of ended runs is removed from the store.
#[derive(Clone, Copy)]
pub(crate) struct Retention {
    ended: Option<Duration>,
    events: Option<Duration>,
}

impl RetentionArgs {
    /// Returns the ages: the arguments, and the settings for those that are absent.
    ///
    /// # Errors
    /// Fails if the store cannot remove the data.
    pub(crate) fn retention(&self, settings: &ServiceSettings, place: Option<&Place>) -> Result<Retention, Failure> {
        let retention = Retention {
            ended: self.keep_ended.or(settings.keep_ended),
            events: self.keep_events.or(settings.keep_events),
        };
        if retention.ended.is_some() && place.is_none() {
            let message = "--keep-ended needs a store: --store FILE, or --engine";
            return Err(Failure::usage("USAGE", message));
        }
        if retention.events.is_some() && place.is_none_or(|place| place.file().is_none()) {
            return Err(Failure::usage(
                "USAGE",
                "--keep-events needs a store file: --store FILE",
            ));
        }
        Ok(retention)
    }
}

impl Retention {
    /// Removes data of ended runs until the service has shut down. Never resolves.
    pub(crate) async fn apply(self, service: &Service) {
        let ended = async {
            if let Some(age) = self.ended {
                service.remove_ended(age).await;
            }
        };
        let events = async {
            if let Some(age) = self.events {
                service.drop_events(age).await;
            }
        };
        tokio::join!(ended, events);
        std::future::pending::<()>().await;
    }
}

/// Arguments about who may send which requests.
#[derive(clap::Args)]
pub(crate) struct AccessArgs {
    /// A file with one token per line, `TOKEN [name=NAME] [roles=ROLE,ROLE] [tenant=TENANT]`, and comments in lines that start
    /// with #; a request must have one of the tokens: Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Accept the tokens (JWT) of this OpenID Connect provider, such as https://login.example.com
    #[arg(long, value_name = "URL")]
    jwt_issuer: Option<String>,
    /// The `aud` of accepted tokens of --jwt-issuer
    #[arg(long, value_name = "NAME")]
    jwt_audience: Vec<String>,
    /// The keys of --jwt-issuer (default: as its configuration at /.well-known/openid-configuration states)
    #[arg(long, value_name = "URL")]
    jwt_jwks: Option<String>,
    /// The claim with the roles read, run, answer, admin: a name or a JSON pointer (default: roles)
    #[arg(long, value_name = "CLAIM")]
    jwt_roles_claim: Option<String>,
    /// The claim with the tenant: a name or a JSON pointer; a tenant uses only its own runs
    #[arg(long, value_name = "CLAIM")]
    jwt_tenant_claim: Option<String>,
    /// An accepted Host name, in addition to localhost and the listening address
    #[arg(long, value_name = "NAME", value_parser = host)]
    allow_host: Vec<String>,
    /// An origin whose pages may send requests, such as https://app.example.com
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    allow_origin: Vec<String>,
}

fn host(text: &str) -> Result<String, InvalidOption> {
    Access::check_host(text).map(|()| text.to_owned())
}

fn origin(text: &str) -> Result<String, InvalidOption> {
    Access::check_origin(text).map(|()| text.to_owned())
}

impl AccessArgs {
    /// Returns the access rules: the arguments, and the settings for those that are absent.
    ///
    /// # Errors
    /// Fails if a token file or a setting of the identity provider is invalid.
    pub(crate) fn access(&self, settings: &ServiceSettings) -> Result<Access, Failure> {
        let access = Access {
            grants: self.grants()?,
            jwt: self.verifier(settings.jwt.clone())?,
            origins: self.allow_origin.clone(),
            ..Access::default()
        };
        Ok(self.allow_host.iter().fold(access, |access, name| access.host(name)))
    }

    /// Reads the token file; returns no tokens if none is named.
    pub(crate) fn grants(&self) -> Result<Vec<Grant>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(Vec::new());
        };
        let text = files::read_named(path)?;
        let has_token = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let lines = text.lines().enumerate().filter(|(_, line)| has_token(line));
        let grants = lines.map(|(number, line)| {
            let invalid = |why| Failure::usage("INVALID_TOKEN_FILE", format!("{path}, line {}: {why}", number + 1));
            Grant::parse(line).map_err(invalid)
        });
        let grants = grants.collect::<Result<Vec<_>, _>>()?;
        if grants.is_empty() {
            return Err(Failure::usage("NO_TOKEN", format!("{path} has no token")));
        }
        Ok(grants)
    }

    fn verifier(&self, settings: Option<JwtSettings>) -> Result<Option<JwtVerifier>, Failure> {
        let settings = settings.unwrap_or_default();
        let invalid = |why: &dyn Display| Failure::usage("INVALID_IDENTITY_PROVIDER", why.to_string());
        let audiences = match settings.audience {
            _ if !self.jwt_audience.is_empty() => self.jwt_audience.clone(),
            Words::One(audience) => vec![audience],
            Words::Several(audiences) => audiences,
        };
        let jwks = self.jwt_jwks.clone().or(settings.jwks);
        let tenant_claim = self.jwt_tenant_claim.clone().or(settings.tenant_claim);
        let Some(issuer) = self.jwt_issuer.clone().or(settings.issuer) else {
            if jwks.is_some() || tenant_claim.is_some() || !audiences.is_empty() {
                let failure = invalid(&"the issuer of the tokens is missing");
                return Err(failure.with_help("set --jwt-issuer, or `issuer` in [service.jwt] of pirn.toml"));
            }
            return Ok(None);
        };
        let parsed = |word: &String| word.parse::<Role>();
        let default_roles = settings.default_roles.iter().map(parsed).collect::<Result<Vec<_>, _>>();
        let default_roles = default_roles.map_err(|why| invalid(&why))?;
        let roles_claim = self.jwt_roles_claim.clone().or(settings.roles_claim);
        let defaults = JwtOptions::new(issuer, "");
        let options = JwtOptions {
            audiences,
            jwks,
            roles_claim: roles_claim.unwrap_or_else(|| defaults.roles_claim.clone()),
            default_roles: default_roles.into_iter().fold(Roles::default(), Roles::with),
            tenant_claim,
            ..defaults
        };
        let verifier = JwtVerifier::new(options).map_err(|why| {
            invalid(&why).with_help("set --jwt-audience, or [service.jwt] of pirn.toml: issuer, audience, jwks")
        })?;
        Ok(Some(verifier))
    }
}
