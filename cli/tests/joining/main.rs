//! What docs/edge-nodes.md says, with real processes: a node joins by a token, has its certificate renewed without losing the
//! session, is turned away, and joins again; and operators see who is there.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod world;

use std::time::Duration;

use jiff::SignedDuration;
use skerry_tests::federated_job::FederatedJob;
use tokio::time::timeout;
use world::World;

/// How long a revocation may take.
const REVOKED: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins_stays_is_turned_away_and_joins_again() {
    let mut world = World::start().await;
    let uninvited = world.node_command().output().unwrap();
    let said = String::from_utf8_lossy(&uninvited.stderr).into_owned();
    assert!(
        !uninvited.status.success() && said.contains("skerry nodes join-token edge-1"),
        "{said}"
    );

    // It waits for the token, takes what workers report meanwhile, and says what it waits for.
    world.start_node();
    world
        .until("sentence", || async {
            world.said("node").contains("skerry nodes join-token edge-1")
        })
        .await;
    world.invite().await;
    world.sessions(1.0).await;
    let first = world.certificate().await;
    world
        .until("renewal", || async { world.issued().await > first.issued })
        .await;
    // With the second one it is sure that the first did not cost the session.
    let second = world.certificate().await;
    assert!(second.issued < first.expires, "{second:?} came too late for {first:?}");
    world
        .until("second renewal", || async { world.issued().await > second.issued })
        .await;
    assert_eq!(
        world.figure("edge_connections_total").await,
        Some(1.0),
        "the session went on"
    );

    // The token is of no more use, and the identity outlives the process.
    std::fs::remove_file(world.folder.path().join("join.token")).unwrap();
    world.start_node();
    world
        .until("second connection", || async {
            world.figure("edge_connections_total").await == Some(2.0)
        })
        .await;
    world.sessions(1.0).await;
    let listed = String::from_utf8(world.nodes(&[]).stdout).unwrap();
    assert!(listed.lines().any(|line| line.starts_with("edge-1  ")), "{listed}");

    assert!(world.nodes(&["revoke", "edge-1"]).status.success());
    timeout(REVOKED, world.sessions(0.0))
        .await
        .expect("its session goes on");
    world
        .until("sentence", || async { world.said("node").contains("was turned away") })
        .await;

    // It goes on by itself, and takes the new token as it finds it.
    world.invite().await;
    world.sessions(1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_certificate_expired_while_it_was_off_is_back_unless_it_was_turned_away() {
    let mut world = World::start().await;
    world.start_node();
    world.invite().await;
    world.sessions(1.0).await;
    std::fs::remove_file(world.folder.path().join("join.token")).unwrap();

    world.sleeps_through_expiry().await;
    let expired = world.issued().await;
    world.start_node();
    world.sessions(1.0).await;
    world
        .until("renewal", || async { world.issued().await > expired })
        .await;

    world.sleeps_through_expiry().await;
    world.sessions(0.0).await;
    assert!(world.nodes(&["revoke", "edge-1"]).status.success());
    let expired = world.issued().await;
    world.start_node();
    world
        .until("sentence", || async { world.said("node").contains("was turned away") })
        .await;
    assert_eq!(world.figure("edge_sessions").await, Some(0.0));
    assert_eq!(world.issued().await, expired, "nothing was issued to it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_joined_needs_no_manager_to_start_and_to_serve_its_workers() {
    let mut world = World::start().await;
    let job = FederatedJob::declare(world.api.client(), "edge-1").await;
    let job = job.unwrap_or_else(|| panic!("there is no trainer: {}", world.said("manager")));
    world.start_node();
    world.invite().await;
    assert!(job.report(world.workers, "then", 1).await, "{}", world.said("node"));
    assert!(
        job.rounds_are(&["1 then".to_owned()]).await,
        "{}",
        world.said("manager")
    );

    world.stop_manager();
    let listed = world.nodes(&[]);
    let said = String::from_utf8_lossy(&listed.stderr).into_owned();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("edge-1  ") && said.contains("when a manager last wrote it, which may be long ago"),
        "{listed}{said}"
    );
    std::fs::remove_file(world.folder.path().join("join.token")).unwrap();
    world.start_node();
    assert!(job.report(world.workers, "then", 2).await, "{}", world.said("node"));
    world.start_node();
    assert!(job.report(world.workers, "then", 3).await, "{}", world.said("node"));

    world.start_manager();
    let rounds = ["1 then", "2 then", "3 then"].map(str::to_owned);
    assert!(job.rounds_are(&rounds).await, "{}", world.said("manager"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_off_for_longer_than_the_operator_grants_joins_by_another_token_alone() {
    let mut world = World::start_with(&["--edge-certificate-grace", "1s"]).await;
    world.start_node();
    world.invite().await;
    world.sessions(1.0).await;
    std::fs::remove_file(world.folder.path().join("join.token")).unwrap();

    // Times are told to the second: the last one of the grace has to be over.
    world.sleeps_until_after_expiry(SignedDuration::from_secs(2)).await;
    world.sessions(0.0).await;
    let expired = world.issued().await;
    world.start_node();
    world
        .until("sentence", || async {
            world.said("node").contains("CertificateExpired")
        })
        .await;
    assert_eq!(world.figure("edge_sessions").await, Some(0.0));
    assert_eq!(world.issued().await, expired, "nothing was issued to it");

    world.invite().await;
    world.sessions(1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_installed_anew_under_its_name_joins_anew_and_gets_back_what_it_held() {
    let mut world = World::start().await;
    world.write_data(3);
    world.place("images", "edge-1").await;
    world.start_node();
    world.invite().await;
    world.samples(3).await;

    world.stop_node();
    std::fs::remove_dir_all(world.folder.path().join("root")).unwrap();
    world.write_data(5);
    world.start_node();
    world
        .until("refusal of the token that was used", || async {
            world.said("node").contains("was used before")
        })
        .await;
    world.invite().await;
    world.samples(5).await;
    world.sessions(1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_have_not_joined_are_listed_as_their_manager_knows_them() {
    let mut world = World::start().await;
    world.write_data(3);
    world.place("images", "edge-1").await;
    world.place("far", "edge-9").await;
    world.start_plain_node();
    world.samples(3).await;

    let listed = world.nodes(&["--admin-address", &world.admin_address()]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let rows: Vec<Vec<_>> = listed
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    let [columns, here, far] = &rows[..] else {
        panic!("{listed}")
    };
    let cell = |row: &[&str], column: &str| {
        let at = columns.iter().position(|name| *name == column).unwrap();
        row[at].to_owned()
    };
    let some = |row: &[&str], wanted: &[&str]| wanted.iter().map(|column| cell(row, column)).collect::<Vec<_>>();
    let counted = [
        "NAME",
        "VERSION",
        "ASSIGNED",
        "ACKED",
        "OLDEST UNACKED",
        "CERTIFIED",
        "EXPIRES",
    ];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(some(here, &counted), ["edge-1", version, "1", "1", "-", "-", "-"]);
    assert_eq!(some(far, &counted), ["edge-9", "-", "1", "0", "-", "-", "-"]);
    let since: jiff::Timestamp = cell(here, "CONNECTED SINCE").parse().unwrap();
    assert!(since.duration_until(jiff::Timestamp::now()) < SignedDuration::from_mins(10));
    assert_eq!(some(far, &["CONNECTED SINCE", "OUTBOX", "ROUND TRIP"]), ["-", "-", "-"]);

    // This manager is no pod, which is where it is looked for otherwise.
    let joined = world.nodes(&[]);
    let (listed, said) = (
        String::from_utf8(joined.stdout).unwrap(),
        String::from_utf8(joined.stderr).unwrap(),
    );
    assert!(joined.status.success() && listed.lines().count() == 1, "{listed}");
    assert!(
        said.starts_with("only nodes that have joined over TLS are listed"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_about_nodes_say_what_is_wrong() {
    let world = World::start().await;
    for (args, sentence) in [
        (&["join-token", "Edge 1"] as &[_], "is not a node name"),
        (&["revoke", "../edge"], "is not a node name"),
        (&["join-token", "edge-1", "--expires", "1y"], "720h"),
    ] {
        let output = world.nodes(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(sentence), "{args:?}: {said}");
    }
}
