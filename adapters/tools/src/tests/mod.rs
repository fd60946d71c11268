#[cfg(all(feature = "tools", unix))]
mod command;
#[cfg(feature = "tools")]
mod fixtures;
#[cfg(feature = "tools")]
mod http;
#[cfg(feature = "mcp")]
mod mcp;
mod registry;
