//! Tells operators how nodes' sessions stand, in the status of their `EdgeNode`s.
//!
//! Decides when that is worth a write: where it differs from what was written, every half minute at most for one node, and
//! so many a second for all, never because time has passed. Outboxes and round trips change all the time, so they are told
//! where they have doubled or halved, beyond what is noise, or where an outbox is empty again; else with whatever is told
//! anyway. A node whose outbox comes and goes with each report costs nothing by that. There, rather than at the manager's own port, because whoever
//! may see nodes can see it with what they have, and it is there when the manager is not.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, ListParams, Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::json;
use skerry_crds::{
    names::MANAGER_SESSIONS,
    skerry::v1alpha1::{EdgeNode, Outbox, Session},
};
use skerry_edge::message::OutboxDepth;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{IdentityError, api, nodes::resources};
use crate::hub::{Hub, NodeStatus};

/// How often it is looked whether there is something to tell.
const LOOK: Duration = Duration::from_secs(30);

/// Between two writes: ten a second cost the API server little, and ten thousand nodes that come at once a quarter of an
/// hour.
const PACE: Duration = Duration::from_millis(100);

/// `EdgeNode`s that are read one by one; more are listed with all others.
const FEW: usize = 16;

/// Reports in an outbox that are no more than on their way.
const NOISE_MESSAGES: i64 = 16;
/// And bytes.
const NOISE_BYTES: i64 = 64 * 1024;
/// By so much round trips differ over one link.
const NOISE_MILLISECONDS: i64 = 20;

/// Tells how sessions stand for as long as it is not dropped.
pub(super) async fn tell(client: Client, namespace: String, hub: Hub) {
    let mut sessions = Sessions::new(&client, &namespace, hub);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        if let Err(error) = sessions.look(Timestamp::now()).await {
            tracing::warn!(%error, "it cannot be told how nodes are connected; it is tried again");
        }
    }
}

/// What is known to be written.
pub struct Sessions {
    nodes: Api<DynamicObject>,
    hub: Hub,
    /// By node; nothing where the API server was not asked in this term.
    written: Option<Written>,
}

/// What the API server has of each `EdgeNode`.
type Written = BTreeMap<String, Option<Session>>;

impl Sessions {
    /// Nothing is known yet.
    pub fn new(client: &Client, namespace: &str, hub: Hub) -> Self {
        Self {
            nodes: resources(client, namespace),
            hub,
            written: None,
        }
    }

    /// Writes what differs, where this manager serves nodes.
    pub async fn look(&mut self, now: Timestamp) -> Result<(), IdentityError> {
        if !self.hub.leads() {
            // Another one writes, until this one leads again.
            self.written = None;
            return Ok(());
        }
        let present: BTreeMap<_, _> = self
            .hub
            .nodes()
            .into_iter()
            .map(|node| (node.name.clone(), node))
            .collect();
        let known = match self.written.take() {
            Some(written) => self.with_those_that_joined(written, &present).await?,
            None => self.read().await?,
        };
        let mut written = BTreeMap::new();
        for (name, before) in known {
            let session = session(present.get(&name), before.as_ref(), now);
            if session != before
                && let Some(session) = &session
            {
                self.write(&name, session).await?;
                sleep(PACE).await;
            }
            written.insert(name, session);
        }
        self.written = Some(written);
        Ok(())
    }

    /// What is known, of the `EdgeNode`s that there are: whoever has none is asked for never.
    async fn with_those_that_joined(
        &self,
        mut known: Written,
        present: &BTreeMap<String, NodeStatus>,
    ) -> Result<Written, IdentityError> {
        known.retain(|node, _| self.hub.joined(node) != Some(false));
        let joined: Vec<_> = present
            .keys()
            .filter(|node| !known.contains_key(*node) && self.hub.joined(node) == Some(true))
            .collect();
        if joined.len() > FEW {
            return self.read().await;
        }
        for node in joined {
            let found = self.nodes.get_opt(node).await.map_err(api("read the EdgeNode"))?;
            // Where it was deleted meanwhile, the watch will tell.
            known.extend(found.as_ref().map(read));
        }
        Ok(known)
    }

    async fn read(&self) -> Result<Written, IdentityError> {
        let found = self.nodes.list(&ListParams::default()).await;
        Ok(found.map_err(api("list EdgeNodes"))?.iter().map(read).collect())
    }

    async fn write(&self, name: &str, session: &Session) -> Result<(), IdentityError> {
        let resource = ApiResource::erase::<EdgeNode>(&());
        let object = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "status": {"session": session},
        });
        let how = PatchParams::apply(MANAGER_SESSIONS).force();
        match self.nodes.patch_status(name, &how, &Patch::Apply(object)).await {
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => written.map(drop).map_err(api("write the EdgeNode")),
        }
    }
}

fn read(node: &DynamicObject) -> (String, Option<Session>) {
    let session = node.data.pointer("/status/session").cloned();
    (
        node.name_any(),
        session.and_then(|session| serde_json::from_value(session).ok()),
    )
}

/// What is to be told of a node; nothing of one that has never had a session.
fn session(present: Option<&NodeStatus>, before: Option<&Session>, now: Timestamp) -> Option<Session> {
    let mut told = stands(present, now);
    if !told.connected {
        told.version.clone_from(&before?.version);
    }
    Some(before.map_or(told.clone(), |before| settled(before, told)))
}

/// How a node stands now; nothing is known of one that is neither connected nor to hold anything.
pub(super) fn stands(present: Option<&NodeStatus>, now: Timestamp) -> Session {
    let ago = |duration: Duration| {
        let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        // To the second, as it is written.
        let time = now.saturating_sub(duration).unwrap_or(Timestamp::MIN);
        Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
    };
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let outbox = |OutboxDepth { messages, bytes }| Outbox {
        messages: i64::try_from(messages).unwrap_or(i64::MAX),
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
    };
    let connected = present.and_then(|node| node.connected);
    Session {
        connected: connected.is_some(),
        since: ago(connected.unwrap_or_default()),
        version: present.and_then(|node| node.agent.clone()),
        assigned: present.map_or(0, |node| count(node.assigned)),
        unacknowledged: present.map_or(0, |node| count(node.unacked)),
        oldest_unacknowledged: present.and_then(|node| node.oldest_unacked).map(ago),
        outbox: present.and_then(|node| node.outbox).map(outbox),
        round_trip_milliseconds: present
            .and_then(|node| node.round_trip)
            .map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
    }
}

/// What is told, with the times of what was told before where those are the same: they are counted back from now, and must
/// not differ by a second each time.
fn settled(before: &Session, told: Session) -> Session {
    let same = |before: &Time, now: &Time| {
        let apart = now.0.duration_since(before.0).abs();
        apart <= SignedDuration::from_secs(2)
    };
    let kept = |before: &Time, now: Time| if same(before, &now) { before.clone() } else { now };
    let stays = before.connected == told.connected;
    let settled = Session {
        since: match (stays, told.connected) {
            (true, false) => before.since.clone(),
            (true, true) => kept(&before.since, told.since),
            (false, _) => told.since,
        },
        oldest_unacknowledged: match (&before.oldest_unacknowledged, told.oldest_unacknowledged) {
            (Some(before), Some(now)) => Some(kept(before, now)),
            (_, now) => now,
        },
        ..told
    };
    let as_before = Session {
        outbox: before.outbox,
        round_trip_milliseconds: before.round_trip_milliseconds,
        ..settled.clone()
    };
    if as_before == *before && !moved(before, &settled) {
        as_before
    } else {
        settled
    }
}

/// Whether outbox or round trip are worth a write by themselves.
fn moved(before: &Session, now: &Session) -> bool {
    let of_outbox = |before: Outbox, now: Outbox| {
        let empty = |outbox: Outbox| outbox.messages == 0;
        empty(now) != empty(before) && empty(now)
            || far(before.messages, now.messages, NOISE_MESSAGES)
            || far(before.bytes, now.bytes, NOISE_BYTES)
    };
    let outbox = match (before.outbox, now.outbox) {
        (Some(before), Some(now)) => of_outbox(before, now),
        (before, now) => before.is_some() != now.is_some(),
    };
    let round_trip = match (before.round_trip_milliseconds, now.round_trip_milliseconds) {
        (Some(before), Some(now)) => far(before, now, NOISE_MILLISECONDS),
        (before, now) => before.is_some() != now.is_some(),
    };
    outbox || round_trip
}

/// Whether one is more than twice the other, and more than that apart.
fn far(before: i64, now: i64, noise: i64) -> bool {
    let (less, more) = (before.min(now), before.max(now));
    more > less.saturating_mul(2).saturating_add(noise)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(connected: Option<u64>, unacked: usize, oldest: Option<u64>) -> NodeStatus {
        NodeStatus {
            name: "edge-1".to_owned(),
            connected: connected.map(Duration::from_secs),
            agent: connected.map(|_| "0.1.0".to_owned()),
            assigned: 3,
            unacked,
            oldest_unacked: oldest.map(Duration::from_secs),
            strays: 0,
            withheld: 0,
            outbox: None,
            round_trip: None,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn a_session_that_goes_on_is_nothing_to_write() {
        let first = session(Some(&node(Some(10), 1, Some(4))), None, at(0)).unwrap();
        assert_eq!((first.connected, first.since.0), (true, at(-10)));
        assert_eq!(first.oldest_unacknowledged.as_ref().map(|time| time.0), Some(at(-4)));
        let again = session(Some(&node(Some(41), 1, Some(34))), Some(&first), at(30)).unwrap();
        assert_eq!(again, first, "a second more or less is the same");
        let done = session(Some(&node(Some(70), 0, None)), Some(&first), at(60)).unwrap();
        assert_eq!(
            (done.unacknowledged, done.oldest_unacknowledged, done.since.0),
            (0, None, at(-10))
        );
    }

    fn busy(messages: u64, milliseconds: u64) -> NodeStatus {
        let bytes = 300 * messages;
        NodeStatus {
            outbox: Some(OutboxDepth { messages, bytes }),
            round_trip: Some(Duration::from_millis(milliseconds)),
            ..node(Some(10), 0, None)
        }
    }

    #[test]
    fn an_outbox_that_comes_and_goes_is_nothing_to_write_and_one_that_fills_is() {
        let first = session(Some(&busy(0, 40)), None, at(0)).unwrap();
        let told = |node: &NodeStatus, before: &Session| session(Some(node), Some(before), at(0)).unwrap();
        for (messages, milliseconds) in [(3, 35), (0, 60), (16, 90), (1, 20)] {
            assert_eq!(told(&busy(messages, milliseconds), &first), first);
        }
        let full = told(&busy(500, 41), &first);
        assert_eq!(full.outbox.map(|outbox| outbox.messages), Some(500));
        assert_eq!(
            full.round_trip_milliseconds,
            Some(41),
            "it goes with what is told anyway"
        );
        assert_eq!(told(&busy(700, 41), &full), full);
        let empty = told(&busy(0, 41), &full);
        assert_eq!(empty.outbox.map(|outbox| outbox.messages), Some(0));
        assert_eq!(told(&busy(0, 300), &empty).round_trip_milliseconds, Some(300));
        assert_eq!(told(&node(Some(10), 0, None), &empty).outbox, None, "an older agent");
        assert_eq!(told(&node(None, 0, None), &empty).round_trip_milliseconds, None);
    }

    #[test]
    fn a_node_that_has_gone_is_told_so_once_and_keeps_its_version() {
        assert_eq!(session(None, None, at(0)), None, "it was never there");
        assert_eq!(session(Some(&node(None, 2, None)), None, at(0)), None);
        let there = session(Some(&node(Some(10), 0, None)), None, at(0)).unwrap();
        let gone = session(None, Some(&there), at(30)).unwrap();
        assert_eq!(
            (gone.connected, gone.since.0, gone.version.as_deref()),
            (false, at(30), Some("0.1.0"))
        );
        assert_eq!(session(None, Some(&gone), at(60)), Some(gone.clone()));
        let back = session(Some(&node(Some(1), 0, None)), Some(&gone), at(90)).unwrap();
        assert_eq!((back.connected, back.since.0), (true, at(89)));
    }
}
