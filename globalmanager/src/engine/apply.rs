//! Makes the cluster match a plan, sending nothing that would change nothing.
//!
//! A child is made (again), re-owned or deleted only after a second look at its owner, straight at the API server: the
//! cache may be older than an orphan deletion, and what was orphaned must stay so; it may be older than a job's end, and
//! what has ended must not begin again.

use std::{collections::BTreeMap, time::Duration};

use futures::future::try_join_all;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use skerry_crds::names;
use skerry_workloads::{Applied, Child, Children, Failure, Kind, Live, Make, ObjectKind, Plan, Reference, References};
use tokio::time::Instant;

use super::{
    Engine, ResourceKey, cache, ownership,
    pass::{Error, at, observe},
    same,
    second_look::{Outdated, second_look},
    strays, trim,
};

/// How many children of a resource are looked up together with its owner. Most resources have no more; those of a job of hundreds
/// are looked up one by one after these, so that no look is old when the first is made.
const LOOKED_UP_AT_ONCE: usize = 4;

/// What came of a plan.
pub(crate) enum Outcome {
    /// It was carried out.
    Done(Done),
    /// It was begun: the rest is for another pass, after what is due by then.
    Begun(Duration),
    /// The second look showed that it was made from an outdated view: nothing was written.
    Outdated(Outdated),
}

/// What a plan that was carried out left behind.
#[derive(Default)]
pub(crate) struct Done {
    /// What is there now.
    pub(crate) applied: Applied,
    /// Whether anything was written.
    pub(crate) wrote: bool,
}

/// Carries out the children of `plan`.
pub(crate) async fn apply<K: Kind>(
    engine: &Engine,
    key: &ResourceKey,
    resource: &K,
    uid: &str,
    plan: &Plan,
    live: Vec<Live>,
) -> Result<Outcome, Error> {
    let Children::Exactly(children) = &plan.children else {
        let applied = Applied {
            children: live,
            failures: vec![],
        };
        return Ok(Outcome::Done(Done { applied, wrote: false }));
    };
    let addresses = &engine.shared.addresses;
    addresses.remember(key, &live);
    let absent = |child: &Child| !matches!(child.make, Make::Keep) && in_place(child, &live).is_none();
    let strays = strays::among(&live, K::KIND, children);
    let now = Instant::now();
    let wait = |child: &&Child| {
        absent(child)
            .then(|| addresses.not_given_back(key, child, now))
            .flatten()
    };
    let (held, children): (Vec<_>, Vec<_>) = children.iter().partition(|child| wait(child).is_some());
    let mut work = Work {
        engine,
        key,
        resource,
        uid,
        looked_up: BTreeMap::new(),
        rest: held.iter().filter_map(wait).min(),
        done: Done::default(),
    };
    let asks = |child: &Child| absent(child) && addresses.is_chosen(key, child);
    // Before the second look: that is not to be old when something is made.
    let _turn = if children.iter().any(|child| asks(child)) {
        addresses.turn().await
    } else {
        None
    };
    let some_absent = children.iter().any(|child| absent(child));
    if !strays.is_empty() || some_absent {
        // At the first child that asks for an address it may end.
        let last = children.iter().position(|child| asks(child)).unwrap_or(children.len());
        let up_to = children.iter().copied().take(last.saturating_add(1));
        let to_make: Vec<_> = up_to.filter(|child| absent(child)).take(LOOKED_UP_AT_ONCE).collect();
        if let Some(outdated) = work.look(&to_make).await? {
            return Ok(Outcome::Outdated(outdated));
        }
    }
    let more_to_make = children.iter().any(|child| absent(child) && !asks(child));
    for child in children {
        let asks = asks(child);
        work.make(child, in_place(child, &live)).await?;
        // So where a thousand resources wait, the Services of all are made before what more follows from, and that is over in a
        // fraction of the time.
        if asks && work.done.wrote && more_to_make && engine.others_are_due() {
            return Ok(Outcome::Begun(Duration::ZERO));
        }
    }
    if !strays.is_empty() {
        work.still_leads()?;
        work.done.wrote |= strays::delete(engine, key, &strays).await?;
    }
    if let Some(wait) = work.rest {
        return Ok(Outcome::Begun(wait));
    }
    // Where nothing was written, and none looked up, they are as they were.
    let news = work.done.wrote || some_absent;
    work.done.applied.children = if news { work.there_now() } else { live };
    Ok(Outcome::Done(work.done))
}

/// What is there of a child.
fn in_place<'a>(child: &Child, live: &'a [Live]) -> Option<&'a Live> {
    live.iter()
        .find(|live| live.kind == child.kind && live.name() == child.name)
}

struct Work<'a, K> {
    engine: &'a Engine,
    key: &'a ResourceKey,
    resource: &'a K,
    uid: &'a str,
    /// What there is under the names of children that were looked up and not made yet.
    looked_up: BTreeMap<Reference, Option<Value>>,
    /// In how long a child is to be made that cannot be yet.
    rest: Option<Duration>,
    done: Done,
}

impl<K: Kind> Work<'_, K> {
    /// Takes the second look at the owner, and looks up these children meanwhile: each waits behind what others ask of the API
    /// server.
    async fn look(&mut self, children: &[&Child]) -> Result<Option<Outdated>, Error> {
        let work = &*self;
        let owner = second_look(work.engine, work.key, work.resource);
        let look_ups = try_join_all(children.iter().map(|child| work.look_up(child)));
        let (outdated, found) = tokio::try_join!(owner, look_ups)?;
        self.looked_up = children.iter().map(|child| reference(child)).zip(found).collect();
        Ok(outdated)
    }

    async fn make(&mut self, child: &Child, mine: Option<&Live>) -> Result<(), Error> {
        match (&child.make, mine) {
            (Make::Keep, _) | (Make::Create(_), Some(_)) => Ok(()),
            (Make::Apply(_), Some(mine)) if mine.terminating() => Ok(()),
            (Make::Apply(body), Some(mine)) => {
                let body = same::with_hash(body);
                if same::holds(&mine.object, &body) {
                    Ok(())
                } else {
                    self.send_apply(child, &body, Some(mine)).await
                }
            }
            (Make::Apply(body), None) => {
                if self.may_make(child).await? {
                    let found = self.found(child);
                    self.send_apply(child, &same::with_hash(body), found.as_ref()).await
                } else {
                    Ok(())
                }
            }
            (Make::Create(body), None) => {
                if self.may_make(child).await? {
                    self.send_create(child, body).await
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Is the child's name free or our own?
    async fn may_make(&mut self, child: &Child) -> Result<bool, Error> {
        let found = match self.looked_up.remove(&reference(child)) {
            Some(found) => found,
            None => self.look_up(child).await?,
        };
        let Some(found) = found else { return Ok(true) };
        self.engine.learn(child.kind, &found, false);
        let terminating = found.pointer("/metadata/deletionTimestamp").is_some();
        let ours = match cache::controller_of(&found) {
            Some((_, _, owner)) => owner == self.uid,
            // It lost its owner reference, and its label says that it is this very resource's.
            None => {
                found
                    .pointer("/metadata/labels")
                    .and_then(|labels| labels.get(names::label::uid(K::KIND.kind)))
                    == Some(&json!(self.uid))
            }
        };
        match (ours, terminating, &child.make) {
            (_, true, _) => {
                let message = format!(
                    "{} of another owner is on its way out; it is made when that is gone",
                    title(child)
                );
                self.fail(child, "AwaitingDeletion", message);
                Ok(false)
            }
            // Applying gives it its owner reference back; a Pod is left alone.
            (true, false, make) => Ok(matches!(make, Make::Apply(_))),
            (false, false, _) => {
                let message = format!(
                    "{} exists and is not this resource's; delete or rename it, or give this resource another name",
                    title(child)
                );
                self.fail(child, "NameTaken", message);
                Ok(false)
            }
        }
    }

    /// What there is under the child's name. The resource is looked at again when that goes, though it may have nothing else to
    /// do with the resource.
    async fn look_up(&self, child: &Child) -> Result<Option<Value>, Error> {
        self.engine.shared.named.lock().also(self.key, reference(child));
        let found = self.api(child.kind).get_opt(&child.name).await;
        let found = found.map_err(at(format!("looking at {}", title(child))))?;
        Ok(found.map(|found| trim::trim(child.kind, found)))
    }

    /// An object of the child's name, now that it was looked up.
    fn found(&self, child: &Child) -> Option<Live> {
        let cache = self.engine.shared.cache.lock();
        let object = cache.get(child.kind, &self.key.namespace, &child.name)?;
        let kind = child.kind;
        Some(Live { kind, object })
    }

    async fn send_apply(&mut self, child: &Child, body: &Value, live: Option<&Live>) -> Result<(), Error> {
        self.still_leads()?;
        let api = self.api(child.kind);
        if live.is_some_and(|live| ownership::must_move(live, body)) {
            let moved = ownership::move_to_us(&api, child.kind, &child.name).await;
            moved.map_err(at(format!("moving the ownership of fields of {}", title(child))))?;
        }
        let how = PatchParams::apply(names::MANAGER).force();
        let addresses = &self.engine.shared.addresses;
        let with_address = match live {
            Some(_) => None,
            None => addresses.with_last(self.key, child, body),
        };
        let first = with_address.as_ref().unwrap_or(body);
        let mut sent = api.patch(&child.name, &how, &Patch::Apply(first)).await;
        if with_address.is_some() && is_invalid(&sent) {
            let wait = addresses.refused(self.key, child, Instant::now());
            self.rest = Some(self.rest.map_or(wait, |rest| rest.min(wait)));
            return Ok(());
        }
        if live.is_some() && is_invalid(&sent) {
            // Should our part be invalid by itself, this changes nothing, and the first answer stands.
            if ownership::overrule(&api, &child.name, body).await.is_ok() {
                sent = api.patch(&child.name, &how, &Patch::Apply(body)).await;
            }
        }
        self.settle(child, sent, "applying")
    }

    async fn send_create(&mut self, child: &Child, body: &Value) -> Result<(), Error> {
        self.still_leads()?;
        let how = PostParams {
            field_manager: Some(names::MANAGER.to_owned()),
            ..PostParams::default()
        };
        let object: DynamicObject = match serde_json::from_value(body.clone()) {
            Ok(object) => object,
            Err(error) => {
                self.fail(child, "Invalid", format!("{} cannot be made: {error}", title(child)));
                return Ok(());
            }
        };
        let sent = self.api(child.kind).create(&how, &object).await;
        self.settle(child, sent, "creating")
    }

    /// A pass may outlive the lease that it began under.
    fn still_leads(&self) -> Result<(), Error> {
        if self.engine.is_leader() {
            Ok(())
        } else {
            Err(Error::Deposed)
        }
    }

    /// Takes in the answer to a write: news for the cache, a failure that the status names, or an error to try again on.
    fn settle(&mut self, child: &Child, sent: Result<DynamicObject, kube::Error>, doing: &str) -> Result<(), Error> {
        match sent {
            Ok(object) => {
                self.done.wrote = true;
                self.engine.learn_ours(child.kind, &trim::trim(child.kind, object));
                Ok(())
            }
            // A webhook that is down, or addresses that have run out, are a 500 of this one object.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 422 | 500) => {
                self.fail(
                    child,
                    &status.reason.clone(),
                    format!("{}: {}", title(child), status.message),
                );
                Ok(())
            }
            Err(error) => Err(at(format!("{doing} {}", title(child)))(error)),
        }
    }

    fn fail(&mut self, child: &Child, reason: &str, message: String) {
        let failure = Failure {
            kind: child.kind,
            name: child.name.clone(),
            reason: reason.to_owned(),
            message,
        };
        self.done.applied.failures.push(failure);
    }

    /// What there is now, as the cache has it after the answers.
    fn there_now(&self) -> Vec<Live> {
        observe::<K>(self.engine, self.uid, References::default()).children
    }

    fn api(&self, kind: ObjectKind) -> Api<DynamicObject> {
        self.engine.objects(kind, &self.key.namespace)
    }
}

/// Whether the API server takes no such object.
fn is_invalid(sent: &Result<DynamicObject, kube::Error>) -> bool {
    matches!(sent, Err(kube::Error::Api(status)) if status.code == 422)
}

fn reference(child: &Child) -> Reference {
    Reference::new(child.kind, &child.name)
}

fn title(child: &Child) -> String {
    format!("{} {}", child.kind.kind, child.name)
}
