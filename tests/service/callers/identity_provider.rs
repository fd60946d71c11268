//! An OpenID Connect provider on a free port, and the tokens that it signs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use pirn_service::{JwtOptions, JwtVerifier};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::world::spawn;

pub(crate) const AUDIENCE: &str = "pirn";

/// A signing key of the provider.
pub(crate) struct Signer {
    pub(crate) id: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: EncodingKey,
    /// The public part.
    pub(crate) jwk: Value,
}

impl Signer {
    pub(crate) fn es256(id: &str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let public = pair.public_key_raw();
        // An uncompressed point: 4, x, y.
        let (x, y) = (text(&public[1..33]), text(&public[33..65]));
        Self {
            id: id.to_owned(),
            algorithm: Algorithm::ES256,
            key: EncodingKey::from_ec_der(&pair.serialize_der()),
            jwk: json!({"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": id, "use": "sig"}),
        }
    }

    pub(crate) fn eddsa(id: &str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        Self {
            id: id.to_owned(),
            algorithm: Algorithm::EdDSA,
            key: EncodingKey::from_ed_der(&pair.serialize_der()),
            jwk: json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key_raw()), "kid": id, "alg": "EdDSA"}),
        }
    }

    pub(crate) fn rs256(id: &str) -> Self {
        let pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).expect("a key");
        // SEQUENCE { INTEGER n, INTEGER e }: n has 256 bytes after a header of 9 bytes, and e is 65537.
        let modulus = &pair.public_key_raw()[9..265];
        Self {
            id: id.to_owned(),
            algorithm: Algorithm::RS256,
            // The PKCS#1 key inside of PKCS#8 starts after 26 bytes.
            key: EncodingKey::from_rsa_der(&pair.serialize_der()[26..]),
            jwk: json!({"kty": "RSA", "n": text(modulus), "e": "AQAB", "kid": id, "use": "sig"}),
        }
    }

    /// Signs claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = Header {
            kid: Some(self.id.clone()),
            ..Header::new(self.algorithm)
        };
        encode(&header, claims, &self.key).expect("a token")
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Seconds since 1970, with an offset.
pub(crate) fn in_seconds(offset: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().cast_signed() + offset
}

/// State of the provider.
#[derive(Default)]
struct Shared {
    issuer: Mutex<String>,
    keys: Mutex<Vec<Value>>,
    is_down: AtomicBool,
    fetches: AtomicUsize,
}

/// A provider, until the runtime of the test ends.
pub(crate) struct Provider {
    shared: Arc<Shared>,
    pub(crate) issuer: String,
}

impl Provider {
    pub(crate) async fn new(signers: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let issuer = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            issuer: Mutex::new(issuer.clone()),
            ..Shared::default()
        });
        let router = axum::Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/keys", get(keys))
            .with_state(Arc::clone(&shared));
        spawn(listener, router);
        let provider = Self { shared, issuer };
        provider.publish(signers);
        provider
    }

    /// Replaces the published keys.
    pub(crate) fn publish(&self, signers: &[&Signer]) {
        self.publish_raw(signers.iter().map(|signer| signer.jwk.clone()).collect());
    }

    pub(crate) fn publish_raw(&self, keys: Vec<Value>) {
        *self.shared.keys.lock().expect("a lock") = keys;
    }

    /// Sets whether every request is answered by 503.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Sets the issuer that the configuration states.
    pub(crate) fn pretend(&self, issuer: &str) {
        issuer.clone_into(&mut self.shared.issuer.lock().expect("a lock"));
    }

    /// Number of answered requests for the keys.
    pub(crate) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::SeqCst)
    }

    /// Options that find the keys at once after a change.
    pub(crate) fn options(&self) -> JwtOptions {
        JwtOptions {
            retry: Duration::ZERO,
            ..JwtOptions::new(&self.issuer, AUDIENCE)
        }
    }

    pub(crate) fn verifier(&self) -> JwtVerifier {
        JwtVerifier::new(self.options()).expect("valid options")
    }

    /// Claims of a valid token.
    pub(crate) fn claims(&self) -> Value {
        json!({"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "exp": in_seconds(600), "roles": ["admin"]})
    }
}

async fn configuration(State(shared): State<Arc<Shared>>) -> Result<String, StatusCode> {
    if shared.is_down.load(Ordering::SeqCst) {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    let issuer = shared.issuer.lock().expect("a lock").clone();
    Ok(json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string())
}

async fn keys(State(shared): State<Arc<Shared>>) -> Result<String, StatusCode> {
    if shared.is_down.load(Ordering::SeqCst) {
        return Err(StatusCode::SERVICE_UNAVAILABLE);
    }
    shared.fetches.fetch_add(1, Ordering::SeqCst);
    let keys = shared.keys.lock().expect("a lock").clone();
    Ok(json!({ "keys": keys }).to_string())
}
