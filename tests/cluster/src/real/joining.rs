//! Nodes join over mutual TLS as the page about it says; what that link survives, and how it ends for who is turned away.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    SEDNA, Tour,
    kubernetes::{array, container_of, text},
    lifecycle::still_reports,
    pages::JOINING,
    trouble::one_container_each,
};
use crate::{
    bad_link::{BadLink, DELAY, round_trip},
    network::{CLOUD, EDGE, within},
    process::{Process, install_script, until},
    resets::Resets,
};

/// How long what is waited for may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a revocation may take, as the page says: seconds.
const REVOKED: Duration = Duration::from_secs(5);

/// The node that the page joins.
const NODE: [(&str, &str); 1] = [("edge-7", EDGE.name)];
/// Where the page puts its token, on its disk.
const TOKEN: &str = "lib/skerry/join.token";

/// The port of the local controller.
const LOCAL_CONTROLLER: u16 = 9100;
/// What it is told of a service that has a worker at the edge, but none of this name.
const MESSAGE: &str = r#"{"name": "nobody", "namespace": "default", "ownerName": "read-digits",
    "ownerKind": "jointinferenceservice", "kind": "inference", "status": "running"}"#;

/// What is answered to whoever has no business there.
const STRANGER: &str = "neither this node nor a pod of it";

/// The job that trains over a bad link.
const JOB: &str = "learn-over-a-bad-link";
/// How many rounds: of the example's, as many as the cuts take and one more.
const ROUNDS: usize = 7;
/// After which round the link is cut, too, and for how long.
const CUTS: [(usize, Duration); 2] = [(2, Duration::from_secs(4)), (5, Duration::from_secs(3))];
/// After which round the node's session is ended, of which the manager does not hear.
const RESET: usize = 3;
/// Where managers listen for nodes that have joined.
const EDGE_TLS: u16 = 9443;

/// Mutual TLS is switched on where workers run, and the edge joins.
pub fn join(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    tour.workers = tour.running_workers()?;
    tour.follow(JOINING, "globalManager.edgeTls.enabled=true")?;
    tour.wait_for_log("put there what `skerry nodes join-token edge-1` prints")?;
    ensure!(tour.connected()? == 0, "a node without a token has a session");
    tour.provide_ssh()?;
    tour.follow_with(JOINING, "join-token", &NODE)?;
    let mode = fs::metadata(tour.hosts.edge.disk().join(TOKEN))?.permissions().mode();
    ensure!(
        mode % 0o10 == 0,
        "all users of the node can read its join token: {mode:o}"
    );
    tour.wait_until_joined()?;
    let listed = tour.follow(JOINING, "skerry nodes --namespace")?;
    let expires = cell(&listed, EDGE.name, "EXPIRES").filter(|expires| *expires != "-");
    ensure!(expires.is_some(), "the node's session has no certificate:\n{listed}");
    a_used_token_lets_nobody_in(tour)?;
    others_report_nothing(tour)?;
    tour.nothing_was_restarted()?;
    still_reports(tour)
}

/// Whoever finds the token, and says the node's name, gets nothing for it.
fn a_used_token_lets_nobody_in(tour: &Tour<'_>) -> anyhow::Result<()> {
    let folder = tour.work.join("stranger");
    fs::create_dir_all(&folder)?;
    let found = folder.join("found.token");
    fs::copy(tour.hosts.edge.disk().join(TOKEN), &found)?;
    let managers = tour.managers()?;
    let manager = managers.first().context("a manager runs")?;
    let mut stranger = Command::new(tour.work.join("bin/skerry"));
    stranger
        .args(["localcontroller", "--node-name", EDGE.name, "--gm-address"])
        .arg(format!("wss://{}:{EDGE_TLS}", text(manager, "/status/podIP")))
        .args(["--bind-address", "127.0.0.1", "--bind-port", "0", "--join-token-file"])
        .arg(&found)
        .arg("--rootfs-mount-dir")
        .arg(&folder);
    let mut stranger = Process::start("stranger", &folder, stranger)?;
    let refused = until(PATIENCE, || {
        stranger.check()?;
        Ok(stranger.last_words().contains("was used before").then_some(()))
    });
    refused.with_context(|| format!("a stranger with a used token says:\n{}", stranger.last_words()))
}

/// The workers' port is open to other hosts, for their health checks; what these and their pods report is refused for where it
/// comes from, and what comes from the edge for what it says alone.
fn others_report_nothing(tour: &Tour<'_>) -> anyhow::Result<()> {
    let pod = tour.pod_of("read-digits", "cloud")?;
    let pod = tour.hosts.cloud.network_of(container_of(&pod))?;
    for (from, answer, refusal) in [
        ("the cloud", CLOUD.within(answer_to_a_worker), STRANGER),
        ("a pod in the cloud", within(pod, answer_to_a_worker), STRANGER),
        ("the edge", EDGE.within(answer_to_a_worker), "has no worker"),
    ] {
        let answer = answer.with_context(|| format!("reporting from {from}"))?;
        ensure!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(refusal),
            "from {from}: {answer}"
        );
    }
    Ok(())
}

/// What the local controller at the edge answers to the message.
fn answer_to_a_worker() -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&(EDGE.address, LOCAL_CONTROLLER).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head =
        "POST /sedna/workers/nobody/info HTTP/1.1\r\nhost: lc\r\nconnection: close\r\ncontent-type: application/json";
    let length = MESSAGE.len();
    stream.write_all(format!("{head}\r\ncontent-length: {length}\r\n\r\n{MESSAGE}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The federated example trains to its end while the link is late, loses packets, is cut twice, and carries a new session from
/// the middle on.
pub fn over_a_bad_link(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let link = BadLink::of(EDGE)?;
    until(PATIENCE, || {
        let took = round_trip((EDGE.address, LOCAL_CONTROLLER).into());
        Ok(took.filter(|took| *took > 2 * DELAY))
    })
    .context("the link gets bad")?;
    let mut job = tour.example("federated-learning/digits.yaml")?;
    for (there, here) in [
        ("name: learn-digits", format!("name: {JOB}")),
        ("value: \"10\"", format!("value: \"{ROUNDS}\"")),
    ] {
        ensure!(job.contains(there), "the example has no {there}");
        job = job.replace(there, &here);
    }
    let before = tour.connections()?;
    tour.apply(&job)?;
    let [first, second] = CUTS;
    let cut_off = |(round, long): (usize, Duration)| {
        tour.wait_for_round(JOB, round)?;
        EDGE.cut()?;
        thread::sleep(long);
        EDGE.restore()
    };
    cut_off(first)?;
    tour.wait_for_round(JOB, RESET)?;
    let resets = Resets::of(EDGE, EDGE_TLS)?;
    until(2 * PATIENCE, || Ok((resets.number()? > 0).then_some(()))).context("the node sends something")?;
    drop(resets);
    cut_off(second)?;
    tour.wait_for_success(JOB)?;
    until(PATIENCE, || Ok((tour.connections()? > before).then_some(()))).context("the node has a new session")?;
    let lost = link.lost()?;
    println!("real: {lost} packets were lost");
    ensure!(lost > 0, "no packet was lost");
    drop(link);
    nothing_is_doubled_or_lost(tour)?;
    let mut listed = String::new();
    // Managers tell of sessions every half minute.
    until(PATIENCE, || {
        listed = tour.follow(JOINING, "skerry nodes --namespace")?;
        Ok(cell(&listed, EDGE.name, "CONNECTED SINCE")
            .filter(|since| *since != "-")
            .map(drop))
    })
    .with_context(|| format!("the node is told to be connected:\n{listed}"))?;
    tour.nothing_was_restarted()
}

fn nothing_is_doubled_or_lost(tour: &Tour<'_>) -> anyhow::Result<()> {
    let mut last = vec![];
    let rounds = tour.watch(&["federatedlearningjob", JOB], PATIENCE, |job| {
        last = rounds(job).to_vec();
        let complete = last.iter().filter(|round| array(round, "/workers").len() == 2);
        (complete.count() == ROUNDS).then(|| last.clone())
    });
    let rounds = rounds.with_context(|| format!("both trainers' reports of all rounds: {last:#?}"))?;
    let numbers = rounds.iter().filter_map(|round| round.pointer("/round")?.as_u64());
    ensure!(numbers.eq(1..=ROUNDS as u64), "the rounds are {rounds:#?}");
    for (worker, wanted) in [("aggregation", 1), ("train", 2)] {
        let pods = tour.pods_of("federatedlearningjob", JOB, worker)?;
        let restarts = pods
            .iter()
            .map(|pod| pod.pointer("/status/containerStatuses/0/restartCount"));
        let restarts: Vec<_> = restarts.map(|count| count.and_then(Value::as_u64)).collect();
        ensure!(restarts == vec![Some(0); wanted], "restarts of {worker}: {restarts:?}");
    }
    one_container_each(tour)
}

/// A node that is turned away goes within seconds, stays out, and comes back by another token.
pub fn turned_away(tour: &mut Tour<'_>) -> anyhow::Result<()> {
    let begun = Instant::now();
    tour.follow_with(JOINING, "skerry nodes revoke", &NODE)?;
    tour.wait_for_sessions(REVOKED, 0)?;
    println!(
        "real: the session ended {} ms after the command began",
        begun.elapsed().as_millis()
    );
    ensure!(begun.elapsed() <= REVOKED, "after {:?}", begun.elapsed());
    // Also to one that starts anew.
    tour.kubectl(&["delete", "pods", "--namespace", SEDNA, "--selector", LOCAL_CONTROLLERS])?;
    tour.wait_for_log("was turned away")?;
    ensure!(tour.connected()? == 0, "a node that was turned away has a session");
    tour.follow_with(JOINING, "join-token", &NODE)?;
    tour.wait_until_joined()?;
    let nodes = tour.follow(JOINING, "kubectl get edgenodes")?;
    ensure!(nodes.lines().any(|line| line.starts_with(EDGE.name)), "{nodes}");
    tour.nothing_was_restarted()?;
    still_reports(tour)
}

const MANAGERS: &str = "app.kubernetes.io/name=skerry-globalmanager";
const LOCAL_CONTROLLERS: &str = "app.kubernetes.io/name=skerry-localcontroller";

impl Tour<'_> {
    /// The managers' pods, but for those on their way out.
    pub(super) fn managers(&self) -> anyhow::Result<Vec<Value>> {
        self.managers_in(SEDNA)
    }

    fn managers_in(&self, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let mut pods = self.list(&["pods", "--namespace", namespace, "--selector", MANAGERS])?;
        pods.retain(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
        Ok(pods)
    }

    /// How many nodes are connected to the managers in a namespace; nothing where one does not tell.
    fn sessions_in(&self, namespace: &str) -> anyhow::Result<Option<u64>> {
        self.sum_in(namespace, "skerry_edge_sessions")
    }

    /// How many sessions there were so far; nodes that come back have another one.
    fn connections(&self) -> anyhow::Result<u64> {
        until(PATIENCE, || self.sum_in(SEDNA, "skerry_edge_connections_total"))
            .context("managers tell how often nodes connected")
    }

    /// A figure of the managers in a namespace; nothing where one does not tell.
    fn sum_in(&self, namespace: &str, figure: &str) -> anyhow::Result<Option<u64>> {
        let told = |pod: &Value| -> Option<u64> {
            let pod = text(pod, "/metadata/name");
            let metrics = format!("/api/v1/namespaces/{namespace}/pods/{pod}:9090/proxy/metrics");
            let metrics = self.kubectl(&["get", "--raw", &metrics]).ok()?;
            let told = metrics
                .lines()
                .find_map(|line| line.strip_prefix(figure)?.strip_prefix(' '));
            told?.parse().ok()
        };
        Ok(self.managers_in(namespace)?.iter().map(told).sum())
    }

    /// The same, once all of them tell.
    pub(super) fn connected(&self) -> anyhow::Result<u64> {
        until(PATIENCE, || self.sessions_in(SEDNA)).context("managers tell how many nodes are connected")
    }

    /// Waits until so many nodes are connected.
    pub(super) fn wait_for_sessions(&self, limit: Duration, wanted: u64) -> anyhow::Result<()> {
        self.wait_for_sessions_in(SEDNA, limit, wanted)
    }

    /// The same in the namespace of other managers.
    pub(super) fn wait_for_sessions_in(&self, namespace: &str, limit: Duration, wanted: u64) -> anyhow::Result<()> {
        let mut last = None;
        until(limit, || {
            last = self.sessions_in(namespace)?;
            Ok((last == Some(wanted)).then_some(()))
        })
        .with_context(|| format!("nodes that are connected: {last:?}"))
    }

    fn wait_until_joined(&self) -> anyhow::Result<()> {
        self.wait_for_sessions(PATIENCE, 1)
    }

    /// Waits until the local controller's log says this.
    fn wait_for_log(&self, sentence: &str) -> anyhow::Result<()> {
        let log = [
            "logs",
            "--namespace",
            SEDNA,
            "--selector",
            LOCAL_CONTROLLERS,
            "--tail=-1",
        ];
        self.wait_for_words(&log, sentence)
    }

    /// Waits until a job's status has so many rounds.
    pub(super) fn wait_for_round(&self, job: &str, round: usize) -> anyhow::Result<()> {
        self.watch(&["federatedlearningjob", job], 2 * PATIENCE, |job| {
            (rounds(job).len() >= round).then_some(())
        })
        .with_context(|| format!("waiting for round {round}"))
    }

    /// The rounds of a job, as its status has them.
    pub(super) fn rounds_of(&self, job: &str) -> anyhow::Result<Vec<Value>> {
        Ok(rounds(&self.get(&["federatedlearningjob", job])?).to_vec())
    }

    /// From now on `ssh edge-1` is a shell on that host, whose only user is root.
    fn provide_ssh(&self) -> anyhow::Result<()> {
        let ssh = self.work.join("bin/ssh");
        let (edge, init) = (EDGE.name, self.hosts.edge.init()?);
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = {edge} ] || exit 255\nshift\n\
             exec nsenter --target {init} --mount --pid --net -- sh -c \"sudo() {{ \\\"\\$@\\\"; }}; $*\"\n"
        );
        install_script(&text, &ssh)
    }
}

/// The rounds in a job's status.
fn rounds(job: &Value) -> &[Value] {
    array(job, "/status/rounds")
}

/// What a table says of a node in a column.
fn cell<'a>(table: &'a str, node: &str, column: &str) -> Option<&'a str> {
    let at = table.lines().next()?.find(column)?;
    let row = table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(node))?;
    row.get(at..)?.split("  ").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_that_of_its_row_and_column() {
        let table = "NAME    CONNECTED SINCE       EXPIRES\nedge-1  2026-01-01T06:00:00Z  -\nedge-2  -                     soon\n";
        assert_eq!(cell(table, "edge-1", "CONNECTED SINCE"), Some("2026-01-01T06:00:00Z"));
        assert_eq!(cell(table, "edge-1", "EXPIRES"), Some("-"));
        assert_eq!(cell(table, "edge-2", "EXPIRES"), Some("soon"));
        assert_eq!(cell(table, "edge-3", "EXPIRES"), None);
        assert_eq!(cell(table, "edge-1", "AGE"), None);
    }
}
