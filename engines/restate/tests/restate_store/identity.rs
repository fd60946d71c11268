//! Tokens for the server, and signatures of its calls.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use futures::executor::block_on;
use pirn_restate::{ConnectError, Endpoint, RestateOptions, RestateStore};
use pirn_store::Store as _;
use rcgen::{KeyPair, PKCS_ED25519};

use crate::begun;
use crate::server::{Server, free_port};

/// Returns the public key that the server has logged.
fn public_key(server: &Server) -> String {
    let log = server.said();
    let at = log.find("publickeyv1_").unwrap_or_else(|| panic!("no key in {log}"));
    let key = log[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    key.expect("a key").to_owned()
}

#[test]
fn a_worker_with_identity_keys_refuses_calls_that_none_of_them_signed() {
    let key = || KeyPair::generate_for(&PKCS_ED25519).expect("a key").serialize_pem();
    let Some(server) = Server::start_signing(&key()) else {
        return;
    };
    let Some(other) = Server::start_signing(&key()) else {
        return;
    };
    let open = |keys: &[String]| {
        let mut endpoint = Endpoint::at(([127, 0, 0, 1], free_port()).into());
        endpoint.identity_keys = keys.to_vec();
        let options = RestateOptions::default().admin(server.admin()).endpoint(endpoint);
        RestateStore::connect(&server.url(), options)
    };
    let (own, foreign) = (public_key(&server), public_key(&other));
    assert_ne!(own, foreign);
    // The server reads the services of an endpoint by a signed call too.
    let refused = open(std::slice::from_ref(&foreign))
        .map(drop)
        .expect_err("is not signed by the key");
    assert!(matches!(refused, ConnectError::Refused { .. }), "{refused}");
    let store = open(&[foreign, own]).expect("one of the keys is right");
    block_on(store.commit(begun("run"))).expect("is stored by a signed call");
    let malformed = open(&["publickeyv1_x".to_owned()]).map(drop).expect_err("is malformed");
    assert_eq!(malformed.code(), "INVALID_IDENTITY_KEY", "{malformed}");
}

#[test]
fn a_token_is_sent_with_each_request_and_its_refusal_is_reported() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut request, mut piece) = (String::new(), [0; 1024]);
        while !request.contains("\r\n\r\n") {
            let len = stream.read(&mut piece).expect("reads");
            request.push_str(&String::from_utf8_lossy(&piece[..len]));
        }
        let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 7\r\nconnection: close\r\n\r\nexpired";
        stream.write_all(answer.as_bytes()).expect("writes");
        request
    });
    let options = RestateOptions::default().admin(&*url).token("secret-token");
    let refused = RestateStore::connect(&url, options).map(drop).expect_err("is refused");
    assert_eq!(refused.code(), "UNAUTHORIZED", "{refused}");
    assert!(refused.to_string().contains("expired"), "{refused}");
    let request = served.join().expect("ends");
    assert!(
        request.to_lowercase().contains("authorization: bearer secret-token"),
        "{request}"
    );
}
