//! The aggregator's socket as a client in another language sees it.

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use skerry_workers::aggregator::{self, AggregatorError};
use skerry_workers::env::Env;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tokio_util::sync::CancellationToken;

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn connect(url: &str) -> Self {
        Self(connect_async(url).await.unwrap().0)
    }

    async fn subscribed(url: &str, id: &str) -> Self {
        let mut client = Self::connect(url).await;
        let subscribe = json!({"type": "subscribe", "client_id": id});
        client.send(&subscribe.to_string()).await;
        assert_eq!(client.receive().await, subscribe);
        client
    }

    async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    async fn update(&mut self, id: &str, samples: u32, weights: Value) {
        let data = json!({"num_samples": samples, "weights": weights});
        self.send(&json!({"type": "update_weight", "client": id, "data": data, "job_name": "j"}).to_string())
            .await;
    }

    async fn receive(&mut self) -> Value {
        serde_json::from_str(self.0.next().await.unwrap().unwrap().to_text().unwrap()).unwrap()
    }

    /// Why the server closes the connection.
    async fn farewell(&mut self) -> String {
        loop {
            if let Message::Close(frame) = self.0.next().await.unwrap().unwrap() {
                return frame.unwrap().reason.to_string();
            }
        }
    }
}

async fn start(rounds: &str) -> (String, JoinHandle<Result<(), AggregatorError>>) {
    let env: Env = [("PARTICIPANTS_COUNT", "2"), ("EXIT_ROUND", rounds)]
        .into_iter()
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/FedAvg", listener.local_addr().unwrap());
    let settings = aggregator::Settings::from_env(&env).unwrap();
    (
        url,
        tokio::spawn(aggregator::serve(listener, settings, CancellationToken::new())),
    )
}

#[tokio::test]
async fn a_job_of_one_round_from_its_first_message_to_its_end() {
    let (url, job) = start("1").await;
    let mut a = Client::subscribed(&url, "a").await;
    let mut b = Client::subscribed(&url, "b").await;
    assert_eq!(a.receive().await, json!({"type": "CLIENT_JOIN", "data": "b"}));
    assert_eq!(a.receive().await, json!({"type": "subscribe", "client_id": "b"}));
    a.update("a", 1, json!([[[1, 2], [3, 4]], [0]])).await;
    b.update("b", 3, json!([[[5, 2], [3, 0]], [4]])).await;
    for client in [&mut a, &mut b] {
        let message = client.receive().await;
        assert_eq!(message["type"], "recv_weight");
        assert_eq!(message["round_number"], 1);
        let data = json!({
            "total_sample": 4,
            "round_number": 1,
            "weights": [[[4.0, 2.0], [3.0, 1.0]], [3.0]],
            "exit_flag": "ok",
        });
        assert_eq!(message["data"], data);
    }
    a.0.close(None).await.unwrap();
    drop(b);
    job.await.unwrap().unwrap();
}

#[tokio::test]
async fn clients_that_break_the_protocol_are_told_and_the_others_stay() {
    let (url, _job) = start("1").await;
    let mut a = Client::subscribed(&url, "a").await;

    let mut twin = Client::connect(&url).await;
    twin.send(r#"{"type": "subscribe", "client_id": "a"}"#).await;
    assert_eq!(twin.farewell().await, r#"client_id "a" is connected already"#);

    let mut rude = Client::connect(&url).await;
    rude.send(r#"{"type": "update_weight", "client": "c", "data": {}}"#)
        .await;
    assert_eq!(rude.farewell().await, "a subscribe message is wanted first");

    let mut nameless = Client::connect(&url).await;
    nameless.send(r#"{"type": "subscribe"}"#).await;
    assert_eq!(nameless.farewell().await, "subscribe: a client_id is wanted");

    let mut garbled = Client::subscribed(&url, "d").await;
    garbled.send("NaN").await;
    assert!(garbled.farewell().await.starts_with("a message is not JSON"));

    a.send(r#"{"type": "message", "data": "still here"}"#).await;
    loop {
        let message = a.receive().await;
        if message["type"] == "message" {
            break;
        }
    }
}
