//! Callers of a service: tokens, roles, tenants, their limits, and malicious clients.
//!
//! Not here: memory limits of the process, which are in `process`.

mod access;
mod audit;
mod hostile;
mod identity;
mod identity_provider;
mod tenancy;
mod tenant_limits;
