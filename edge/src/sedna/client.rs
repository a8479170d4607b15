//! A node's end of a connection with Sedna's own manager.

use axum::http::HeaderValue;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message},
};

use super::NODE_NAME;
use crate::{
    message::{MessageError, Received},
    transport::{
        Frame, Socket,
        client::{DialError, Dialer, Upgrade},
    },
};

/// What it speaks, for messages.
const PROTOCOL: &str = "Sedna's protocol";

/// Bytes of a message that are read. It carries a resource of 1.5 MiB at most, in base64; with every letter escaped, as Go's
/// JSON may have it, and a Secret's content with it, it is still below. What is longer ends the connection, so it is far above
/// what is taken: a message that is only too long for a node costs no other one.
pub const LONGEST: usize = 16 * 1024 * 1024;

/// The node's end.
pub type SednaSocket<Io> = Socket<WebSocketStream<Io>, Message, Text, Text>;

/// A message as it is on the wire; what it means is found out by whoever keeps the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl Frame for Text {
    fn encode(&self) -> Result<String, serde_json::Error> {
        Ok(self.0.clone())
    }

    fn decode(text: &str) -> Result<Received<Self>, MessageError> {
        Ok(Received::Message(Self(text.to_owned())))
    }

    fn is_change(&self) -> bool {
        false
    }
}

/// Connects with the manager as the node of this name.
pub async fn connect<D: Dialer>(dialer: &D, node: &str) -> Result<SednaSocket<D::Io>, DialError> {
    let name = HeaderValue::from_str(node).map_err(|error| DialError::Upgrade {
        host: dialer.host().to_owned(),
        protocol: PROTOCOL,
        source: Box::new(tungstenite::Error::HttpFormat(error.into())),
    })?;
    let upgrade = Upgrade {
        protocol: PROTOCOL,
        header: (NODE_NAME, name),
        longest: LONGEST,
    };
    upgrade.connect(dialer).await.map(Socket::new)
}
