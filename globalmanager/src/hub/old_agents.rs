//! The listener for Sedna's own local controllers.
//!
//! Decides who may come by it: whoever says the name of a node that has not proven more elsewhere. All else is decided as
//! for any node: to the hub a gateway's session is one.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use axum::{
    Extension, Router,
    extract::{
        State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    serve::Listener,
};
use parking_lot::Mutex;
use skerry_edge::{
    limits,
    object::is_dns_name,
    sedna::{
        NODE_NAME,
        envelope::EnvelopeError,
        gateway::{self, AGENT, Agents, Ear},
        pipe::{PipeDialer, pipes},
    },
    transport::{
        doors::{Place, Proof},
        plain::PlainListener,
        server,
    },
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Hub, nodelay, standing::Joined};

/// Agents at once. Each may have us keep a quarter of a MiB without having proven anything.
const AGENTS: usize = 512;

/// Of these, agents of nodes on which nothing is placed: whoever invents names takes the places of no others.
const IDLE: usize = 64;

/// What goes over the listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldAgents {
    /// Whether the content of Secrets does: to whoever says the name of a node, in clear.
    pub credentials: bool,
}

/// What a connection needs.
#[derive(Clone)]
struct Door {
    hub: Hub,
    agents: Agents,
    dialer: PipeDialer,
    rooms: Rooms,
}

/// The nodes whose agents are connected. On which of them something is placed is looked up whenever another one comes: right
/// after a start nothing is planned, and later something may be.
#[derive(Clone, Default)]
struct Rooms(Arc<Mutex<Vec<String>>>);

/// The room that a connection takes up until this is dropped.
struct Room {
    rooms: Rooms,
    node: String,
}

impl Rooms {
    /// Room for this node's agent; otherwise, which agents there are too many of.
    fn take(&self, hub: &Hub, node: &str) -> Result<Room, &'static str> {
        let mut taken = self.0.lock();
        if taken.len() >= AGENTS {
            return Err("");
        }
        if hub.idle([node]) > 0 && hub.idle(taken.iter().map(String::as_str)) >= IDLE {
            return Err(" on which nothing is placed");
        }
        taken.push(node.to_owned());
        let (rooms, node) = (self.clone(), node.to_owned());
        Ok(Room { rooms, node })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut taken = self.rooms.0.lock();
        if let Some(at) = taken.iter().position(|node| *node == self.node) {
            taken.swap_remove(at);
        }
    }
}

/// Why an agent is sent away: a word for metrics, and what it is answered.
type Sent = (&'static str, StatusCode, String);

impl super::State {
    /// Whether an agent of this version may have the session of this node now; why not. It is asked twice: between an old
    /// agent's admission and its session a local controller of ours may have come.
    pub(super) fn may_stand_in(&self, agent: &str, node: &str) -> Result<(), String> {
        let present = self.connected.get(node);
        if agent == AGENT && present.is_some_and(|present| present.agent != AGENT) {
            return Err(format!("node {node} is connected by a local controller of Skerry"));
        }
        Ok(())
    }
}

impl Hub {
    /// Serves Sedna's local controllers on this listener until `stop`.
    pub async fn serve_old_agents(&self, old: OldAgents, listener: TcpListener, stop: CancellationToken) {
        self.serve_old_agents_on(old, nodelay(listener), stop).await;
    }

    /// As [`Hub::serve_old_agents`], on any listener.
    pub async fn serve_old_agents_on(
        &self,
        old: OldAgents,
        listener: impl Listener<Addr = SocketAddr>,
        stop: CancellationToken,
    ) {
        let (dialer, taken) = pipes(old.credentials);
        let door = Door {
            hub: self.clone(),
            agents: Agents::default(),
            dialer,
            rooms: Rooms::default(),
        };
        // Sedna's manager serves every path.
        let outer = Router::new().fallback(take).with_state(door);
        tokio::join!(
            server::serve(PlainListener::new(listener, self.doors()), outer, stop.clone()),
            server::serve(taken, self.router(), stop),
        );
    }
}

async fn take(
    State(door): State<Door>,
    place: Option<Extension<Arc<Place>>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let place = place.map(|Extension(place)| place);
    let Ok(upgrade) = upgrade else {
        let hint = "this address speaks WebSocket, with Sedna's local controllers\n";
        return (StatusCode::BAD_REQUEST, hint).into_response();
    };
    let admitted = door.admit(&headers, place.as_deref());
    let (node, room) = match admitted {
        Ok(admitted) => admitted,
        Err((word, status, why)) => {
            door.sent_away(word, &why);
            return (status, format!("{why}\n")).into_response();
        }
    };
    let hub = door.hub.clone();
    upgrade
        .max_message_size(gateway::MAX_MESSAGE)
        .max_frame_size(gateway::MAX_MESSAGE)
        .on_upgrade(move |wire| {
            let sessions = hub.shared.sessions.clone();
            sessions.track_future(async move {
                let Door {
                    hub, agents, dialer, ..
                } = door;
                gateway::serve(wire, node, agents, dialer, &hub).await;
                drop((room, place));
            })
        })
}

impl Door {
    /// Who may come in; the node, and the room that its connection takes.
    fn admit(&self, headers: &HeaderMap, place: Option<&Place>) -> Result<(String, Room), Sent> {
        let name = headers
            .get(NODE_NAME)
            .and_then(|name| name.to_str().ok())
            .unwrap_or_default();
        if !is_dns_name(name) {
            let name: String = name.chars().take(limits::QUOTED).collect();
            let why = format!("the header {NODE_NAME} is {name:?}: the node's name in Kubernetes is right");
            return Err(("no_name", StatusCode::BAD_REQUEST, why));
        }
        if !self.hub.leads() {
            let why = "this manager does not serve nodes now: come again".to_owned();
            return Err(("not_leading", StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let proves = |why: String| ("proves", StatusCode::FORBIDDEN, why);
        match &*self.hub.shared.joined.borrow() {
            Joined::Nobody => {}
            Joined::NotKnown => {
                let why = "it is not known yet which nodes prove who they are: come again".to_owned();
                return Err(("not_known", StatusCode::SERVICE_UNAVAILABLE, why));
            }
            Joined::These(nodes) if !nodes.contains(name) => {}
            Joined::These(_) => {
                return Err(proves(format!(
                    "node {name} has an EdgeNode: it has to prove who it is"
                )));
            }
        }
        let state = self.hub.shared.state.lock();
        state.may_stand_in(AGENT, name).map_err(proves)?;
        drop(state);
        if self.agents.just_connected(name) {
            let why = format!("an agent of node {name} has connected a moment ago: come again");
            return Err(("again", StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let room = self.rooms.take(&self.hub, name).map_err(|whose| {
            let why = format!("as many old agents are connected as may be{whose}: come again");
            ("agents", StatusCode::TOO_MANY_REQUESTS, why)
        })?;
        // Taken for proven as far as counting goes: what one may bring who has not is not enough for an agent.
        place
            .map_or(Ok(()), |place| place.prove(name, Proof::Agent))
            .map_err(|turned| (turned.word(), StatusCode::TOO_MANY_REQUESTS, turned.to_string()))?;
        Ok((name.to_owned(), room))
    }

    fn sent_away(&self, word: &'static str, why: &str) {
        self.hub.shared.counters.refused.count(word);
        if let Some(left_out) = self.hub.shared.lines.refused.line() {
            tracing::warn!(why, left_out, "an old agent was sent away");
        }
    }
}

impl Ear for Hub {
    fn misheard(&self, node: &str, error: &EnvelopeError) {
        self.shared.counters.reports_denied.count(error.word());
        if let Some(left_out) = self.shared.lines.denied.line() {
            tracing::warn!(node, %error, left_out, "an old agent may not say that");
        }
    }

    fn gave_up(&self, node: &str, count: u64) {
        self.shared.counters.reports_given_up.fetch_add(count, Relaxed);
        if let Some(left_out) = self.shared.lines.given_up.line() {
            tracing::warn!(
                node,
                count,
                left_out,
                "reports of an old agent were given up: more was said of a resource than is taken"
            );
        }
    }
}
