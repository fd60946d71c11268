#[cfg(all(feature = "tools", unix))]
mod command;
#[cfg(feature = "tools")]
mod http;
mod registry;
#[cfg(feature = "tools")]
mod world;
