//! What a node holds: objects and credentials, and their keys.
//!
//! Nothing here knows who wants an object or where it is stored.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, value::RawValue};
use thiserror::Error;

use crate::hash::{ContentHash, canonical};
use crate::limits;

/// Names an object on a node: the resource that it is the copy of.
///
/// A node holds at most one object of a resource, so the key is the resource's own.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    /// The kind as Sedna writes it on the wire: lower-case, singular (`dataset`, `jointinferenceservice`).
    pub kind: String,
    /// The resource's namespace.
    pub namespace: String,
    /// The resource's name.
    pub name: String,
}

impl ObjectKey {
    /// A key of these parts, unchecked; see [`ObjectKey::check`].
    pub fn new(kind: impl Into<String>, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Whether every part is a name that Kubernetes could have given, so that it is safe in a path and in a log line.
    pub fn check(&self) -> Result<(), KeyError> {
        let Self { kind, namespace, name } = self;
        if kind.is_empty() || kind.len() > 63 || !kind.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Err(KeyError::new("kind", kind));
        }
        for (field, value) in [("namespace", namespace), ("name", name)] {
            if !is_dns_name(value) {
                return Err(KeyError::new(field, value));
            }
        }
        Ok(())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        write!(f, "{kind}/{namespace}/{name}")
    }
}

/// A part of a key that Kubernetes would not have allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} {value:?} is not a Kubernetes name: lower-case letters, digits, '-' and '.', at most 253")]
pub struct KeyError {
    field: &'static str,
    value: String,
}

impl KeyError {
    pub(crate) fn new(field: &'static str, value: &str) -> Self {
        Self {
            field,
            value: value.chars().take(limits::QUOTED).collect(),
        }
    }
}

/// Whether this is a DNS subdomain as RFC 1123 has it: what Kubernetes allows as the name of a node or a resource.
pub fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Names what a node's store holds: an object, or a credential that one of its objects needs.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ItemKey {
    /// The object itself, or the object that needs the credential.
    pub object: ObjectKey,
    /// The credential's Secret, in the object's namespace; none for the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl ItemKey {
    /// Whether this names a credential.
    pub fn is_credential(&self) -> bool {
        self.secret.is_some()
    }

    /// As [`ObjectKey::check`], the Secret's name included.
    pub fn check(&self) -> Result<(), KeyError> {
        self.object.check()?;
        match &self.secret {
            Some(secret) if !is_dns_name(secret) => Err(KeyError::new("secret", secret)),
            _ => Ok(()),
        }
    }
}

impl From<ObjectKey> for ItemKey {
    fn from(object: ObjectKey) -> Self {
        Self { object, secret: None }
    }
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.secret {
            Some(secret) => write!(f, "{} (credential {secret})", self.object),
            None => self.object.fmt(f),
        }
    }
}

/// One resource as a node is told of it. Cloning is cheap: the body is shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// The resource that this is the copy of.
    pub key: ObjectKey,
    /// The resource's uid: a resource that was deleted and made again under its name is another one.
    pub uid: String,
    /// The resource's `metadata.generation`. The body may change while it stays (a Model that it names has moved).
    pub generation: i64,
    /// What the node is told.
    pub body: Body,
}

/// JSON that is kept as text, with its hash: shared between the engine, the nodes and the frames that carry it.
///
/// Made from a [`Value`] the text is canonical (keys sorted, no white space), so that equal values have equal hashes.
/// Read from a frame or a store it is the text as it came.
#[derive(Clone)]
pub struct Body(Arc<BodyInner>);

struct BodyInner {
    hash: ContentHash,
    json: Box<RawValue>,
}

impl Body {
    fn from_raw(json: Box<RawValue>) -> Self {
        let hash = ContentHash::of(json.get().as_bytes());
        Self(Arc::new(BodyInner { hash, json }))
    }

    /// Reads a body from the text of a store.
    pub fn from_json(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self::from_raw)
    }

    /// The JSON text.
    pub fn json(&self) -> &str {
        self.0.json.get()
    }

    /// The text as a tree. Fails where it nests deeper than a resource can.
    pub fn value(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(self.json())
    }

    /// The hash of the text.
    pub fn hash(&self) -> ContentHash {
        self.0.hash
    }
}

impl From<&Value> for Body {
    fn from(value: &Value) -> Self {
        // Text that `canonical` has written is JSON; were it not, `null` would show up as a wrong hash, not as a crash.
        Self::from_json(canonical(value)).unwrap_or_else(|_| Self::from_raw(RawValue::NULL.to_owned()))
    }
}

impl From<Value> for Body {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.hash == other.0.hash
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from_raw)
    }
}

/// What one object needs to reach its data: the content of a Secret as Sedna has it (`s3-endpoint`, `s3-usehttps`,
/// `ACCESS_KEY_ID`, `SECRET_ACCESS_KEY`). It never prints its values.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The object that needs it.
    pub owner: ObjectKey,
    /// The uid of that object's resource.
    pub uid: String,
    /// The Secret's name, in the owner's namespace.
    pub secret: String,
    /// The values by name.
    pub fields: BTreeMap<String, String>,
}

impl Credential {
    /// Under which key a node stores it.
    pub fn key(&self) -> ItemKey {
        ItemKey {
            object: self.owner.clone(),
            secret: Some(self.secret.clone()),
        }
    }

    /// Bytes of its names and values.
    pub fn size(&self) -> usize {
        self.fields.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The hash of its fields.
    pub fn hash(&self) -> ContentHash {
        ContentHash::of_texts(self.fields.iter().flat_map(|(name, value)| [&**name, value]))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            owner,
            uid: _,
            secret,
            fields: _,
        } = self;
        write!(f, "Credential({owner}, {secret}: [redacted])")
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// What a node should hold under one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An object.
    Object(Object),
    /// A credential that one of the node's objects needs.
    Credential(Credential),
}

impl Item {
    /// Under which key a node stores it.
    pub fn key(&self) -> ItemKey {
        match self {
            Self::Object(object) => object.key.clone().into(),
            Self::Credential(credential) => credential.key(),
        }
    }

    /// The uid of the resource that it belongs to.
    pub fn uid(&self) -> &str {
        match self {
            Self::Object(object) => &object.uid,
            Self::Credential(credential) => &credential.uid,
        }
    }

    /// By what both ends compare it.
    pub fn row(&self) -> Row {
        let (generation, hash) = match self {
            Self::Object(object) => (object.generation, object.body.hash()),
            Self::Credential(credential) => (0, credential.hash()),
        };
        Row {
            key: self.key(),
            uid: self.uid().to_owned(),
            generation,
            hash,
        }
    }
}

/// What a digest compares of an item; a store keeps these four beside the item's content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Row {
    /// The item's key.
    pub key: ItemKey,
    /// [`Object::uid`] or [`Credential::uid`].
    pub uid: String,
    /// [`Object::generation`]; 0 for a credential.
    pub generation: i64,
    /// [`Body::hash`] or [`Credential::hash`].
    pub hash: ContentHash,
}
