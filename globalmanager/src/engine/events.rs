//! Tells users what happened, where `kubectl describe` shows it. Best effort: an event that cannot be written is logged
//! and changes nothing.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{self, Recorder, Reporter},
};
use serde_json::Value;
use skerry_crds::names;
use skerry_workloads::{Event, EventType};

/// The process's one recorder, which folds repeats into a series.
pub(crate) struct Events(Recorder);

impl Events {
    pub(crate) fn new(client: Client, instance: &str) -> Self {
        Self(Recorder::new(
            client,
            Reporter {
                controller: names::MANAGER.to_owned(),
                instance: Some(instance.to_owned()),
            },
        ))
    }

    /// Publishes events about an object.
    pub(crate) async fn publish(&self, object: &Value, told: &[Event]) {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let about = ObjectReference {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            field_path: None,
        };
        for Event { type_, reason, message } in told {
            let event = events::Event {
                type_: match type_ {
                    EventType::Normal => events::EventType::Normal,
                    EventType::Warning => events::EventType::Warning,
                },
                reason: (*reason).to_owned(),
                note: Some(shortened(message)),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            if let Err(error) = self.0.publish(&event, &about).await {
                tracing::warn!(%error, reason, message, "an event could not be written");
            }
        }
    }
}

/// Kubernetes takes notes of at most 1,024 bytes.
fn shortened(message: &str) -> String {
    let end = message
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= 1000)
        .last();
    message.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}
