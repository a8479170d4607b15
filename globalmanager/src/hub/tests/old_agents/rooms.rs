//! How many agents there may be: of nodes on which something is placed, and of others.

use skerry_edge::sedna::gateway::MAX_MESSAGE;

use super::*;

/// Agents at once, as `docs/edge-limits.md` says.
const AGENTS: usize = 512;

const _: () = assert!(MAX_MESSAGE <= 180 << 10, "docs/edge-limits.md says so");

/// Long enough for one that has gone to be gone, and too short for those that say nothing to be given up.
const GONE: Duration = Duration::from_secs(10);

/// Dials under other names until one is refused.
async fn fill(dialer: &PipeDialer, names: &str) -> Vec<SednaLc> {
    let mut let_in = Vec::new();
    loop {
        let name = format!("{names}-{}", let_in.len());
        match SednaLc::dial(dialer, &name, Held::new()).await {
            Ok(lc) => let_in.push(lc),
            Err(status) => {
                assert_eq!(status, 429);
                return let_in;
            }
        }
        assert!(let_in.len() <= AGENTS, "there is no end of them");
    }
}

/// Places a Dataset on each of so many nodes.
async fn place(cluster: &Cluster, names: &str, count: usize) {
    for number in 0..count {
        let spec = json!({"url": "/d.txt", "format": "txt", "nodeName": format!("{names}-{number}")});
        let name = format!("d-{names}-{number}");
        cluster.create(&object("Dataset", &name, &spec)).await;
    }
    sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn names_on_which_nothing_is_placed_take_the_places_of_no_others() {
    let (_cluster, dialer) = world(OldAgents::default()).await;
    let mut idle = fill(&dialer, "invented").await;
    assert!(idle.len() < AGENTS, "names alone fill all places");
    let _lc = SednaLc::up_to_date(&dialer).await;
    idle.pop();
    sleep(GONE).await;
    SednaLc::dial(&dialer, "invented-again", Held::new())
        .await
        .expect("there is a place again");
}

#[tokio::test(start_paused = true)]
async fn those_that_came_before_anything_was_planned_take_the_places_of_no_others() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let early = fill(&dialer, "early").await;
    place(&cluster, "early", early.len()).await;
    assert_eq!(cluster.hub.snapshot().sessions, early.len(), "they are still there");
    let idle = fill(&dialer, "invented").await;
    assert_eq!(idle.len(), early.len());
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_in_all_wherever_something_is_placed() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    place(&cluster, "edge", AGENTS + 1).await;
    let mut let_in = fill(&dialer, "edge").await;
    assert_eq!(let_in.len(), AGENTS);
    assert_eq!(cluster.hub.snapshot().refused, [("agents", 1)].into());
    let_in.pop();
    sleep(GONE).await;
    SednaLc::dial(&dialer, &format!("edge-{AGENTS}"), Held::new())
        .await
        .expect("there is a place again");
}

/// A count of a Dataset's samples, in so many bytes.
fn count_in(samples: u64, bytes: usize) -> String {
    let content = STANDARD.encode(json!({"numberOfSamples": samples}).to_string());
    let header = json!({"namespace": "default", "resourceKind": "dataset", "resourceName": "d", "operation": "status"});
    let message = json!({"header": header, "content": content}).to_string();
    format!("{message}{}", " ".repeat(bytes - message.len()))
}

#[tokio::test(start_paused = true)]
async fn a_message_of_the_largest_size_is_taken_and_one_byte_more_ends_the_connection() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::up_to_date(&dialer).await;
    lc.say(&count_in(7, MAX_MESSAGE)).await;
    lc.settle().await;
    let counted = async || cluster.status(&dataset()).await["numberOfSamples"].clone();
    assert_eq!(counted().await, 7);

    // It may be over before all was sent.
    let _ = lc.wire.send(Message::text(count_in(8, MAX_MESSAGE + 1))).await;
    lc.ended().await;
    settle().await;
    assert_eq!(counted().await, 7, "nothing of it is taken");
    assert_eq!(cluster.hub.snapshot().sessions, 0);
}
