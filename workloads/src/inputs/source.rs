//! Models and data sets that a worker reads, as far as they were found; what was not found is a finding that names it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{credential::Credential, location::Location};
use crate::{Finding, Impact, ObjectKind, Reference, References};

/// A model or data set that a worker reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The variable that tells the worker where it is.
    pub(crate) env: &'static str,
    /// What it is, for messages: `Model small`.
    pub(crate) title: String,
    /// Its address as declared.
    pub(crate) url: String,
    /// The address, understood.
    pub(crate) location: Location,
    /// Whether the storage initializer fetches it before the worker starts; otherwise the worker reaches it itself.
    pub(crate) fetched: bool,
    /// How to reach it, where it lies in object storage.
    pub(crate) credential: Option<Credential>,
}

impl Source {
    /// What of it decides whether a worker has to be made anew.
    pub(crate) fn inputs(&self) -> Value {
        let credential = self.credential.as_ref();
        json!({
            "env": self.env,
            "url": self.url,
            "credential": credential.map(|credential| json!([credential.secret, credential.digest])),
        })
    }
}

/// Looks things up for one worker.
pub(crate) struct Resolver<'a> {
    /// What was found.
    pub(crate) found: &'a References,
    /// The worker, for messages: `the edge worker`.
    pub(crate) worker: &'a str,
}

impl Resolver<'_> {
    /// The Model `name`, told to the worker in `env`. A Model without an address is none.
    pub(crate) fn model(&self, name: &str, env: &'static str) -> Result<Option<Source>, Finding> {
        self.named(ObjectKind::MODEL, name, env)
    }

    /// The Dataset `name`, told to the worker in `env`.
    pub(crate) fn dataset(&self, name: &str, env: &'static str) -> Result<Option<Source>, Finding> {
        self.named(ObjectKind::DATASET, name, env)
    }

    fn named(&self, kind: ObjectKind, name: &str, env: &'static str) -> Result<Option<Source>, Finding> {
        let title = format!("{} {name}", kind.kind);
        let Some(object) = self.found.get(kind, name) else {
            let reason = if kind == ObjectKind::MODEL {
                "ModelMissing"
            } else {
                "DatasetMissing"
            };
            return Err(blocked(
                reason,
                format!("{title} does not exist; {} needs it", self.worker),
            ));
        };
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let source = self.at(title, text("/spec/url"), text("/spec/credentialName"), env)?;
        Ok(source.map(|source| Source {
            fetched: true,
            ..source
        }))
    }

    /// An address that the worker reaches itself, with the Secret `secret` if it lies in object storage.
    pub(crate) fn at(
        &self,
        title: String,
        url: &str,
        secret: &str,
        env: &'static str,
    ) -> Result<Option<Source>, Finding> {
        if url.is_empty() {
            return Ok(None);
        }
        let location = Location::parse(url).map_err(|error| {
            blocked(
                "AddressInvalid",
                format!("{title} has an address that is of no use: {error}"),
            )
        })?;
        let credential = if location.is_s3() && !secret.is_empty() {
            Some(self.credential(&title, secret)?)
        } else {
            None
        };
        Ok(Some(Source {
            env,
            title,
            url: url.to_owned(),
            location,
            fetched: false,
            credential,
        }))
    }

    fn credential(&self, title: &str, name: &str) -> Result<Credential, Finding> {
        let Some(object) = self.found.get(ObjectKind::SECRET, name) else {
            let message = format!(
                "Secret {name} does not exist; {title} names it, and {} needs it",
                self.worker
            );
            return Err(blocked("SecretMissing", message));
        };
        Credential::read(name, object).map_err(|missing| incomplete(name, title, &missing))
    }
}

/// A Secret that lacks something.
pub(crate) fn incomplete(secret: &str, title: &str, missing: &[&str]) -> Finding {
    let message = format!("Secret {secret} of {title} lacks {}", missing.join(", "));
    blocked("SecretIncomplete", message)
}

/// Something that somebody has to mend.
pub(crate) fn blocked(reason: &'static str, message: String) -> Finding {
    Finding {
        impact: Impact::Blocked,
        reason,
        message,
    }
}

/// Adds the object and, once it was found, the Secret that it names and needs.
pub(crate) fn refer(kind: ObjectKind, name: &str, found: &References, into: &mut BTreeSet<Reference>) {
    if name.is_empty() {
        return;
    }
    into.insert(Reference::new(kind, name));
    if let Some(object) = found.get(kind, name) {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        refer_secret(text("/spec/url"), text("/spec/credentialName"), into);
    }
}

/// Adds the Secret of an address that needs one.
pub(crate) fn refer_secret(url: &str, secret: &str, into: &mut BTreeSet<Reference>) {
    if !secret.is_empty() && Location::parse(url).is_ok_and(|location| location.is_s3()) {
        into.insert(Reference::new(ObjectKind::SECRET, secret));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lookup, testing};
    use rstest::rstest;

    fn resolve(found: &References) -> Result<Option<Source>, Finding> {
        Resolver {
            found,
            worker: "the edge worker",
        }
        .model("m", "MODEL_URL")
    }

    #[test]
    fn a_missing_model_is_named() {
        let mut found = References::default();
        found.0.insert(Reference::new(ObjectKind::MODEL, "m"), Lookup::Missing);
        let finding = resolve(&found).unwrap_err();
        assert_eq!(finding.message, "Model m does not exist; the edge worker needs it");
        assert_eq!((finding.impact, finding.reason), (Impact::Blocked, "ModelMissing"));
    }

    #[rstest]
    #[case("s3://b/m", "secret", true)]
    #[case("s3://b/m", "", false)]
    #[case("/models/m", "secret", false)]
    #[case("http://h/m", "secret", false)]
    fn only_object_storage_needs_a_secret(#[case] url: &str, #[case] secret: &str, #[case] needed: bool) {
        let found = testing::found([testing::model("m", url, secret)]);
        let mut named = BTreeSet::new();
        refer(ObjectKind::MODEL, "m", &found, &mut named);
        assert_eq!(named.contains(&Reference::new(ObjectKind::SECRET, "secret")), needed);
        assert_eq!(resolve(&found).is_err(), needed, "the Secret is not there");
    }

    #[test]
    fn a_secret_without_annotations_is_named() {
        let secret = json!({"kind": "Secret", "metadata": {"name": "keys"}, "data": {}});
        let found = testing::found([testing::model("m", "s3://b/m", "keys"), secret]);
        assert_eq!(
            resolve(&found).unwrap_err().message,
            "Secret keys of Model m lacks annotation s3-endpoint, data key ACCESS_KEY_ID, data key SECRET_ACCESS_KEY"
        );
    }

    #[test]
    fn an_address_that_is_of_no_use_is_named() {
        let found = testing::found([testing::model("m", "models/m", "")]);
        assert!(
            resolve(&found)
                .unwrap_err()
                .message
                .starts_with("Model m has an address that is of no use: \"models/m\"")
        );
    }

    #[test]
    fn a_model_without_an_address_is_none() {
        assert_eq!(resolve(&testing::found([testing::model("m", "", "")])), Ok(None));
    }
}
