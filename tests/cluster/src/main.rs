//! `tests/cluster/run`: builds a real Kubernetes, starts it, runs the scenarios on it.

use std::{
    env,
    ffi::OsString,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::Context;
use skerry_cluster::{
    artifacts::Workshop,
    control_plane::{ControlPlane, Site},
    enclosure,
};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match act(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    if let Some((role, rest)) = arguments.split_first()
        && let Some(role) = enclosure::ROLES.into_iter().find(|known| role == known)
    {
        return enclosure::play(role, rest);
    }
    if arguments.first().is_some_and(|first| first == "within") {
        return within();
    }
    let workshop = Workshop::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes"))?;
    let kubernetes = workshop.kubernetes()?;
    let status = enclosure::enclose(&["within".into(), kubernetes.into()])?;
    Ok(enclosure::code(status))
}

fn within() -> anyhow::Result<ExitCode> {
    let kubernetes = env::args_os().nth(2).map(PathBuf::from).context("no program")?;
    let begun = std::time::Instant::now();
    let plane = ControlPlane::start(Site {
        kubernetes,
        folder: Path::new(enclosure::FOLDER).join("plane"),
        address: Ipv4Addr::LOCALHOST,
        port: 6443,
        netns: None,
        hasty: true,
    })?;
    eprintln!("ready after {:?}", begun.elapsed());
    println!("{}", plane.kubectl(&["get", "namespaces"])?);
    Command::new("ps").arg("ax").status()?;
    Ok(ExitCode::SUCCESS)
}
