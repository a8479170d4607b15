//! Whatever a frame holds is read back as it was written, and hashes tell what differs.

use proptest::prelude::*;

use super::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".*", inner), 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = ObjectKey> {
    (
        "[a-z]{1,20}",
        "[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?",
        "[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?(\\.[a-z]{1,3})?",
    )
        .prop_map(|(kind, namespace, name)| ObjectKey { kind, namespace, name })
}

fn any_item_key() -> impl Strategy<Value = ItemKey> {
    (any_key(), prop::option::of("[a-z]{1,9}")).prop_map(|(object, secret)| ItemKey { object, secret })
}

fn any_row() -> impl Strategy<Value = Row> {
    (any_item_key(), ".*", any::<i64>(), any::<[u8; 32]>()).prop_map(|(key, uid, generation, hash)| Row {
        key,
        uid,
        generation,
        hash: hash.into(),
    })
}

fn any_epoch() -> impl Strategy<Value = Epoch> {
    let made = prop::option::of(any::<i32>());
    (".*", any::<u64>(), made).prop_map(|(lease, transitions, made)| Epoch {
        lease,
        transitions,
        made: made.map(|second| Timestamp::from_second(second.into()).unwrap()),
    })
}

fn any_downstream() -> impl Strategy<Value = Downstream> {
    let start = prop_oneof![
        Just(Start::Resume {}),
        prop::collection::vec(any_row(), 0..20).prop_map(|rows| Start::Digest {
            chunks: chunk_hashes(&rows, 8)
        }),
    ];
    let object = (any_key(), ".*", any::<i64>(), any_json()).prop_map(|(key, uid, generation, body)| Object {
        key,
        uid,
        generation,
        body: body.into(),
    });
    let credential = (
        any_key(),
        ".*",
        "[a-z]{1,9}",
        prop::collection::btree_map(".*", ".*", 0..4),
    )
        .prop_map(|(owner, uid, secret, fields)| Credential {
            owner,
            uid,
            secret,
            fields,
        });
    let result = prop_oneof![
        Just(ReportResult::Accepted {}),
        ".*".prop_map(|reason| ReportResult::Refused { reason }),
    ];
    prop_oneof![
        (".*", any_epoch(), start, any::<Option<u32>>()).prop_map(|(cluster, epoch, start, reports_per_second)| {
            Downstream::Welcome {
                cluster,
                epoch,
                start,
                reports_per_second,
            }
        }),
        any::<u64>().prop_map(|version| Downstream::Synced { version }),
        (any::<u64>(), object).prop_map(|(version, object)| Downstream::Put { version, object }),
        (any::<u64>(), credential).prop_map(|(version, credential)| Downstream::PutCredential { version, credential }),
        (any::<u64>(), any_item_key()).prop_map(|(version, key)| Downstream::Delete { version, key }),
        (any::<u64>(), result).prop_map(|(seq, result)| Downstream::ReportResult { seq, result }),
        any::<(u64, u64)>().prop_map(|(seq, retry_after_ms)| Downstream::ReportLater { seq, retry_after_ms }),
        any::<u64>().prop_map(|reconnect_after_ms| Downstream::Restarting { reconnect_after_ms }),
        ".*".prop_map(|hint| Downstream::Refused {
            reason: RefusedReason::Behind,
            hint
        }),
    ]
}

fn any_upstream() -> impl Strategy<Value = Upstream> {
    let stored = prop::option::of((".*", any_epoch(), any::<u64>())).prop_map(|stored| {
        stored.map(|(cluster, epoch, version)| Position {
            cluster,
            epoch,
            version,
        })
    });
    let window = prop::option::of(any::<u32>());
    let hello = (".*", ".*", any::<u32>(), ".*", stored, any::<u64>(), window).prop_map(
        |(node, boot, protocol, agent, stored, holds, window)| Hello {
            node,
            boot,
            protocol,
            agent,
            stored,
            holds,
            window,
        },
    );
    let payload = prop_oneof![
        any_json().prop_map(|message| ReportPayload::Metrics {
            message: message.into()
        }),
        (any::<u64>(), any_json()).prop_map(|(round, message)| ReportPayload::Round {
            round,
            message: message.into()
        }),
        any_json().prop_map(|message| ReportPayload::Event {
            message: message.into()
        }),
        any::<u64>().prop_map(|count| ReportPayload::DatasetSamples { count }),
        ".*".prop_map(|reason| ReportPayload::DatasetFailed { reason }),
    ];
    let report = (
        any::<u64>(),
        prop::option::of((".*", any::<u64>())),
        any_key(),
        ".*",
        -10_000_000_000_i64..10_000_000_000,
        payload,
    )
        .prop_map(|(seq, id, key, uid, second, payload)| {
            let observed_at = Timestamp::from_second(second).unwrap();
            Report {
                seq,
                id: id.map(|(boot, number)| ReportId { boot, number }),
                key,
                uid,
                observed_at,
                payload,
            }
        });
    prop_oneof![
        hello.prop_map(Upstream::Hello),
        (
            prop::collection::vec(any::<u32>(), 0..5),
            prop::collection::vec(any_row(), 0..5),
            any::<bool>()
        )
            .prop_map(|(chunks, rows, more)| Upstream::Rows { chunks, rows, more }),
        any::<u64>().prop_map(|version| Upstream::Ack { version }),
        (any::<u64>(), any::<Option<u64>>(), report).prop_map(|(settled, after, report)| Upstream::Report {
            settled,
            after,
            report
        }),
        any::<(u64, u64)>().prop_map(|(seq, count)| Upstream::Gap { seq, count }),
        any::<(u64, u64)>().prop_map(|(messages, bytes)| Upstream::Outbox(OutboxDepth { messages, bytes })),
        ".*".prop_map(|hint| Upstream::Refused {
            reason: RefusedReason::Deposed,
            hint
        }),
    ]
}

proptest! {
    #[test]
    fn frames_to_a_node_are_read_as_they_were_written(frame in any_downstream()) {
        let text = frame.encode().unwrap();
        let read = Downstream::decode(&text).unwrap();
        prop_assert_eq!(&read, &Received::Message(frame));
        // Epochs are equal also where the age of a Lease was lost.
        prop_assert_eq!(read.known().unwrap().encode().unwrap(), text);
    }

    #[test]
    fn frames_to_the_manager_are_read_as_they_were_written(frame in any_upstream()) {
        let text = frame.encode().unwrap();
        let read = Upstream::decode(&text).unwrap();
        prop_assert_eq!(&read, &Received::Message(frame));
        // Epochs are equal also where the age of a Lease was lost.
        prop_assert_eq!(read.known().unwrap().encode().unwrap(), text);
    }

    #[test]
    fn nothing_that_comes_makes_a_decoder_fail_otherwise_than_by_its_error(
        text in ".*",
        frame in any_downstream(),
        cut in any::<prop::sample::Index>(),
    ) {
        let _ = (Downstream::decode(&text), Upstream::decode(&text));
        let mut half = frame.encode().unwrap();
        half.truncate((0..=cut.index(half.len())).rev().find(|at| half.is_char_boundary(*at)).unwrap_or(0));
        prop_assert!(Downstream::decode(&half).is_err());
    }

    #[test]
    fn equal_values_have_equal_hashes_whatever_the_order_of_their_keys(value in any_json()) {
        fn turned(value: &Value) -> Value {
            match value {
                Value::Object(fields) => {
                    Value::Object(fields.iter().rev().map(|(name, field)| (name.clone(), turned(field))).collect())
                }
                Value::Array(items) => Value::Array(items.iter().map(turned).collect()),
                scalar => scalar.clone(),
            }
        }
        prop_assert_eq!(crate::Body::from(&value).hash(), crate::Body::from(turned(&value)).hash());
    }

    #[test]
    fn a_chunk_s_hash_tells_whether_it_holds_the_same_rows(
        rows in prop::collection::btree_map(any_item_key(), any_row(), 1..40),
        changed in any::<prop::sample::Index>(),
    ) {
        let rows: Vec<Row> = rows.into_iter().map(|(key, row)| Row { key, ..row }).collect();
        let mut other: Vec<Row> = rows.iter().rev().cloned().collect();
        prop_assert_eq!(chunk_hashes(&rows, 8), chunk_hashes(&other, 8), "order does not count");
        let at = changed.index(other.len());
        other[at].generation = other[at].generation.wrapping_add(1);
        let chunk = chunk_of(&other[at].key, 8);
        let differs = |at: &usize| chunk_hashes(&rows, 8)[*at] != chunk_hashes(&other, 8)[*at];
        prop_assert_eq!((0..8).filter(differs).collect::<Vec<_>>(), vec![chunk]);
    }
}
