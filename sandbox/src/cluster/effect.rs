//! What a controller decided to do: plain data that a test can read and the executor carries out, in order, until the
//! first failure.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use super::meta::{self, Id, id};

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Make an object. What is said about it goes to the event log.
    Create(Body, Option<Announce>),
    /// Replace an object; refused if it has changed since it was read.
    Update(Body),
    /// Replace an object's status; refused if it has changed since it was read.
    UpdateStatus(Body),
    /// Merge something into an object's status as its kind's lists ask (strategic merge patch).
    PatchStatus(Target, Value),
    /// Delete an object, if it is still the same one.
    Delete(Delete),
    /// Become a child's controller, if the owner still exists and stays, which is looked up first.
    Adopt {
        /// The child.
        child: Target,
        /// The kind of the owner.
        owner_kind: Kind,
        /// The reference that the child gets.
        owner: OwnerReference,
    },
    /// Remove an owner's reference from a child.
    Release {
        /// The child.
        child: Target,
        /// The uid of the owner.
        owner: String,
    },
    /// Assign a pod to a node.
    Bind {
        /// The pod.
        pod: Target,
        /// The node's name.
        node: String,
    },
    /// Say something about an object.
    Event(Announcement),
}

impl Effect {
    /// The existing object that this is done to.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::Update(body) | Self::UpdateStatus(body) => Some(&body.target),
            Self::PatchStatus(target, _) => Some(target),
            Self::Delete(delete) => Some(&delete.target),
            Self::Adopt { child, .. } | Self::Release { child, .. } => Some(child),
            Self::Bind { pod, .. } => Some(pod),
            Self::Create(..) | Self::Event(_) => None,
        }
    }
}

/// An object in full, and what it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Body {
    pub(crate) target: Target,
    pub(crate) object: Value,
}

impl Body {
    pub(crate) fn of<K: Written + Serialize>(object: &K) -> Self {
        // The types of `k8s_openapi` have string keys only, so this cannot fail.
        Self {
            target: Target::of(object),
            object: serde_json::to_value(object).unwrap_or_default(),
        }
    }

    /// The object, if it is a `K`.
    #[cfg(test)]
    pub(crate) fn parse<K: Written + serde::de::DeserializeOwned>(&self) -> Option<K> {
        (self.target.kind == K::KIND).then(|| serde_json::from_value(self.object.clone()).unwrap())
    }
}

/// A deletion.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Delete {
    pub(crate) target: Target,
    /// Seconds until the object has to be gone; the object's own where absent.
    pub(crate) grace: Option<u32>,
    pub(crate) announce: Option<Announce>,
}

impl Delete {
    pub(crate) fn of<K: Written>(object: &K) -> Self {
        Self {
            target: Target::of(object),
            grace: None,
            announce: None,
        }
    }
}

/// Which object. The uid guards against another one that took the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) id: Id,
    pub(crate) uid: String,
}

impl Target {
    pub(crate) fn of<K: Written>(object: &K) -> Self {
        Self {
            kind: K::KIND,
            id: id(object),
            uid: meta::uid(object).to_owned(),
        }
    }
}

/// What to say in events about a request's outcome: the object's name or the error is put at the end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Announce {
    pub(crate) about: ObjectReference,
    pub(crate) component: &'static str,
    /// Reason and text when it was done.
    pub(crate) done: Option<(&'static str, &'static str)>,
    /// Reason and text when it was refused.
    pub(crate) refused: (&'static str, String),
}

/// An event to record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Announcement {
    pub(crate) about: ObjectReference,
    pub(crate) component: &'static str,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

macro_rules! kinds {
    ($($kind:ident: $type:ty,)+) => {
        /// The kinds that the controllers write.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Kind {
            $($kind,)+
        }

        impl Kind {
            /// The path of the collection that holds such objects.
            pub(crate) fn path(self, namespace: &str) -> String {
                let namespace = (!namespace.is_empty()).then_some(namespace);
                match self {
                    $(Self::$kind => <$type>::url_path(&(), namespace),)+
                }
            }
        }

        $(impl Written for $type {
            const KIND: Kind = Kind::$kind;
        })+
    };
}

/// A type that the controllers write.
pub(crate) trait Written: Resource<DynamicType = ()> {
    const KIND: Kind;
}

kinds! {
    Deployment: k8s_openapi::api::apps::v1::Deployment,
    EndpointSlice: k8s_openapi::api::discovery::v1::EndpointSlice,
    Node: k8s_openapi::api::core::v1::Node,
    Pod: k8s_openapi::api::core::v1::Pod,
    ReplicaSet: k8s_openapi::api::apps::v1::ReplicaSet,
}
