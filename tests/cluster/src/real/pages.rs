//! The pages whose commands the tour runs as they stand there.
//!
//! Decides what a reader would put in for a page's placeholders, and whether a command was left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, bail, ensure};

use super::Tour;
use crate::network::CLOUD;

/// About installing.
pub const INSTALLING: &str = "docs/installing.md";
/// About edge nodes over mutual TLS.
pub const JOINING: &str = "docs/edge-nodes.md";
/// About a cluster that Sedna runs.
pub const MIGRATING: &str = "docs/migrating-from-sedna.md";

/// Commands that are not run by the tour itself, and what runs them.
const ELSEWHERE: [(&str, &str); 3] = [
    (
        "rustup target add x86_64-unknown-linux-musl",
        "the harness, where the target is missing",
    ),
    (
        "cargo run -p skerry-dist -- images",
        "the harness, before the hosts are started",
    ),
    (
        "systemctl enable --now skerry-localcontroller",
        "whoever has a systemd; what that makes of the unit is tested in dist/",
    ),
];

/// The address that pages use for a node's.
const SOME_ADDRESS: &str = "203.0.113.10";

/// The commands of the pages.
pub struct Pages {
    commands: BTreeMap<&'static str, Vec<String>>,
    /// The page and the command.
    pub(super) followed: BTreeSet<(String, String)>,
}

impl Pages {
    /// Reads them all.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut commands = BTreeMap::new();
        for page in [INSTALLING, JOINING, MIGRATING] {
            let text = fs::read_to_string(root.join(page)).with_context(|| format!("reading {page}"))?;
            commands.insert(page, commands_of(&text));
        }
        Ok(Self {
            commands,
            followed: BTreeSet::new(),
        })
    }
}

/// What follows `$ `, or `# ` where it is root's, in the `console` blocks, lines that end in `\` joined with the next, comments left out.
fn commands_of(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside && line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").or(line.strip_prefix("# ")).filter(|_| inside) {
            let command = command.split(" # ").next().unwrap_or(command);
            commands.push(command.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    commands
}

impl Tour<'_> {
    /// Runs the page's commands in which this occurs, in their order.
    pub(super) fn follow(&mut self, page: &'static str, part: &str) -> anyhow::Result<String> {
        self.follow_with(page, part, &[])
    }

    /// The same, with something put in for placeholders.
    pub(super) fn follow_with(
        &mut self,
        page: &'static str,
        part: &str,
        instead: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        self.follow_by(page, part, |tour, line| {
            let mut line = line.to_owned();
            for (placeholder, value) in instead {
                line = line.replace(placeholder, value);
            }
            tour.shell(&line)
        })
    }

    /// The same, run by other means.
    pub(super) fn follow_by(
        &mut self,
        page: &'static str,
        part: &str,
        run: impl Fn(&Self, &str) -> anyhow::Result<String>,
    ) -> anyhow::Result<String> {
        let all = self.pages.commands.get(page).into_iter().flatten();
        let commands: Vec<_> = all.filter(|command| command.contains(part)).cloned().collect();
        if commands.is_empty() {
            bail!("{page} has no command with `{part}` in it any more");
        }
        let address = CLOUD.address.to_string();
        let mut told = String::new();
        for command in commands {
            let line = command.replace(SOME_ADDRESS, &address);
            told += &run(self, &line).with_context(|| format!("{page}: $ {command}"))?;
            self.pages.followed.insert((page.to_owned(), command));
        }
        Ok(told)
    }
}

/// No command of the pages was left out.
pub fn all_were_run(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let elsewhere = |command: &String| ELSEWHERE.iter().any(|(known, _)| known == command);
    let pages = &tour.pages;
    let mut left_out = Vec::new();
    for (page, commands) in &pages.commands {
        let followed = |command: &&String| pages.followed.contains(&((*page).to_owned(), (*command).clone()));
        let left = commands
            .iter()
            .filter(|command| !followed(command) && !elsewhere(command));
        left_out.extend(left.map(|command| format!("{page}: $ {command}")));
    }
    ensure!(left_out.is_empty(), "never run:\n{}", left_out.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_console_blocks() {
        let page = "$ not this\n```console\n$ a \\\n    --b   # until c\nprinted\n# d\n```\n```sh\n$ nor this\n```\n# Nor that\n";
        assert_eq!(commands_of(page), ["a --b", "d"]);
    }
}
