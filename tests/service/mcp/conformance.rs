//! The MCP project's conformance suite against a service with workflows for the tools that the suite calls.

use crate::command::{Served, root};
use crate::servers;

#[test]
fn the_mcp_conformance_suite_passes_except_for_inapplicable_scenarios() {
    let Some(mut suite) = servers::conformance() else {
        return;
    };
    let served = Served::start(root(), &["tests/servers/conformance.json"]);
    let output = suite
        .args([
            "server",
            "--suite",
            "all",
            "--url",
            &format!("{}/mcp", served.url.trim()),
        ])
        .arg("--expected-failures")
        .arg(root().join("tests/servers/conformance.yml"))
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Baseline check passed"), "{said}");
    // A suite without scenarios would pass too.
    for scenario in [
        "server-initialize",
        "tools-call-elicitation",
        "dns-rebinding-protection",
    ] {
        assert!(said.contains(&format!("✓ {scenario}:")), "{scenario}: {said}");
    }
}
