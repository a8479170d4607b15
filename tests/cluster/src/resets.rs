//! Connections that end before their time, as something in between ends them: a host gets a reset for whatever it sends to a
//! port, and the other end hears of nothing.

use anyhow::Context;

use crate::{network::Host, process::run};

/// What is done to all that a host sends to a port, for as long as this is not dropped.
pub struct Resets {
    host: Host,
    port: u16,
}

impl Resets {
    /// Ends the host's connections to the port as soon as it sends something, and lets none begin.
    pub fn of(host: Host, port: u16) -> anyhow::Result<Self> {
        let resets = Self { host, port };
        resets.rule("-I")?;
        Ok(resets)
    }

    /// How many packets met it so far.
    pub fn number(&self) -> anyhow::Result<u64> {
        let told = iptables(self.host, &["-nvxL", "OUTPUT"])?;
        let port = format!("dpt:{}", self.port);
        let rule = told
            .lines()
            .find(|line| line.split_whitespace().any(|word| word == port));
        let number = rule.and_then(|rule| rule.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("iptables tells of no rule for {port}: {told}"))
    }

    fn rule(&self, verb: &str) -> anyhow::Result<()> {
        let port = self.port.to_string();
        let of_port = [verb, "OUTPUT", "-p", "tcp", "--dport", &port];
        let reset = ["-j", "REJECT", "--reject-with", "tcp-reset"];
        iptables(self.host, &[&of_port[..], &reset].concat()).map(drop)
    }
}

impl Drop for Resets {
    fn drop(&mut self) {
        // Where there is nothing, all the better.
        let _ = self.rule("-D");
    }
}

fn iptables(host: Host, arguments: &[&str]) -> anyhow::Result<String> {
    let there = ["netns", "exec", host.name, "iptables", "-w"];
    run("ip", &[&there, arguments].concat())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use anyhow::ensure;

    use super::*;
    use crate::network::{EDGE, HARNESS, alone};

    fn connections_end() -> anyhow::Result<()> {
        let here = TcpListener::bind((HARNESS, 0))?;
        let to = here.local_addr()?;
        let connect = move || EDGE.within(move || Ok(TcpStream::connect(to)?));
        let mut there = connect()?;
        let (mut accepted, _) = here.accept()?;
        accepted.set_nonblocking(true)?;

        let resets = Resets::of(EDGE, to.port())?;
        ensure!(resets.number()? == 0, "it meets what nobody sent");
        there.write_all(b"x")?;
        let ended = there.read(&mut [0]).map_err(|error| error.kind());
        ensure!(ended == Err(ErrorKind::ConnectionReset), "it goes on: {ended:?}");
        let heard = accepted.read(&mut [0]).map_err(|error| error.kind());
        ensure!(heard == Err(ErrorKind::WouldBlock), "the other end hears: {heard:?}");
        ensure!(connect().is_err(), "another one begins");
        ensure!(resets.number()? > 1, "it met {} packets", resets.number()?);

        drop(resets);
        connect().context("and afterwards as before").map(drop)
    }

    #[test]
    fn connections_of_a_host_to_a_port_end_at_one_end_alone() {
        if run("iptables", &["--version"]).is_err() {
            eprintln!("skipped: there is no iptables");
            return;
        }
        alone(connections_end).unwrap();
    }
}
