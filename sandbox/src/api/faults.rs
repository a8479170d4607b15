//! Faults injected per request: which request ([`Match`]) and what becomes of it ([`Fault`]).
//!
//! Decides only whether a request is hit. The effects are carried out where the request is served.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use super::request::{RequestInfo, Verb};

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 409 `Conflict`; nothing is done.
    Conflict,
    /// 429 with `Retry-After`; nothing is done.
    TooManyRequests {
        /// Seconds that the header names.
        retry_after: u32,
    },
    /// 500 `InternalError`; nothing is done.
    InternalError,
    /// 504 `Timeout`.
    Timeout {
        /// Whether the request took effect before the answer was lost.
        applied: bool,
    },
    /// The caller never hears again: the future of the request does not resolve, so that a test can drop the caller
    /// there, as if it had been killed.
    Crash {
        /// Whether the request took effect first.
        applied: bool,
    },
    /// A watch ends without an error after so many events.
    DropWatch {
        /// Events that are delivered first.
        after: usize,
    },
    /// A watch is answered by an `ERROR` event with code 410.
    ExpireWatch,
    /// A get or a list is served from an earlier state (at most as far back as history is kept).
    Stale(Past),
    /// The request is held back first.
    Latency(Duration),
}

/// An earlier state of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// That of so many revisions ago.
    Ago(u64),
    /// That of this revision.
    At(u64),
}

impl Past {
    /// Its revision, where `newest` is the present one.
    pub(super) fn revision(self, newest: u64) -> u64 {
        match self {
            Self::Ago(revisions) => newest.saturating_sub(revisions),
            Self::At(revision) => revision.min(newest),
        }
    }
}

/// Which requests are hit. All that is set must agree.
#[derive(Clone, Debug, Default)]
pub struct Match {
    user: Option<String>,
    verb: Option<Verb>,
    apply: Option<bool>,
    group: Option<String>,
    resource: Option<String>,
    except: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    mutating: bool,
    nth: Option<u64>,
    times: Option<u64>,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests that mutate and are no dry run.
    pub fn writes() -> Self {
        Self {
            mutating: true,
            ..Self::default()
        }
    }

    /// Only of this user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Only this verb.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Only server-side applies, or only others.
    #[must_use]
    pub fn apply(mut self, apply: bool) -> Self {
        self.apply = Some(apply);
        self
    }

    /// Only this API group; empty for the core group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Only this resource, by its plural name.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Only resources other than this one.
    #[must_use]
    pub fn except(mut self, resource: impl Into<String>) -> Self {
        self.except = Some(resource.into());
        self
    }

    /// Only this subresource; empty for the main endpoint.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Only this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only this name (of a create: the name in the body).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only from the n-th such request on, counted from 1 since the fault was injected; with [`Self::times`] unset,
    /// that one alone.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = Some(nth);
        self
    }

    /// At most so often. Unset: always, or once with [`Self::nth`].
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    fn agrees(&self, request: &RequestInfo) -> bool {
        fn same<T: PartialEq + ?Sized, U: std::borrow::Borrow<T>>(wanted: Option<&U>, is: &T) -> bool {
            wanted.is_none_or(|wanted| wanted.borrow() == is)
        }
        let Self {
            user,
            verb,
            apply,
            group,
            resource,
            except,
            subresource,
            namespace,
            name,
            mutating,
            nth: _,
            times: _,
        } = self;
        same::<str, _>(user.as_ref(), &request.user)
            && verb.is_none_or(|verb| verb == request.verb)
            && apply.is_none_or(|apply| apply == request.apply)
            && same::<str, _>(group.as_ref(), &request.group)
            && same::<str, _>(resource.as_ref(), &request.resource)
            && except.as_ref().is_none_or(|except| *except != request.resource)
            && same::<str, _>(subresource.as_ref(), &request.subresource)
            && same::<str, _>(namespace.as_ref(), &request.namespace)
            && same::<str, _>(name.as_ref(), &request.name)
            && (!mutating || (request.verb.is_mutating() && !request.dry_run))
    }
}

/// The faults of a server. Clones share them.
#[derive(Clone, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
}

struct Rule {
    matcher: Match,
    fault: Fault,
    seen: u64,
    hits: watch::Sender<u64>,
    /// Closed once the rule is taken away.
    stands: watch::Sender<()>,
}

/// A fault that was injected; dropping the handle leaves the fault in place.
#[derive(Clone)]
pub struct FaultHandle {
    faults: Faults,
    hits: watch::Receiver<u64>,
}

impl FaultHandle {
    /// How many requests were hit.
    pub fn hits(&self) -> u64 {
        *self.hits.borrow()
    }

    /// Resolves once at least one request was hit. With [`Fault::Crash`] the effect, if any, has taken place by then,
    /// unless the caller had gone before.
    pub async fn hit(&self) {
        let mut hits = self.hits.clone();
        if hits.wait_for(|hits| *hits > 0).await.is_err() {
            // Removed before it was hit: there is nothing to wait for any more.
            std::future::pending::<()>().await;
        }
    }

    /// Takes the fault away.
    pub fn remove(&self) {
        self.faults
            .lock()
            .retain(|rule| !rule.hits.subscribe().same_channel(&self.hits));
    }
}

/// A fault that hit a request, to be carried out. Reported as hit by [`Hit::reached`].
pub(super) struct Hit {
    pub(super) fault: Fault,
    hits: watch::Sender<u64>,
    stands: watch::Receiver<()>,
}

impl Hit {
    pub(super) fn reached(&self) {
        self.hits.send_modify(|hits| *hits += 1);
    }

    /// Resolves when the fault is taken away.
    pub(super) async fn removed(&mut self) {
        while self.stands.changed().await.is_ok() {}
    }
}

impl Faults {
    /// Adds a fault. Of several that match a request, the one injected first wins; latency adds to the others.
    pub fn inject(&self, matcher: Match, fault: Fault) -> FaultHandle {
        let (sender, hits) = watch::channel(0);
        self.lock().push(Rule {
            matcher,
            fault,
            seen: 0,
            hits: sender,
            stands: watch::Sender::new(()),
        });
        FaultHandle {
            faults: self.clone(),
            hits,
        }
    }

    /// Takes all faults away.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The faults that hit this request: latencies, and at most one other.
    pub(super) fn hits(&self, request: &RequestInfo) -> Vec<Hit> {
        let mut hits: Vec<Hit> = Vec::new();
        for rule in self.lock().iter_mut().filter(|rule| rule.matcher.agrees(request)) {
            rule.seen += 1;
            let first = rule.matcher.nth.unwrap_or(1);
            let times = rule.matcher.times.or(rule.matcher.nth.map(|_| 1));
            let due = rule.seen >= first && times.is_none_or(|times| rule.seen - first < times);
            let latency = matches!(rule.fault, Fault::Latency(_));
            let taken = hits.iter().any(|hit| !matches!(hit.fault, Fault::Latency(_)));
            if due && (latency || !taken) {
                hits.push(Hit {
                    fault: rule.fault.clone(),
                    hits: rule.hits.clone(),
                    stands: rule.stands.subscribe(),
                });
            }
        }
        hits
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
