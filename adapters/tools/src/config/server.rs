//! One entry of `[[mcpServers]]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pirn_definition::Millis;

use super::fields::Fields;
use super::limits::CallLimits;
use super::tool;

/// Default time for a server to start and list its tools, in milliseconds.
const DEFAULT_START: Millis = 30_000;
/// Maximum configurable time for it.
const MOST_START: Millis = 600_000;
/// Default number of restarts of a server that has exited.
const DEFAULT_RESTARTS: u64 = 3;
/// Maximum configurable number of restarts.
const MOST_RESTARTS: u64 = 1_000_000;

/// An MCP server as a config file describes it.
#[derive(Clone, Debug)]
pub struct McpServerConfig {
    /// The server's id in errors, and the default prefix of its tools' names.
    pub id: String,
    /// Prefix of the tools' names (default: the id and `_`).
    pub prefix: String,
    /// The server's tools to offer, by the server's names; `None`: all.
    pub tools: Option<Vec<String>>,
    /// Milliseconds within which the server must have listed its tools.
    pub start_timeout: Millis,
    /// Limits on the calls of each tool.
    pub limits: CallLimits,
    /// Number of restarts after the server has exited unexpectedly.
    pub restarts: u64,
    /// Folders that the server receives as its roots.
    pub roots: Vec<PathBuf>,
    /// Profile that serves the server's sampling requests; `None`: such requests are refused.
    pub sampling: Option<String>,
    pub(crate) transport: Transport,
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Stdio(StdioConfig),
    Http {
        url: String,
        headers: BTreeMap<String, String>,
        headers_env: BTreeMap<String, String>,
        oauth: Option<OauthConfig>,
    },
}

/// Settings to obtain access tokens by OAuth's client credentials flow.
#[derive(Clone, Debug)]
pub(crate) struct OauthConfig {
    pub(crate) token_url: String,
    pub(crate) client_id: String,
    /// Environment variable of the client's secret.
    pub(crate) secret_env: String,
    pub(crate) is_in_body: bool,
    pub(crate) scope: Option<String>,
    /// The resource indicator for the tokens; empty: none.
    pub(crate) resource: String,
}

/// A server that is a local program.
#[derive(Clone, Debug)]
pub(crate) struct StdioConfig {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) env_from: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
}

pub(super) fn read(fields: &mut Fields<'_>, folder: &Path) -> McpServerConfig {
    let id = fields.required("id");
    let names_prefix = if fields.has("prefix") { "prefix" } else { "id" };
    let prefix = fields.text("prefix").unwrap_or_else(|| format!("{id}_"));
    if !prefix.is_empty() && !tool::is_name(&prefix) {
        fields.fault(
            names_prefix,
            "has characters, or a length, that no tool's name may have",
        );
    }
    let tools = fields.has("tools").then(|| fields.texts("tools"));
    let limits = CallLimits::read(fields);
    let start_timeout = fields.number("startTimeoutMs", 1..=MOST_START).unwrap_or(DEFAULT_START);
    let restarts = fields.number("restarts", 0..=MOST_RESTARTS).unwrap_or(DEFAULT_RESTARTS);
    let roots = fields.texts("roots");
    let roots = roots.into_iter().map(|root| absolute(&folder.join(root))).collect();
    let sampling = fields.text("sampling");
    let transport = match (fields.has("command"), fields.has("url")) {
        (true, false) => Transport::Stdio(StdioConfig {
            program: tool::program_at(&fields.required("command"), folder),
            args: fields.texts("args"),
            env: fields.text_table("env"),
            env_from: fields.variables("envFrom"),
            cwd: fields.text("cwd").map(|path| folder.join(path)),
        }),
        (false, true) => http(fields),
        (both, _) => {
            fields.fault(
                "",
                if both {
                    "a server has one of `command` and `url`, not both"
                } else {
                    "a server needs a `command` or a `url`"
                },
            );
            fields.forget(&[
                "command",
                "url",
                "args",
                "env",
                "envFrom",
                "cwd",
                "headers",
                "headersEnv",
                "oauth",
            ]);
            Transport::Http {
                url: String::new(),
                headers: BTreeMap::new(),
                headers_env: BTreeMap::new(),
                oauth: None,
            }
        }
    };
    McpServerConfig {
        id,
        prefix,
        tools,
        start_timeout,
        limits,
        restarts,
        roots,
        sampling,
        transport,
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn http(fields: &mut Fields<'_>) -> Transport {
    let url = url_of(fields, "url");
    let (headers, headers_env) = tool::header_tables(fields);
    let example = "oauth = { tokenUrl = \"https://...\", clientId = \"...\", clientSecretEnv = \"...\" }";
    let oauth = fields.table("oauth", example);
    let oauth = oauth.map(|table| fields.within("oauth", table, |fields| oauth_of(fields, &url)));
    if oauth.is_some() {
        let all = headers.keys().chain(headers_env.keys());
        if all.into_iter().any(|name| name.eq_ignore_ascii_case("authorization")) {
            fields.fault("oauth", "gives the `Authorization` header, which `headers` gives too");
        }
    }
    Transport::Http {
        url,
        headers,
        headers_env,
        oauth,
    }
}

fn oauth_of(fields: &mut Fields<'_>, server: &str) -> OauthConfig {
    let token_url = url_of(fields, "tokenUrl");
    if is_in_the_clear(&token_url) {
        fields.fault(
            "tokenUrl",
            "must begin with https://: the secret would be readable on its way",
        );
    }
    OauthConfig {
        token_url,
        client_id: fields.required("clientId"),
        secret_env: fields.variable("clientSecretEnv"),
        is_in_body: fields.word("clientAuth", &["basic", "post"]) == Some(1),
        scope: fields.text("scope"),
        resource: fields.text("resource").unwrap_or_else(|| server.to_owned()),
    }
}

/// Returns whether requests to a URL are unencrypted and leave this machine.
fn is_in_the_clear(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| {
        let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        url.scheme() == "http" && !is_here
    })
}

fn url_of(fields: &mut Fields<'_>, name: &'static str) -> String {
    let url = fields.required(name);
    if !url.is_empty() {
        match reqwest::Url::parse(&url) {
            Ok(url) if ["http", "https"].contains(&url.scheme()) => {}
            Ok(_) => fields.fault(name, "must begin with http:// or https://"),
            Err(error) => fields.fault(name, format!("is not a URL: {error}")),
        }
    }
    url
}

impl McpServerConfig {
    /// Returns the server's source, for display.
    pub fn source(&self) -> String {
        format!("mcp {}", self.id)
    }

    /// Returns the names of the server's tools, or the prefix of their names with `*` if the entry does not list them.
    pub(super) fn names(&self) -> Vec<String> {
        match &self.tools {
            None => vec![format!("{}*", self.prefix)],
            Some(tools) => tools.iter().map(|theirs| self.name_of(theirs)).collect(),
        }
    }

    /// Returns the registered name of a server's tool: `_` replaces characters that are invalid here (MCP allows dots and slashes).
    pub(crate) fn name_of(&self, theirs: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let plain = theirs.chars().map(|c| if is_plain(c) { c } else { '_' });
        self.prefix.chars().chain(plain).collect()
    }
}
