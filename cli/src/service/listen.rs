//! The socket of `pirn serve`: TCP with or without TLS, a unix socket, or the socket that systemd opened.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use pirn_service::{Listener, Tls};
use tokio::net::{TcpListener, TcpSocket};

use crate::output::failure::Failure;

/// Maximum number of connections that wait to be accepted. The system may have a lower limit.
///
/// The default of tokio is 128. The kernel drops the packets of further clients, which repeat them after a second: a burst of clients
/// would delay all others, probes of the service's health among them.
const BACKLOG: u32 = 1_024;

/// Binds a TCP socket and listens on it.
///
/// # Errors
/// Fails if the address is in use, is not one of this machine, or needs privileges.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted service can bind while connections of the previous one are closing. On Windows the option would let two
    // services share the port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a unix socket and listens on it.
#[cfg(unix)]
fn bind_unix(path: &std::path::Path) -> io::Result<tokio::net::UnixListener> {
    let socket = tokio::net::UnixSocket::new_stream()?;
    socket.bind(path)?;
    socket.listen(BACKLOG)
}

/// The address of `--listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(std::path::PathBuf),
    /// The first socket of systemd's socket activation.
    #[cfg(unix)]
    Systemd,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[cfg(unix)]
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        #[cfg(unix)]
        if text == "systemd" {
            return Ok(Self::Systemd);
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric
            .parse()
            .map(Self::Tcp)
            .map_err(|_| "expected an address and a port, such as 127.0.0.1:7474, or unix:PATH, or systemd".to_owned())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            #[cfg(unix)]
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            #[cfg(unix)]
            Self::Systemd => f.write_str("systemd"),
        }
    }
}

impl ListenAddress {
    /// True if only programs on this machine can connect.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            #[cfg(unix)]
            Self::Unix(_) => true,
            // The unit of the socket determines the address.
            #[cfg(unix)]
            Self::Systemd => false,
        }
    }

    /// True for the address of a TCP socket.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Returns the host by which clients name a TCP address.
    pub(crate) fn host(&self) -> Option<String> {
        match self {
            Self::Tcp(SocketAddr::V4(address)) => Some(address.ip().to_string()),
            Self::Tcp(SocketAddr::V6(address)) => Some(format!("[{}]", address.ip())),
            #[cfg(unix)]
            Self::Unix(_) | Self::Systemd => None,
        }
    }

    /// Opens the socket. Returns it with its address as text, and the address itself if it is TCP. Must be called in a runtime.
    pub(crate) fn open(&self, tls: Option<&Tls>) -> Result<(Listener, String, Option<SocketAddr>), Failure> {
        let refused =
            |why: &dyn fmt::Display| Failure::usage("CANNOT_LISTEN", format!("cannot listen on {self}: {why}"));
        let tcp = |listener: TcpListener| {
            let address = listener.local_addr().map_err(|error| refused(&error))?;
            Ok::<_, Failure>(match tls {
                Some(tls) => (
                    Listener::Tls(listener, tls.clone()),
                    format!("https://{address}"),
                    Some(address),
                ),
                None => (Listener::Tcp(listener), format!("http://{address}"), Some(address)),
            })
        };
        match self {
            Self::Tcp(address) => tcp(bind_tcp(*address).map_err(|error| {
                let failure = refused(&error);
                match error.kind() {
                    std::io::ErrorKind::AddrInUse => failure.with_help(
                        "a process listens there: stop it, or take another port with --listen (port 0: any free one)",
                    ),
                    std::io::ErrorKind::PermissionDenied => {
                        failure.with_help("ports below 1024 need privileges: take a higher one")
                    }
                    _ => failure,
                }
            })?),
            #[cfg(unix)]
            Self::Unix(path) => {
                remove_stale(path).map_err(|error| refused(&error))?;
                let listener = bind_unix(path).map_err(|error| refused(&error))?;
                Ok((Listener::Unix(listener), self.to_string(), None))
            }
            #[cfg(unix)]
            Self::Systemd => {
                let mut passed = listenfd::ListenFd::from_env();
                let unusable = |error: std::io::Error| refused(&error);
                // A descriptor of another kind is an error of both calls.
                if let Ok(Some(listener)) = passed.take_tcp_listener(0) {
                    listener.set_nonblocking(true).map_err(unusable)?;
                    return tcp(TcpListener::from_std(listener).map_err(unusable)?);
                }
                if let Ok(Some(listener)) = passed.take_unix_listener(0) {
                    listener.set_nonblocking(true).map_err(unusable)?;
                    let listener = tokio::net::UnixListener::from_std(listener).map_err(unusable)?;
                    return Ok((Listener::Unix(listener), "the socket of systemd".to_owned(), None));
                }
                let failure = refused(&"no listening socket was passed (LISTEN_FDS)");
                Err(failure.with_help("start the service by its socket unit"))
            }
        }
    }
}

/// Removes the socket of a process that has ended. A socket on which a process listens, and any other file, stay.
#[cfg(unix)]
fn remove_stale(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed() {
        for text in ["127.0.0.1:7474", "[::1]:80", "unix:/run/pirn.sock", "systemd"] {
            let address: ListenAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        for wrong in ["", "localhost", "unix:", "127.0.0.1", "fd:3"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
        let is_local = |text: &str| text.parse::<ListenAddress>().expect(text).is_local();
        assert!(is_local("127.0.0.1:1") && is_local("unix:x") && !is_local("0.0.0.0:1") && !is_local("systemd"));
    }
}
