//! Tokens of an identity provider, and the rights of callers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use pirn::Engine;
use pirn_service::{Access, Grant, JwtOptions, JwtVerifier, Options};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::callers::identity_provider::{Provider, Signer, in_seconds, text};
use crate::gated_store::GatedStore;
use crate::world::{World, answer, refusal};

/// A service that accepts the tokens of a provider, and the static token `static`.
async fn world_of(verifier: JwtVerifier) -> World {
    let access = Access {
        grants: vec![Grant::parse("static name=robot roles=read").expect("a token")],
        jwt: Some(verifier),
        ..Access::default()
    };
    World::with(Options {
        access,
        ..Options::default()
    })
    .await
}

fn with_token(request: RequestBuilder, token: &str) -> RequestBuilder {
    request.header("authorization", format!("Bearer {token}"))
}

/// Requests the list of runs; returns the status, the code and the detail.
async fn asked(world: &World, token: &str) -> (u16, String, String) {
    let answer = answer(with_token(world.get("/v1/runs"), token)).await;
    let field = |name: &str| answer.body[name].as_str().unwrap_or_default().to_owned();
    (answer.status.as_u16(), field("code"), field("detail"))
}

fn changed(claims: &Value, name: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[name] = value;
    claims
}

#[tokio::test]
async fn a_token_is_accepted_only_with_the_issuer_audience_and_time_of_the_service() {
    let (ec, ed, rsa) = (Signer::es256("ec"), Signer::eddsa("ed"), Signer::rs256("rsa"));
    let provider = Provider::new(&[&ec, &ed, &rsa]).await;
    let world = world_of(provider.verifier()).await;
    let claims = provider.claims();
    for signer in [&ec, &ed, &rsa] {
        assert_eq!(asked(&world, &signer.sign(&claims)).await.0, 200, "{}", signer.id);
    }
    assert_eq!(asked(&world, "static").await.0, 200, "static tokens are accepted too");
    let several = changed(&claims, "aud", json!(["other", "pirn"]));
    assert_eq!(asked(&world, &ec.sign(&several)).await.0, 200);
    let mut without = claims.clone();
    without.as_object_mut().expect("claims").remove("exp");
    for (claims, why) in [
        (changed(&claims, "iss", json!("https://other.example")), "`iss`"),
        (changed(&claims, "iss", json!(format!("{}/", provider.issuer))), "`iss`"),
        (changed(&claims, "aud", json!("other")), "`aud`"),
        (changed(&claims, "aud", json!([])), "`aud`"),
        (changed(&claims, "aud", Value::Null), "`aud`"),
        (changed(&claims, "exp", json!(in_seconds(-60))), "expired"),
        (changed(&claims, "nbf", json!(in_seconds(600))), "not valid yet"),
        (without, "`exp`"),
    ] {
        for signer in [&ec, &ed, &rsa] {
            let (status, code, detail) = asked(&world, &signer.sign(&claims)).await;
            assert_eq!((status, code.as_str()), (401, "UNAUTHORIZED"), "{claims}");
            assert!(detail.contains(why), "{detail} for {claims}");
        }
    }
    // The clocks of two machines differ a little.
    let leeway = changed(&claims, "exp", json!(in_seconds(-10)));
    assert_eq!(asked(&world, &ec.sign(&leeway)).await.0, 200);
}

#[tokio::test]
async fn a_token_is_never_accepted_with_an_algorithm_that_its_key_does_not_allow() {
    let (ec, rsa, strange) = (Signer::es256("ec"), Signer::rs256("rsa"), Signer::es256("strange"));
    let mut only_rs512 = Signer::rs256("only-rs512");
    only_rs512.jwk["alg"] = json!("RS512");
    let mut for_encryption = Signer::es256("enc");
    for_encryption.jwk["use"] = json!("enc");
    let provider = Provider::new(&[]).await;
    let symmetric = json!({"kty": "oct", "k": text(b"published secret"), "kid": "oct", "alg": "HS256"});
    let keys = [&ec, &rsa, &only_rs512, &for_encryption].map(|signer| signer.jwk.clone());
    provider.publish_raw([&keys[..], &[symmetric, json!({"kty": "NEW", "kid": "new"}), json!(7)]].concat());
    let world = world_of(provider.verifier()).await;
    let claims = provider.claims();
    assert_eq!(asked(&world, &ec.sign(&claims)).await.0, 200);
    let mut tokens = vec![
        only_rs512.sign(&claims),
        for_encryption.sign(&claims),
        strange.sign(&claims),
        ec.sign(&claims) + "x",
        "a.b.c".to_owned(),
        "....".to_owned(),
        String::new(),
    ];
    // A key that another signer claims to have.
    let forged = Signer {
        id: "ec".to_owned(),
        ..strange
    };
    tokens.push(forged.sign(&claims));
    // No signature, in every spelling.
    for algorithm in ["none", "None", "NONE", "nOnE"] {
        let header = text(
            json!({"alg": algorithm, "typ": "JWT", "kid": "ec"})
                .to_string()
                .as_bytes(),
        );
        let body = text(claims.to_string().as_bytes());
        tokens.extend([format!("{header}.{body}."), format!("{header}.{body}")]);
    }
    // The published keys as secrets of a symmetric algorithm.
    let public = |signer: &Signer| -> Vec<Vec<u8>> {
        let part = |name: &str| signer.jwk[name].as_str().unwrap_or_default().as_bytes().to_vec();
        vec![part("x"), part("n"), signer.jwk.to_string().into_bytes()]
    };
    let secrets = [
        public(&ec),
        public(&rsa),
        vec![b"published secret".to_vec(), Vec::new()],
    ]
    .concat();
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        for id in ["ec", "rsa", "oct"] {
            let header = Header {
                kid: Some(id.to_owned()),
                ..Header::new(algorithm)
            };
            for secret in &secrets {
                tokens.push(encode(&header, &claims, &EncodingKey::from_secret(secret)).expect("a token"));
            }
        }
    }
    // Without a `kid`, it is unknown which of several keys is meant.
    tokens.push(encode(&Header::new(Algorithm::ES256), &claims, &ec.key).expect("a token"));
    // An extension that must be understood.
    let critical = Header {
        kid: Some("ec".to_owned()),
        crit: Some(vec!["exp".to_owned()]),
        ..Header::new(Algorithm::ES256)
    };
    tokens.push(encode(&critical, &claims, &ec.key).expect("a token"));
    for token in tokens {
        let (status, code, detail) = asked(&world, &token).await;
        assert_eq!((status, code.as_str()), (401, "UNAUTHORIZED"), "{token}: {detail}");
    }
}

#[tokio::test]
async fn rotated_keys_are_found_and_cached_keys_survive_an_outage_of_the_provider() {
    let (old, new, unknown) = (Signer::es256("old"), Signer::es256("new"), Signer::es256("unknown"));
    let provider = Provider::new(&[&old]).await;
    let world = world_of(provider.verifier()).await;
    let claims = provider.claims();
    provider.set_down(true);
    let (status, code, detail) = asked(&world, &old.sign(&claims)).await;
    assert_eq!(
        (status, code.as_str()),
        (503, "KEYS_UNAVAILABLE"),
        "no key was ever read"
    );
    assert!(detail.contains(&provider.issuer) && detail.contains("503"), "{detail}");
    assert_eq!(asked(&world, "static").await.0, 200, "static tokens need no provider");
    provider.set_down(false);
    assert_eq!(asked(&world, &old.sign(&claims)).await.0, 200);
    provider.set_down(true);
    assert_eq!(asked(&world, &old.sign(&claims)).await.0, 200, "a cached key");
    let refused = asked(&world, &new.sign(&claims)).await;
    assert_eq!(
        (refused.0, refused.1.as_str()),
        (503, "KEYS_UNAVAILABLE"),
        "the key may exist"
    );
    provider.set_down(false);
    provider.publish(&[&old, &new]);
    assert_eq!(asked(&world, &new.sign(&claims)).await.0, 200);
    provider.publish(&[&new]);
    assert_eq!(
        asked(&world, &unknown.sign(&claims)).await.0,
        401,
        "the provider has no such key"
    );
    assert_eq!(asked(&world, &old.sign(&claims)).await.0, 401, "a withdrawn key");
    assert_eq!(asked(&world, &new.sign(&claims)).await.0, 200);
}

#[tokio::test]
async fn invented_keys_cause_few_requests_to_the_provider() {
    let (known, unknown) = (Signer::es256("known"), Signer::es256("unknown"));
    let provider = Provider::new(&[&known]).await;
    let options = JwtOptions {
        retry: Duration::from_hours(1),
        ..provider.options()
    };
    let world = world_of(JwtVerifier::new(options).expect("valid options")).await;
    let claims = provider.claims();
    for number in 0..20 {
        let invented = Signer {
            id: format!("invented-{number}"),
            ..Signer::es256("")
        };
        assert_eq!(asked(&world, &invented.sign(&claims)).await.0, 401);
    }
    assert_eq!(asked(&world, &known.sign(&claims)).await.0, 200);
    assert_eq!(asked(&world, &unknown.sign(&claims)).await.0, 401);
    assert_eq!(provider.fetches(), 1);
}

#[tokio::test]
async fn keys_of_another_issuer_are_refused() {
    let signer = Signer::es256("a");
    let provider = Provider::new(&[&signer]).await;
    provider.pretend("https://other.example");
    let world = world_of(provider.verifier()).await;
    let refused = asked(&world, &signer.sign(&provider.claims())).await;
    assert_eq!((refused.0, refused.1.as_str()), (503, "KEYS_UNAVAILABLE"));
    for url in ["http://login.example.com", "ftp://127.0.0.1", "login.example.com", ""] {
        assert!(JwtVerifier::new(JwtOptions::new(url, "pirn")).is_err(), "{url}");
    }
    assert!(JwtVerifier::new(JwtOptions::new("https://login.example.com", "")).is_err());
}

#[tokio::test]
async fn each_role_permits_exactly_its_requests() {
    let signer = Signer::es256("a");
    let provider = Provider::new(&[&signer]).await;
    let options = JwtOptions {
        roles_claim: "/realm/roles".to_owned(),
        ..provider.options()
    };
    let world = world_of(JwtVerifier::new(options).expect("valid options")).await;
    let token = |roles: Value| {
        let mut claims = provider.claims();
        claims["realm"] = json!({ "roles": roles });
        signer.sign(&claims)
    };
    let admin = token(json!(["admin"]));
    let start = |workflow: &str| world.post("/v1/runs", &json!({"workflow": workflow, "input": {}}));
    let run = answer(with_token(start("asks"), &admin)).await.body["runId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let question = loop {
        let open = answer(with_token(world.get(&format!("/v1/runs/{run}/interactions")), &admin))
            .await
            .body;
        if let Some(id) = open["interactions"][0]["id"].as_str() {
            break id.to_owned();
        }
    };
    // Whether each role may read, start, cancel, answer, read metrics.
    for (roles, expected) in [
        (json!([]), [false; 5]),
        (json!(["offline_access"]), [false; 5]),
        (json!(["read"]), [true, false, false, false, true]),
        (json!("pirn:run openid"), [true, true, true, false, true]),
        (json!(["pirn.answer"]), [true, false, false, true, true]),
        (json!(["admin"]), [true; 5]),
        (json!({"admin": true}), [false; 5]),
    ] {
        let token = token(roles.clone());
        let requests = [
            world.get("/v1/runs"),
            start("echo"),
            world.post("/v1/runs/nothing/cancel", &json!({})),
            world.post(&format!("/v1/interactions/{question}"), &json!({"answer": "green"})),
            world.get("/metrics"),
        ];
        for (place, request) in requests.into_iter().enumerate() {
            let answer = answer(with_token(request, &token)).await;
            assert_eq!(
                answer.status != 403,
                expected[place],
                "request {place} with {roles}: {}",
                answer.body
            );
            if answer.status == 403 {
                assert_eq!(answer.body["code"], "FORBIDDEN");
            }
        }
    }
    let agui = world.post("/v1/agui/echo", &json!({"threadId": "t", "runId": "r", "messages": []}));
    assert_eq!(refusal(with_token(agui, &token(json!(["read"])))).await.0, 403);
    let mcp = world.post("/mcp", &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    assert_eq!(refusal(with_token(mcp, &token(json!(["answer"])))).await.0, 403);
    // The author of an answer is the subject of the token, unless the client states another one.
    let answered = world.post(&format!("/v1/interactions/{question}"), &json!({"answer": "red"}));
    assert_eq!(answer(with_token(answered, &token(json!("answer")))).await.status, 200);
    let report = loop {
        let report = answer(with_token(world.get(&format!("/v1/runs/{run}")), &admin))
            .await
            .body;
        if report["status"] == "COMPLETED" {
            break report;
        }
    };
    assert_eq!(report["output"], json!(["red", "ada"]));
}

#[tokio::test]
async fn a_token_without_a_tenant_is_refused_unless_it_is_an_administrators() {
    let signer = Signer::es256("a");
    let provider = Provider::new(&[&signer]).await;
    let options = JwtOptions {
        tenant_claim: Some("org".to_owned()),
        ..provider.options()
    };
    let world = world_of(JwtVerifier::new(options).expect("valid options")).await;
    let token = |roles: &str, org: Value| {
        let mut claims = provider.claims();
        (claims["roles"], claims["org"]) = (json!(roles), org);
        if claims["org"].is_null() {
            claims.as_object_mut().expect("claims").remove("org");
        }
        signer.sign(&claims)
    };
    for (roles, org, status) in [
        ("run", Value::Null, 403),
        ("run", json!(""), 403),
        ("run", json!(7), 403),
        ("admin", json!(["acme"]), 403),
        ("admin", Value::Null, 200),
        ("run", json!("acme"), 200),
        ("run", json!("auth0|acme/Ä b"), 200),
    ] {
        assert_eq!(
            asked(&world, &token(roles, org.clone())).await.0,
            status,
            "{roles} {org}"
        );
    }
    let start = |token: &str, metadata: Value| {
        let body = json!({"workflow": "whose", "metadata": metadata});
        with_token(world.post("/v1/runs?wait=10", &body), token)
    };
    let acme = token("run", json!("acme"));
    let run = answer(start(&acme, json!({"user": "ada"}))).await;
    assert_eq!(run.status, 201, "{}", run.body);
    assert_eq!(run.body["output"], json!({"user": "ada", "tenant": "acme"}));
    let whose = answer(start(&acme, json!({"tenant": "other"}))).await;
    assert_eq!(
        (whose.status.as_u16(), whose.body["pointer"].as_str()),
        (422, Some("/metadata/tenant"))
    );
}

#[tokio::test]
async fn readiness_follows_the_store_and_the_engine() {
    let world = World::new().await;
    assert_eq!(answer(world.get("/readyz")).await.status, 200, "without a store");
    let (store, _gate) = GatedStore::new();
    let is_broken = store.is_broken();
    let world = World::of(Engine::builder().store(store), Options::default()).await;
    assert_eq!(answer(world.get("/readyz")).await.status, 200);
    for broken in [true, false] {
        is_broken.store(broken, Ordering::SeqCst);
        // A result is repeated for half a second.
        while (answer(world.get("/readyz")).await.status == 503) != broken {}
    }
    is_broken.store(true, Ordering::SeqCst);
    let refused = loop {
        let answer = answer(world.get("/readyz")).await;
        if answer.status == 503 {
            break answer;
        }
    };
    assert_eq!(
        (refused.body["code"].as_str(), refused.headers["retry-after"].as_bytes()),
        (Some("STORE_UNREACHABLE"), &b"1"[..])
    );
    assert_eq!(answer(world.get("/healthz")).await.status, 200);
    world.service.drain();
    assert_eq!(refusal(world.get("/readyz")).await, (503, "DRAINING".into()));
    assert_eq!(answer(world.get("/healthz")).await.status, 200);
}
