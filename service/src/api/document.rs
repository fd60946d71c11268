//! Parts of the OpenAPI document that all routes share.

use utoipa::openapi::path::Operation;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, PathItem, Ref, Response};

/// Name of the bearer token's security scheme.
const TOKEN: &str = "token";

/// Adds the parts that every route has: the optional bearer token, and the errors that every route may return.
pub(super) fn complete(document: &mut OpenApi) {
    for path in document.paths.paths.values_mut() {
        for operation in operations(path) {
            let responses = &mut operation.responses.responses;
            responses
                .entry("default".to_owned())
                .or_insert_with(|| problem().into());
        }
    }
    if let Some(components) = &mut document.components {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.security_schemes.insert(TOKEN.to_owned(), scheme.into());
    }
    let token = SecurityRequirement::new(TOKEN, [""; 0]);
    document.security = Some(vec![SecurityRequirement::default(), token]);
}

fn operations(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get, put, post, delete, ..
    } = path;
    [get, put, post, delete].into_iter().flatten()
}

fn problem() -> Response {
    let schema = Ref::from_schema_name("Problem");
    ResponseBuilder::new()
        .description("Any other error, identified by its code")
        .content(
            "application/problem+json",
            ContentBuilder::new().schema(Some(schema)).build(),
        )
        .build()
}
