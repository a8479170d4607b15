//! Which agents are remembered.

use super::{agents::REMEMBERED, *};
use crate::{Epoch, Object, ObjectKey, Position, ReportPayload, node::Change, sedna::envelope::Said};

/// How long the answer of an agent may take that says that it has read a message.
const ANSWER: Duration = Duration::from_secs(3);

/// As much as may be under way is read before the hub takes the agent for stuck: two messages for each change at most, and
/// each of them waits for the answer to the one before.
const _: () = assert!(
    2 * limits::WINDOW_OF_AGENT as u128 * (ANSWER.as_millis() + PACE.as_millis()) < limits::ACK_TIMEOUT.as_millis()
);

fn epoch(transitions: u64) -> Epoch {
    let lease = "l".to_owned();
    Epoch {
        lease,
        transitions,
        made: None,
    }
}

fn placed(epoch: Epoch) -> Batch {
    let object = Object {
        key: ObjectKey::new("dataset", "default", "d"),
        uid: "u".to_owned(),
        generation: 1,
        body: serde_json::json!({}).into(),
    };
    Batch {
        changes: vec![Change::Put(object)],
        position: Position::start("c", epoch),
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_has_gone_is_remembered_for_a_time_if_something_is_placed_on_it() {
    let agents = Agents::default();
    let (_, turn) = agents.connected("idle");
    agents.disconnected("idle", turn);
    assert_eq!(agents.lock().len(), 0, "nothing is placed on it");
    let (entry, turn) = agents.connected("edge-1");
    entry.lock().agent.apply(Timestamp::UNIX_EPOCH, placed(epoch(0)));
    agents.disconnected("edge-1", turn);
    tokio::time::advance(REMEMBERED / 2).await;
    let (_, turn) = agents.connected("edge-1");
    assert_eq!(entry.lock().number, turn, "it is the same");
    tokio::time::advance(2 * REMEMBERED).await;
    agents.connected("edge-2");
    assert!(agents.lock().contains_key("edge-1"), "it has been there all the time");
    agents.disconnected("edge-1", turn);
    tokio::time::advance(REMEMBERED).await;
    agents.connected("edge-3");
    assert!(!agents.lock().contains_key("edge-1"));
}

#[test]
fn a_figure_that_was_not_answered_is_worth_nothing_once_another_manager_has_led() {
    let mut agent = Agent::new("b".to_owned());
    let said = |payload| Said {
        key: ObjectKey::new("dataset", "default", "d"),
        payload,
    };
    let figure = || said(ReportPayload::DatasetSamples { count: 7 });
    let event = said(ReportPayload::Event {
        message: serde_json::json!({}).into(),
    });
    let all = Wanted {
        of: None,
        after: 0,
        limit: 100,
    };
    let owed_to = |agent: &mut Agent, epoch: Epoch| {
        agent.connected();
        agent.apply(Timestamp::UNIX_EPOCH, placed(epoch));
        agent.fetch(&all).len()
    };
    owed_to(&mut agent, epoch(3));
    agent.report(Timestamp::UNIX_EPOCH, event);
    agent.report(Timestamp::UNIX_EPOCH, figure());
    assert_eq!(owed_to(&mut agent, epoch(4)), 2, "nobody has led in between");
    assert_eq!(owed_to(&mut agent, epoch(6)), 1, "what happened is told all the same");
    agent.report(Timestamp::UNIX_EPOCH, figure());
    assert_eq!(owed_to(&mut agent, epoch(6)), 2);
    let another = Epoch {
        lease: "m".to_owned(),
        transitions: 6,
        made: None,
    };
    assert_eq!(owed_to(&mut agent, another), 1, "who held another Lease is not known");
}
