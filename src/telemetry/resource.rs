//! The resource that everything which is exported belongs to.

use opentelemetry_sdk::Resource;

use super::names;

/// A resource of this `service.name` (default `pirn`), with the attributes of the environment's `OTEL_RESOURCE_ATTRIBUTES`.
pub(crate) fn resource(service_name: Option<&str>) -> Resource {
    let name = service_name.unwrap_or(names::SCOPE).to_owned();
    Resource::builder().with_service_name(name).build()
}
