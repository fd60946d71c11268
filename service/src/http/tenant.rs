//! Tenants: groups of callers that must not notice each other.
//!
//! The ids of a tenant's runs, sessions and idempotency keys start with the tenant's prefix. So a scope is a mapping of the ids in a
//! caller's requests to ids of the engine: whatever id a caller sends, the result belongs to its tenant, and ids of different tenants
//! cannot be equal. Runs that a run starts, and questions, have ids that start with the id of the run.

use std::borrow::Cow;
use std::sync::Arc;

use pirn::store::{ContentHash, Run};

use super::invalid_option::InvalidOption;

/// Ends the prefix of a tenant's ids. A client without a tenant cannot choose an id of a run with this character.
const END: char = Run::OWNER_END;

/// Separates a tenant from an idempotency key. Keys in headers have no control characters.
const KEY_END: char = '\u{1}';

/// Maximum length of a name that is used in ids unchanged.
const MAX_PLAIN: usize = 64;

/// Maximum length of a name.
const MAX_NAME: usize = 256;

/// Digits of the hash that represents any other name in ids.
const DIGITS: usize = 32;

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    name: Arc<str>,
    prefix: Arc<str>,
}

impl Tenant {
    /// Creates a tenant from its name, such as the value of a claim: 1 to 256 bytes.
    ///
    /// # Errors
    /// Returns a message if the name is empty, too long, or has control characters.
    pub fn new(name: &str) -> Result<Self, InvalidOption> {
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let message = format!("the name of a tenant has 1 to {MAX_NAME} bytes and no control characters");
            return Err(message.into());
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let prefix = if name.len() <= MAX_PLAIN && name.bytes().all(is_plain) {
            format!("{name}{END}")
        } else {
            // A plain name has no dot, so it cannot be equal to a hash.
            let hash = ContentHash::of(name).to_string();
            format!(".{}{END}", &hash[..DIGITS])
        };
        Ok(Self {
            name: name.into(),
            prefix: prefix.into(),
        })
    }

    /// True if a run or a session of this id of the engine belongs to the tenant.
    pub fn owns(&self, id: &str) -> bool {
        id.starts_with(&*self.prefix)
    }

    /// Returns the part of the tenant's ids before their separator, as [`Run::owner`] does.
    pub(crate) fn owner(&self) -> &str {
        self.prefix.trim_end_matches(END)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The runs, sessions and keys that a caller may use: those of one tenant, or all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope(pub(crate) Option<Tenant>);

impl Scope {
    /// Returns the id of the run, or of its question, that a caller means. An id that the service has shown is unchanged.
    pub(crate) fn run_id<'a>(&self, id: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(tenant) if !id.starts_with(&*tenant.prefix) => format!("{}{id}", tenant.prefix).into(),
            Some(_) | None => id.into(),
        }
    }

    /// True if the caller may use a run, or a question, with this id of the engine.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.as_ref().is_none_or(|tenant| tenant.owns(id))
    }

    /// Returns the session that a caller means.
    pub(crate) fn session<'a>(&self, id: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(tenant) => format!("{}{id}", tenant.prefix).into(),
            None => id.into(),
        }
    }

    /// Returns the caller's name of a session of the engine; `None` if the caller may not use it.
    pub(crate) fn own_session<'a>(&self, id: &'a str) -> Option<&'a str> {
        match &self.0 {
            Some(tenant) => id.strip_prefix(&*tenant.prefix),
            None => Some(id),
        }
    }

    /// Returns an idempotency key that no other tenant has.
    pub(crate) fn key<'a>(&self, key: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(tenant) => format!("{}{KEY_END}{key}", tenant.name).into(),
            None => key.into(),
        }
    }

    /// Returns the beginning of all ids; `None` if the caller may use all.
    pub(crate) fn prefix(&self) -> Option<&str> {
        self.0.as_ref().map(|tenant| &*tenant.prefix)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("acme".to_owned()),
            Just("acm".to_owned()),
            "[a-e~.|@-]{1,4}",
            "[^\\p{C}]{1,80}"
        ]
    }

    fn id() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-e~.]{0,6}",
            "\\PC{0,20}",
            ("[a-e]{1,4}", "[a-e]{1,3}").prop_map(|(a, b)| format!("{a}~{b}"))
        ]
    }

    proptest! {
        #[test]
        fn ids_of_different_tenants_are_never_equal(a in name(), b in name(), x in id(), y in id()) {
            prop_assume!(a != b);
            let of = |name: &str| Scope(Some(Tenant::new(name).expect("a tenant")));
            let (a, b) = (of(&a), of(&b));
            let run = a.run_id(&x).into_owned();
            prop_assert!(a.has(&run) && !b.has(&run), "{run}");
            prop_assert_ne!(&run, &*b.run_id(&y));
            // What a caller was shown means the same run again.
            prop_assert_eq!(a.run_id(&run), run.as_str());
            let session = a.session(&x).into_owned();
            prop_assert_eq!(a.own_session(&session), Some(x.as_str()));
            prop_assert_eq!(b.own_session(&session), None);
            prop_assert_ne!(a.key(&x), b.key(&y));
        }
    }

    #[test]
    fn without_a_tenant_ids_are_unchanged() {
        let all = Scope::default();
        for id in ["run-1", "acme~run-1", ""] {
            assert_eq!((&*all.run_id(id), &*all.session(id), &*all.key(id)), (id, id, id));
            assert!(all.has(id) && all.own_session(id) == Some(id));
        }
    }

    #[test]
    fn names_that_no_token_should_have_are_refused() {
        for wrong in ["", "a\nb", "a\0", &"x".repeat(257)] {
            assert!(Tenant::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
