//! The resource attributes of all exported spans and metrics.

use opentelemetry_sdk::Resource;

use super::names;

/// Creates a resource with this `service.name` (default `pirn`) and the attributes in `OTEL_RESOURCE_ATTRIBUTES`.
pub(super) fn resource(service_name: Option<&str>) -> Resource {
    let name = service_name.unwrap_or(names::SCOPE).to_owned();
    Resource::builder().with_service_name(name).build()
}
