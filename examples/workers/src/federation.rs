//! The aggregator's decisions: who takes part, when a round is complete, what is sent to whom.
//!
//! ```text
//!            update_weight              update_weight from all `participants`
//! collecting ─────────────▶ collecting ─────────────────────────────────────▶ round + 1, recv_weight to all
//!                                                       │ round = exit_round
//!                                                       ▼
//!                                  finished: recv_weight said "ok"; a latecomer's update gets the last one again
//! ```
//!
//! Messages are Sedna's, field by field. Never touches a socket or a clock.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::tensor::{AverageError, Tensor, federated_average, same_shapes};

/// What to send, and to whom.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// Client ids.
    pub to: Vec<String>,
    /// The message.
    pub message: Value,
}

/// Why a client is sent away.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// A message is not what the protocol knows.
    #[error("{0}")]
    Malformed(String),
    /// Another connection has this id.
    #[error("client_id {0:?} is connected already")]
    Duplicate(String),
    /// Something other than `subscribe` came first.
    #[error("a subscribe message is wanted first")]
    NotSubscribed,
    /// The weights cannot be averaged with the others'.
    #[error(transparent)]
    Average(#[from] AverageError),
}

/// What a trainer contributes to a round.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Update {
    num_samples: u32,
    weights: Vec<Tensor>,
}

#[derive(Debug)]
struct Client {
    id: String,
    update: Option<Update>,
}

/// A federated job as its aggregator sees it.
#[derive(Debug)]
pub struct Federation {
    participants: usize,
    exit_round: u32,
    round: u32,
    /// In the order in which they joined.
    clients: Vec<Client>,
    /// The last `recv_weight` and the weights that it carries.
    last: Option<(Value, Vec<Tensor>)>,
}

impl Federation {
    /// A job of so many participants that ends after so many rounds.
    pub fn new(participants: u32, exit_round: u32) -> Self {
        let participants = usize::try_from(participants).unwrap_or(usize::MAX);
        Self {
            participants,
            exit_round,
            round: 0,
            clients: Vec::new(),
            last: None,
        }
    }

    /// The number of rounds that are complete.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Whether all rounds are complete.
    pub fn is_finished(&self) -> bool {
        self.round >= self.exit_round
    }

    /// Whether nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The ids of those connected, in the order in which they joined.
    pub fn client_ids(&self) -> Vec<String> {
        self.clients.iter().map(|client| client.id.clone()).collect()
    }

    /// The weights of the last complete round.
    pub fn weights(&self) -> Option<&[Tensor]> {
        self.last.as_ref().map(|(_, weights)| weights.as_slice())
    }

    /// A client that connected says `subscribe`: the others hear that it joins, then all hear its message, which is
    /// what the client itself waits for.
    pub fn join(&mut self, id: &str, subscribe: Value) -> Result<Vec<Outgoing>, Refusal> {
        let earlier = self.client_ids();
        if earlier.iter().any(|other| other == id) {
            return Err(Refusal::Duplicate(id.to_owned()));
        }
        self.clients.push(Client {
            id: id.to_owned(),
            update: None,
        });
        let join = Outgoing {
            to: earlier,
            message: json!({"type": "CLIENT_JOIN", "data": id}),
        };
        let echo = Outgoing {
            to: self.client_ids(),
            message: subscribe,
        };
        Ok([join, echo]
            .into_iter()
            .filter(|outgoing| !outgoing.to.is_empty())
            .collect())
    }

    /// A client's connection is gone, and with it what it contributed to the round that is not complete.
    pub fn leave(&mut self, id: &str) {
        self.clients.retain(|client| client.id != id);
    }

    /// A message of a client that has joined. What is not an `update_weight` goes to all, as it is.
    pub fn receive(&mut self, id: &str, message: Value) -> Result<Vec<Outgoing>, Refusal> {
        if message.get("type").and_then(Value::as_str) != Some("update_weight") {
            return Ok(vec![Outgoing {
                to: self.client_ids(),
                message,
            }]);
        }
        if let Some((last, _)) = self.last.as_ref().filter(|_| self.is_finished()) {
            return Ok(vec![Outgoing {
                to: vec![id.to_owned()],
                message: last.clone(),
            }]);
        }
        self.contribute(id, &message)?;
        let updates: Vec<&Update> = self
            .clients
            .iter()
            .filter_map(|client| client.update.as_ref())
            .collect();
        if updates.len() < self.participants {
            return Ok(Vec::new());
        }
        let parts: Vec<_> = updates
            .iter()
            .map(|update| (update.num_samples, update.weights.as_slice()))
            .collect();
        let weights = federated_average(&parts)?;
        let total = parts.iter().map(|(samples, _)| u64::from(*samples)).sum();
        Ok(vec![self.complete_round(message, weights, total)])
    }

    fn contribute(&mut self, id: &str, message: &Value) -> Result<(), Refusal> {
        let data = message.get("data").unwrap_or(&Value::Null);
        let update =
            Update::deserialize(data).map_err(|error| Refusal::Malformed(format!("update_weight, data: {error}")))?;
        if update.num_samples == 0 || update.weights.is_empty() {
            let wanted = "update_weight, data: num_samples above 0 and at least one array of weights are wanted";
            return Err(Refusal::Malformed(wanted.into()));
        }
        let mut others = self
            .clients
            .iter()
            .filter(|client| client.id != id)
            .filter_map(|client| client.update.as_ref());
        if others.any(|other| !same_shapes(&other.weights, &update.weights)) {
            return Err(AverageError::Shapes.into());
        }
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.id == id)
            .ok_or(Refusal::NotSubscribed)?;
        client.update = Some(update);
        Ok(())
    }

    /// Sedna answers with the message that completed the round, changed, so its other fields stay.
    fn complete_round(&mut self, mut message: Value, weights: Vec<Tensor>, total_sample: u64) -> Outgoing {
        self.round += 1;
        self.clients.iter_mut().for_each(|client| client.update = None);
        if let Some(fields) = message.as_object_mut() {
            fields.insert("type".into(), "recv_weight".into());
            fields.insert("round_number".into(), self.round.into());
            let exit_flag = if self.round >= self.exit_round {
                "ok"
            } else {
                "continue"
            };
            let data = json!({
                "total_sample": total_sample,
                "round_number": self.round,
                "weights": weights,
                "exit_flag": exit_flag,
            });
            fields.insert("data".into(), data);
        }
        self.last = Some((message.clone(), weights));
        Outgoing {
            to: self.client_ids(),
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribe(id: &str) -> Value {
        json!({"type": "subscribe", "client_id": id})
    }

    fn update(id: &str, samples: u32, weights: &Value) -> Value {
        json!({
            "type": "update_weight",
            "client": id,
            "data": {"num_samples": samples, "weights": weights},
            "job_name": "j",
        })
    }

    /// Both participants are in.
    fn federation(exit_round: u32) -> Federation {
        let mut federation = Federation::new(2, exit_round);
        federation.join("a", subscribe("a")).unwrap();
        federation.join("b", subscribe("b")).unwrap();
        federation
    }

    #[test]
    fn who_joins_is_announced_to_the_others_and_gets_its_own_message_back() {
        let mut federation = Federation::new(2, 1);
        let first = federation.join("a", subscribe("a")).unwrap();
        assert_eq!(
            first,
            [Outgoing {
                to: vec!["a".into()],
                message: subscribe("a")
            }]
        );
        let second = federation.join("b", subscribe("b")).unwrap();
        let join = Outgoing {
            to: vec!["a".into()],
            message: json!({"type": "CLIENT_JOIN", "data": "b"}),
        };
        let echo = Outgoing {
            to: vec!["a".into(), "b".into()],
            message: subscribe("b"),
        };
        assert_eq!(second, [join, echo]);
        assert_eq!(
            federation.join("b", subscribe("b")),
            Err(Refusal::Duplicate("b".into()))
        );
    }

    #[test]
    fn a_round_is_complete_when_all_have_contributed() {
        let mut federation = federation(2);
        assert_eq!(
            federation.receive("a", update("a", 3, &json!([[0.0, 4.0]]))),
            Ok(vec![])
        );
        let sent = federation.receive("b", update("b", 1, &json!([[4.0, 0.0]]))).unwrap();
        let message = json!({
            "type": "recv_weight",
            "client": "b",
            "data": {"total_sample": 4, "round_number": 1, "weights": [[1.0, 3.0]], "exit_flag": "continue"},
            "job_name": "j",
            "round_number": 1,
        });
        assert_eq!(
            sent,
            [Outgoing {
                to: vec!["a".into(), "b".into()],
                message
            }]
        );
        assert!(!federation.is_finished());

        federation.receive("b", update("b", 1, &json!([[4.0, 0.0]]))).unwrap();
        let sent = federation.receive("a", update("a", 1, &json!([[0.0, 0.0]]))).unwrap();
        assert_eq!(sent[0].message["data"]["exit_flag"], "ok");
        assert_eq!(sent[0].message["data"]["round_number"], 2);
        assert!(federation.is_finished());
    }

    #[test]
    fn who_sends_twice_counts_once_and_who_leaves_no_more() {
        let mut federation = federation(5);
        federation.receive("a", update("a", 1, &json!([[1.0]]))).unwrap();
        assert_eq!(federation.receive("a", update("a", 1, &json!([[2.0]]))), Ok(vec![]));
        federation.leave("a");
        assert_eq!(federation.receive("b", update("b", 1, &json!([[4.0]]))), Ok(vec![]));
        federation.join("a", subscribe("a")).unwrap();
        let sent = federation.receive("a", update("a", 1, &json!([[6.0]]))).unwrap();
        assert_eq!(sent[0].message["data"]["weights"], json!([[5.0]]));
    }

    #[test]
    fn after_the_last_round_a_latecomer_gets_the_result() {
        let mut federation = federation(1);
        federation.receive("a", update("a", 1, &json!([[1.0]]))).unwrap();
        let result = federation
            .receive("b", update("b", 1, &json!([[3.0]])))
            .unwrap()
            .remove(0)
            .message;
        federation.leave("a");
        federation.join("a", subscribe("a")).unwrap();
        let answer = federation.receive("a", update("a", 1, &json!([[9.0]]))).unwrap();
        assert_eq!(
            answer,
            [Outgoing {
                to: vec!["a".into()],
                message: result
            }]
        );
        assert_eq!(federation.round(), 1);
    }

    #[test]
    fn what_is_no_update_goes_to_all() {
        let mut federation = federation(1);
        let message = json!({"type": "message", "data": 1});
        let sent = federation.receive("a", message.clone()).unwrap();
        assert_eq!(
            sent,
            [Outgoing {
                to: vec!["a".into(), "b".into()],
                message
            }]
        );
    }

    #[test]
    fn bad_updates_are_refused_and_spoil_nothing() {
        let mut federation = federation(1);
        federation.receive("a", update("a", 1, &json!([[1.0, 2.0]]))).unwrap();
        let refused = |federation: &mut Federation, message| federation.receive("b", message).unwrap_err().to_string();
        assert!(refused(&mut federation, update("b", 0, &json!([[1.0]]))).contains("num_samples above 0"));
        assert!(refused(&mut federation, update("b", 1, &json!("x"))).starts_with("update_weight, data:"));
        assert!(refused(&mut federation, json!({"type": "update_weight"})).starts_with("update_weight, data:"));
        assert!(refused(&mut federation, update("b", 1, &json!([[1.0]]))).contains("differ in shape"));
        let sent = federation.receive("b", update("b", 1, &json!([[3.0, 4.0]]))).unwrap();
        assert_eq!(sent[0].message["data"]["weights"], json!([[2.0, 3.0]]));
    }
}
