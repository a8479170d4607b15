//! The one trait that every kind implements, and through which the engine drives all of them.

use std::{collections::BTreeSet, fmt::Debug};

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Applied, ObjectKind, Observed, Plan, Reference, References, Refusal, Report, Settings, StatusChange};

/// What a kind says about itself. No method does I/O; each is a function of its arguments alone.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// What this kind is called.
    const KIND: ObjectKind;

    /// The part of the status that the manager writes, without what nodes report.
    type Status: Serialize + Debug + PartialEq + Send;

    /// The kinds of objects that this kind makes: the engine watches them, and prunes only among them.
    const CHILDREN: &'static [ObjectKind];

    /// The kinds of objects by whose status it is decided what this kind makes: children, or itself. The status of any other is
    /// only told of.
    const DECIDED_BY: &'static [ObjectKind];

    /// Top-level status fields that nodes report: another field manager writes them ([`Kind::report`]). Where nodes report
    /// on this kind, [`crate::REPORTED_UP_TO`] is one of them.
    const REPORTED: &'static [&'static str] = &[];

    /// The objects that this resource names, as far as they can be known from what was `found` so far.
    ///
    /// Called again with more `found` until it names nothing new: a Model names a Secret.
    fn references(&self, found: &References) -> BTreeSet<Reference>;

    /// What should exist and what each node should hold.
    fn plan(&self, seen: &Observed, settings: &Settings) -> Plan;

    /// What the status says, from what was applied: what there is of children is there, and `seen` has none. `now` stamps what
    /// changed and nothing else, so that two calls with the same observation differ in nothing.
    fn status(&self, seen: &Observed, plan: &Plan, applied: &Applied, now: Timestamp) -> Self::Status;

    /// What a node's report changes, or why it is refused for good.
    fn report(&self, report: &Report, now: Timestamp) -> Result<Vec<StatusChange>, Refusal>;
}
