//! The tools that some tests drive, and that a machine may lack. Such a test is skipped there; [`missing`] tells of it at
//! the end of `cargo test`.

use std::path::Path;

/// A tool, and what is not tested without it.
const TOOLS: [(&str, &str); 2] = [
    ("kubectl", "what an unmodified kubectl sees of the sandbox"),
    ("helm", "what helm itself makes of the chart"),
];

/// What is not tested where no control plane is lent.
pub const NO_CONTROL_PLANE: &str = "no control plane is lent (see tests/cluster/run), so this was not tested: whether the \
                                    sandbox answers as Kubernetes does, and what only Kubernetes can show";

/// Whether a tool is on `PATH`.
pub fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(tool))
        .any(|file| Path::is_file(&file))
}

/// Whether there is a `kubectl`. Panics where there has to be one and is not, as in `.ci/run`.
pub fn kubectl_is_there() -> bool {
    let found = is_there("kubectl");
    assert!(
        found || std::env::var("SKERRY_REQUIRE_KUBECTL").as_deref() != Ok("1"),
        "no kubectl on PATH, and SKERRY_REQUIRE_KUBECTL=1 asks for one"
    );
    found
}

/// A line for each tool that is missing, a control plane among them: what was skipped.
pub fn missing() -> Vec<String> {
    let tools = TOOLS
        .into_iter()
        .filter(|(tool, _)| !is_there(tool))
        .map(|(tool, what)| format!("skipped: no {tool} on PATH, so this was not tested: {what}"));
    let plane = (!crate::planes::is_lent()).then(|| format!("skipped: {NO_CONTROL_PLANE}"));
    tools.chain(plane).collect()
}
