//! The sender of a request: its name, its roles and its tenant.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::invalid_option::InvalidOption;
use crate::http::problem::{Problem, ProblemCode};
use crate::http::tenant::{Scope, Tenant};

/// A right of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads runs, sessions, questions and workflows.
    Read,
    /// Starts runs and changes them. Includes [`Role::Read`].
    Run,
    /// Answers questions. Includes [`Role::Read`].
    Answer,
    /// Everything, including forks with edited workflows. With an identity provider, also the runs of all tenants if the token names none.
    Admin,
}

impl Role {
    /// Every role, in declaration order.
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Answer, Self::Admin];

    /// The word in tokens and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Answer => "answer",
            Self::Admin => "admin",
        }
    }

    /// Roles that include this one.
    fn included_in(self) -> &'static [Self] {
        match self {
            Self::Read => &Self::ALL,
            Self::Run => &[Self::Run, Self::Admin],
            Self::Answer => &[Self::Answer, Self::Admin],
            Self::Admin => &[Self::Admin],
        }
    }
}

/// A set of roles.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// The set with every right.
    pub const ALL: Self = Self(1 << Role::Admin as u8);

    /// Adds a role.
    #[must_use]
    pub fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }

    /// True if one of the roles is, or includes, this one.
    pub fn include(self, role: Role) -> bool {
        role.included_in().iter().any(|other| self.0 & 1 << *other as u8 != 0)
    }

    /// True if the set has no role.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Collects the roles among words, such as those of a claim. Other words are ignored: they concern other services.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let roles = words.into_iter().filter_map(|word| word.parse().ok());
        roles.fold(Self::default(), Self::with)
    }
}

impl FromStr for Role {
    type Err = InvalidOption;

    /// Parses a role; `pirn:run` and `pirn.run` are roles too.
    fn from_str(word: &str) -> Result<Self, InvalidOption> {
        let plain = word
            .strip_prefix("pirn")
            .map_or(word, |rest| rest.strip_prefix([':', '.']).unwrap_or(word));
        let found = Self::ALL.into_iter().find(|role| role.as_str() == plain);
        found.ok_or_else(|| format!("there is no role `{word}`; the roles are read, run, answer and admin").into())
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Role::ALL.iter().filter(|role| self.0 & 1 << **role as u8 != 0);
        f.debug_set().entries(words.map(|role| role.as_str())).finish()
    }
}

/// A static token with its rights.
#[derive(Clone)]
pub struct Grant {
    /// The bearer token.
    pub token: String,
    /// Name of its holder, for the audit log.
    pub name: String,
    /// Rights of its holder.
    pub roles: Roles,
    /// Tenant of the holder; `None` for access to the runs of all tenants.
    pub tenant: Option<Tenant>,
}

impl fmt::Debug for Grant {
    /// Formats everything except the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("name", &self.name)
            .field("roles", &self.roles)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

impl Grant {
    /// Parses a line of a token file: `TOKEN [name=NAME] [roles=ROLE,ROLE] [tenant=TENANT]`. A token alone has every right.
    ///
    /// # Errors
    /// Returns a message, which does not contain the token. A token that starts with `#` is refused, because such a line of a token
    /// file is a comment.
    pub fn parse(line: &str) -> Result<Self, InvalidOption> {
        if line.trim_start().starts_with('#') {
            return Err("a token must not start with `#`: such a line of a token file is a comment".into());
        }
        let mut words = line.split_whitespace();
        let mut grant = Self {
            token: words.next().ok_or("the line has no token")?.to_owned(),
            name: "token".to_owned(),
            roles: Roles::ALL,
            tenant: None,
        };
        for word in words {
            let syntax = "after a token, name=NAME, roles=ROLE,ROLE and tenant=TENANT are allowed";
            let (key, value) = word.split_once('=').ok_or(syntax)?;
            match key {
                "name" => value.clone_into(&mut grant.name),
                "roles" => {
                    let roles = value.split(',').map(Role::from_str).collect::<Result<Vec<_>, _>>()?;
                    grant.roles = roles.into_iter().fold(Roles::default(), Roles::with);
                }
                "tenant" => grant.tenant = Some(Tenant::new(value)?),
                _unknown => return Err(syntax.into()),
            }
        }
        Ok(grant)
    }
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Name for the audit log: the `sub` of a JWT, or the name of a static token.
    pub(crate) name: Arc<str>,
    /// True if an identity provider has verified the name.
    pub(crate) is_verified: bool,
    pub(crate) roles: Roles,
    /// The runs that it may use.
    pub(crate) scope: Scope,
}

impl Caller {
    /// Returns the caller of a service that needs no token, and the embedding program itself.
    pub(crate) fn anyone() -> Self {
        Self {
            name: "anyone".into(),
            is_verified: false,
            roles: Roles::ALL,
            scope: Scope::default(),
        }
    }

    /// Returns the name, if an identity provider has verified it.
    pub(crate) fn verified_name(&self) -> Option<String> {
        self.is_verified.then(|| self.name.to_string())
    }

    pub(crate) fn check(&self, role: Role) -> Result<(), Problem> {
        if self.roles.include(role) {
            return Ok(());
        }
        let detail = format!("the token lacks the role `{}`", role.as_str());
        Err(Problem::new(ProblemCode::Forbidden, detail))
    }

    /// Checks the right to define workflows. A workflow may call every tool of the engine, which all tenants share.
    pub(crate) fn check_author(&self) -> Result<(), Problem> {
        if self.scope.0.is_some() {
            let detail = "a workflow may call every tool of the service, and the token belongs to a tenant";
            return Err(Problem::new(ProblemCode::Forbidden, detail));
        }
        self.check(Role::Admin)
    }
}

impl From<&Grant> for Caller {
    fn from(grant: &Grant) -> Self {
        Self {
            name: grant.name.as_str().into(),
            is_verified: false,
            roles: grant.roles,
            scope: Scope(grant.tenant.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_includes_exactly_the_documented_ones() {
        let included = |roles: Roles| Role::ALL.map(|role| roles.include(role));
        assert_eq!(included(Roles::default()), [false; 4]);
        assert_eq!(included(Roles::default().with(Role::Read)), [true, false, false, false]);
        assert_eq!(included(Roles::default().with(Role::Run)), [true, true, false, false]);
        assert_eq!(
            included(Roles::default().with(Role::Answer)),
            [true, false, true, false]
        );
        assert_eq!(included(Roles::ALL), [true; 4]);
        let of_claim = Roles::of(["openid", "pirn:run", "pirn.answer", "pirnread", "Admin"]);
        assert_eq!(of_claim, Roles::default().with(Role::Run).with(Role::Answer));
    }

    #[test]
    fn a_line_of_a_token_file_states_the_rights_of_the_token() {
        let plain = Grant::parse("s3cret").expect("a token");
        assert_eq!(
            (plain.token.as_str(), plain.roles, plain.tenant),
            ("s3cret", Roles::ALL, None)
        );
        let full = Grant::parse("s3cret  name=ci roles=read,run tenant=acme").expect("a token");
        assert_eq!(full.name, "ci");
        assert_eq!(full.roles, Roles::of(["read", "run"]));
        assert_eq!(full.tenant, Some(Tenant::new("acme").expect("a tenant")));
        for wrong in [
            "s3cret x",
            "s3cret roles=",
            "s3cret roles=reader",
            "s3cret user=x",
            "s3cret tenant=",
            "#s3cret",
            "  # s3cret roles=read",
            "",
        ] {
            let error = Grant::parse(wrong).expect_err(wrong).to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(!format!("{full:?}").contains("s3cret"));
    }
}
