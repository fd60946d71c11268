//! `pirn studio FILE...`: `pirn serve` that prints the address of the page and opens it in a browser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, ExitCode, Stdio};

use super::serve::{self, Mode};
use crate::output::failure::Failure;
use crate::output::terminal::answer;

/// Arguments of `pirn studio`.
#[derive(clap::Args)]
// The flattened arguments are a group named after their type, which has the same name.
#[group(skip)]
#[command(after_help = "\
Examples:
  pirn studio workflow.json
  pirn studio workflow.json --store runs.db --no-open

All options of pirn serve apply. The page is at /studio/ of the address, also with pirn serve.

Exit codes: 0 stopped by a signal and every run has ended, 1 a file is invalid or a run did not end, 2 wrong usage or an unreadable file.")]
pub(crate) struct Args {
    #[command(flatten)]
    serve: serve::Args,
    /// Open no browser
    #[arg(long)]
    no_open: bool,
}

/// Serves until a stop signal arrives.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.serve.studio == Some(Mode::Off) {
        let failure = Failure::usage(
            "USAGE",
            "pirn studio is nothing but the page, and --studio off removes it",
        );
        return Err(failure.with_help("use pirn serve"));
    }
    if !args.serve.listen.is_tcp() {
        let message = format!("a browser cannot open {}", args.serve.listen);
        return Err(Failure::usage("USAGE", message).with_help("give --listen an address and a port"));
    }
    serve::serve_files(&args.serve, &|scheme, address| {
        let page = page(scheme, address);
        answer(&format!("{page}\n"), 0);
        if !args.no_open {
            open(&page);
        }
    })
}

/// Returns the address of the page for a browser on this machine: no browser connects to the wildcard address.
fn page(scheme: &str, address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("{scheme}://{}/studio/", SocketAddr::new(ip, address.port()))
}

/// Opens an address in the user's browser. Does nothing if there is none: the address is printed.
fn open(page: &str) {
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        // `start` is a command of the shell; its first quoted argument would be a title.
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(page);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        // Wait in a thread: an ended child stays in the table of processes until it is waited for.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => tracing::debug!(%error, program, "no browser was opened"),
    }
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn the_page_of_a_wildcard_address_is_on_the_loopback_interface() {
        for (listen, shown) in [
            ("127.0.0.1:7474", "http://127.0.0.1:7474/studio/"),
            ("0.0.0.0:80", "http://127.0.0.1:80/studio/"),
            ("[::]:7474", "http://[::1]:7474/studio/"),
            ("10.1.2.3:7474", "http://10.1.2.3:7474/studio/"),
        ] {
            assert_eq!(page("http", listen.parse().expect("an address")), shown);
        }
    }
}
