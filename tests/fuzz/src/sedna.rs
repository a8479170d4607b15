//! Sedna's own protocol, both directions.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use skerry_edge::{
    ObjectKey, Report, ReportPayload, Upstream, limits,
    message::Received,
    sedna::{
        envelope::{Envelope, EnvelopeError, Header, Said},
        holdings::Holdings,
        told::Told,
    },
};

use crate::Came;

/// Reads a message, or one that is made of two parts: operation, kind, namespace and name in a line, and the content behind it.
/// In base64 it would never change in a way that means anything.
fn read<T>(data: &[u8], mean: impl Fn(&Envelope) -> Result<T, EnvelopeError>) -> Result<T, Came> {
    let text = std::str::from_utf8(data).map_err(|_| Came::refused("not text"))?;
    let parts = text.split_once('\n').filter(|(head, _)| !head.starts_with('{'));
    let made = parts.map(|(head, content)| {
        let mut words = head.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let (operation, resource_kind, namespace, resource_name) = (word(), word(), word(), word());
        let header = Header {
            namespace,
            resource_kind,
            resource_name,
            operation,
        };
        let content = STANDARD.encode(content);
        Envelope { header, content }.encode()
    });
    let envelope = Envelope::decode(made.as_deref().unwrap_or(text)).map_err(Came::refused)?;
    let again = Envelope::decode(&envelope.encode()).unwrap();
    assert_eq!(envelope, again, "read differently once written");
    let kind = format!(" of a {}", envelope.header.resource_kind.to_ascii_lowercase());
    mean(&envelope).map_err(|error| Came::refused(error.to_string().replace(&kind, "")))
}

/// What is told keeps to the limits of a store, means the same when our own manager tells it, and is stored once.
pub(crate) fn told(data: &[u8]) -> Came {
    match read(data, Envelope::told) {
        Err(refused) => refused,
        Ok(Told::Delete(key)) => {
            check(&key);
            Came::taken(format!("delete {}", key.kind))
        }
        Ok(told @ Told::Put { .. }) => {
            let mut holdings = Holdings::default();
            let changes = holdings.changes(told.clone()).unwrap();
            holdings.stored(&changes);
            assert_eq!(holdings.changes(told.clone()).unwrap(), [], "stored again");
            let Told::Put { object, credential } = told else {
                return Came::refused("no object");
            };
            check(&object.key);
            assert!(object.body.json().len() <= limits::MAX_BODY && object.uid.len() <= limits::MAX_NAME);
            let by_us = Envelope::insert(&object, credential.as_ref()).told();
            let Ok(Told::Put {
                object: again,
                credential: with,
            }) = by_us
            else {
                panic!("{by_us:?}");
            };
            assert_eq!((&object.key, &object.uid, &credential), (&again.key, &again.uid, &with));
            Came::taken(format!("put {} {}", object.key.kind, credential.is_some()))
        }
    }
}

/// What an agent says can be carried by a report, and means the same when a node of ours says it.
pub(crate) fn said(data: &[u8]) -> Came {
    match read(data, Envelope::said) {
        Err(refused) => refused,
        Ok(None) => Came::taken("a greeting"),
        Ok(Some(Said { key, payload })) => {
            check(&key);
            let report = Report {
                seq: 1,
                id: None,
                key,
                uid: "u".to_owned(),
                observed_at: jiff::Timestamp::UNIX_EPOCH,
                payload,
            };
            let frame = Upstream::Report {
                settled: 1,
                after: None,
                report: report.clone(),
            };
            let carried = Upstream::decode(&frame.encode().unwrap());
            assert!(
                matches!(carried, Ok(Received::Message(_))),
                "no report carries it: {carried:?}"
            );
            let again = Envelope::status(&report).unwrap().said().unwrap().unwrap();
            assert_eq!(again.key, report.key);
            // The last digit of a long fraction may differ, so it is not the text that is compared.
            let kind = |payload: &ReportPayload| match payload {
                ReportPayload::Round { round, .. } => ("round", *round),
                ReportPayload::DatasetSamples { count } => ("samples", *count),
                ReportPayload::Metrics { .. } => ("metrics", 0),
                _ => ("event", 0),
            };
            assert_eq!(kind(&again.payload), kind(&report.payload));
            Came::taken(kind(&report.payload).0)
        }
    }
}

fn check(key: &ObjectKey) {
    assert!(key.check().is_ok(), "{key}");
}
