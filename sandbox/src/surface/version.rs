//! `/version`.

use serde_json::{Value, json};

/// The version that the server and its nodes claim.
pub const GIT_VERSION: &str = "v1.34.0+skerry";

/// This machine's architecture, by Go's name, which clients know.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What the server says of itself. `kubectl` and controllers judge by it what a server can do.
pub fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}
