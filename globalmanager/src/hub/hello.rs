//! What comes before a session: the node says who it is, and may have one or not.

use skerry_edge::{
    Downstream, Upstream,
    cloud::Peer,
    limits,
    message::{Hello, Received, RefusedReason},
    transport::{Event, doors::Proof, server::ManagerSocket},
};
use tokio::time::timeout;

use super::{
    Hub, Term,
    standing::{Judgement, Standing},
};

/// Why a connection becomes no session: a word for metrics, a sentence for the log, and what the node is told.
pub(super) type NoHello = (&'static str, String, Option<Downstream>);

/// Awaits the hello and checks it.
pub(super) async fn hello(
    hub: &Hub,
    socket: &mut ManagerSocket,
    term: &Term,
    peer: &Peer,
    standing: &mut Standing,
) -> Result<Hello, NoHello> {
    let first = async {
        loop {
            match socket.next().await {
                Ok(Event::Heard | Event::Pong(_)) => {}
                Ok(Event::Frame(frame)) => return Ok(frame),
                Err(ended) => return Err(ended),
            }
        }
    };
    let violation = |word, hint: String| {
        let reason = RefusedReason::Violation;
        (word, hint.clone(), Some(Downstream::Refused { reason, hint }))
    };
    match timeout(limits::FIRST_MESSAGE, first).await {
        Ok(Ok(Ok(Received::Message(Upstream::Hello(hello))))) => {
            if let Err(refusal) = term.server.check(peer, &hello) {
                return Err((refusal.word(), refusal.to_string(), Some(refusal.frame())));
            }
            standing.says(&hello.node);
            match standing.judge() {
                Judgement::Counts => {}
                Judgement::Lost(lost) => return Err((lost.word(), lost.to_string(), Some(lost.frame()))),
                Judgement::Unknown => {
                    let cause = "it is not known yet which nodes prove who they are".to_owned();
                    return Err(("not_known", cause, Some(hub.come_back())));
                }
            }
            // Over TLS it has its place by its certificate already.
            let place = socket
                .place()
                .map_or(Ok(()), |place| place.prove(&hello.node, Proof::Word));
            place.map_err(|turned| {
                let (reason, hint) = (RefusedReason::Node, turned.to_string());
                (turned.word(), hint.clone(), Some(Downstream::Refused { reason, hint }))
            })?;
            if !hub.shared.admissions.lock().admit(peer.identity.is_some(), hub.now()) {
                let cause = "too many sessions begin at once: it comes back".to_owned();
                return Err(("busy", cause, Some(hub.come_back())));
            }
            Ok(hello)
        }
        Ok(Ok(Err(error))) => Err(violation("violation", error.to_string())),
        Ok(Ok(Ok(_))) => Err(violation("violation", "a session begins with a hello".to_owned())),
        Ok(Err(ended)) => Err(("no_hello", ended.to_string(), None)),
        Err(_) => {
            let hint = format!("no hello within {} s", limits::FIRST_MESSAGE.as_secs());
            Err(violation("no_hello", hint))
        }
    }
}
