//! Who may write: a Lease, held under an identity that is unique to each term, so that no two runs of a manager, and no
//! two terms of one run, share an epoch.
//!
//! ```text
//!            free, expired, or given up                 renewed in time
//! (standby) ────────────────────────────▶ (holder) ────────────────────────▶ (holder)
//!     ▲                                      │ not renewed for RENEW_DEADLINE, or another holds it
//!     └──────────────────────────────────────┘
//! ```
//!
//! The decision (`evaluate`) is pure. A standby judges expiry by its own clock, from when it last saw the Lease change:
//! the times in the Lease are another machine's.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use skerry_edge::Epoch;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long a Lease stands without being renewed.
pub(crate) const DURATION: Duration = Duration::from_secs(15);
/// After this long without a renewal the holder stops writing, well before another may begin.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often the holder renews and a standby looks.
const PERIOD: Duration = Duration::from_secs(2);

/// Which Lease, and who wants it.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who claims it, for people to read (a pod's name, say); each term adds a random part.
    pub claimant: String,
}

impl Claim {
    fn new_identity(&self) -> String {
        format!("{}_{}", self.claimant, uuid::Uuid::new_v4())
    }
}

/// Who claimed what this identity holds.
pub(crate) fn claimant(identity: &str) -> Option<&str> {
    identity.rsplit_once('_').map(|(claimant, _)| claimant)
}

/// What to do about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is ours: renew it.
    Renew,
    /// It is free: take it.
    Take,
    /// Another holds it.
    Wait,
}

/// Judges a Lease that has not changed for `unchanged`.
fn evaluate(lease: &LeaseSpec, identity: &str, unchanged: Duration) -> Verdict {
    match lease.holder_identity.as_deref() {
        Some(holder) if holder == identity => Verdict::Renew,
        None | Some("") => Verdict::Take,
        Some(_) => {
            let seconds = lease
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok());
            let stands = seconds.map_or(DURATION, Duration::from_secs);
            if unchanged > stands {
                Verdict::Take
            } else {
                Verdict::Wait
            }
        }
    }
}

/// Holds the Lease whenever it can be had, until `stop`, and then gives it up. `None` while another holds it. `trouble`
/// says why it cannot be known who does.
pub async fn hold(
    client: Client,
    claim: Claim,
    epoch: watch::Sender<Option<Epoch>>,
    trouble: watch::Sender<Option<String>>,
    stop: CancellationToken,
) {
    let api: Api<Lease> = Api::namespaced(client, &claim.namespace);
    let mut identity = claim.new_identity();
    let mut seen: Option<(String, Instant)> = None;
    let mut renewed: Option<Instant> = None;
    loop {
        let attempted = timeout(RENEW_DEADLINE / 2, attempt(&api, &claim, &identity, &mut seen)).await;
        trouble.send_replace(match &attempted {
            Ok(Ok(_)) => None,
            Ok(Err(kube::Error::Api(status))) => Some(status.message.clone()),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the API server does not answer".to_owned()),
        });
        match attempted {
            Ok(Ok(Some(held))) => {
                renewed = Some(Instant::now());
                epoch.send_if_modified(|current| {
                    let news = current.as_ref() != Some(&held);
                    *current = Some(held);
                    news
                });
            }
            Ok(Ok(None)) => renewed = None,
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be read or written"),
            Err(_) => tracing::warn!("the API server did not answer about the lease in time"),
        }
        if renewed.is_none_or(|renewed| renewed.elapsed() >= RENEW_DEADLINE)
            && epoch.send_if_modified(|current| current.take().is_some())
        {
            // The next term is another epoch, even if nobody else held the Lease in between.
            (identity, renewed) = (claim.new_identity(), None);
        }
        if stop.run_until_cancelled(sleep(PERIOD)).await.is_none() {
            break;
        }
    }
    epoch.send_replace(None);
    if renewed.is_some()
        && let Err(error) = give_up(&api, &claim.name, &identity).await
    {
        tracing::warn!(%error, "the lease could not be given up and runs out by itself");
    }
}

/// One look at the Lease; the epoch if it is ours afterwards.
async fn attempt(
    api: &Api<Lease>,
    claim: &Claim,
    identity: &str,
    seen: &mut Option<(String, Instant)>,
) -> Result<Option<Epoch>, kube::Error> {
    let Some(mut lease) = api.get_opt(&claim.name).await? else {
        let metadata = ObjectMeta {
            name: Some(claim.name.clone()),
            namespace: Some(claim.namespace.clone()),
            ..ObjectMeta::default()
        };
        let spec = Some(taken(LeaseSpec::default(), identity));
        let made = api.create(&PostParams::default(), &Lease { metadata, spec }).await;
        return won(made);
    };
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    if seen.as_ref().is_none_or(|(known, _)| *known != version) {
        *seen = Some((version, Instant::now()));
    }
    let unchanged = seen.as_ref().map(|(_, since)| since.elapsed()).unwrap_or_default();
    let spec = lease.spec.take().unwrap_or_default();
    lease.spec = Some(match evaluate(&spec, identity, unchanged) {
        Verdict::Wait => return Ok(None),
        Verdict::Renew => LeaseSpec {
            renew_time: Some(MicroTime(Timestamp::now())),
            ..spec
        },
        Verdict::Take => taken(spec, identity),
    });
    // The resource version that was read goes along: of two who take it at once, one gets a conflict.
    won(api.replace(&claim.name, &PostParams::default(), &lease).await)
}

fn won(written: Result<Lease, kube::Error>) -> Result<Option<Epoch>, kube::Error> {
    match written {
        Ok(lease) => Ok(Some(epoch_of(&lease))),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}

fn taken(before: LeaseSpec, identity: &str) -> LeaseSpec {
    let now = Some(MicroTime(Timestamp::now()));
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: now.clone(),
        renew_time: now,
        lease_transitions: Some(before.lease_transitions.map_or(0, |before| before.saturating_add(1))),
        ..before
    }
}

fn epoch_of(lease: &Lease) -> Epoch {
    let transitions = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_transitions)
        .unwrap_or_default();
    Epoch {
        lease: lease.metadata.uid.clone().unwrap_or_default(),
        transitions: u64::try_from(transitions).unwrap_or_default(),
        made: lease.metadata.creation_timestamp.as_ref().map(|time| time.0),
    }
}

/// Leaves the Lease free, so that the next manager need not wait for it to run out.
async fn give_up(api: &Api<Lease>, name: &str, identity: &str) -> Result<(), kube::Error> {
    let mut lease = api.get(name).await?;
    if let Some(spec) = &mut lease.spec
        && spec.holder_identity.as_deref() == Some(identity)
    {
        spec.holder_identity = None;
        api.replace(name, &PostParams::default(), &lease).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn held_by(holder: Option<&str>) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_only_when_it_is_free_or_has_run_out() {
        let seconds = Duration::from_secs;
        assert_eq!(evaluate(&held_by(Some("me")), "me", seconds(0)), Verdict::Renew);
        assert_eq!(evaluate(&held_by(None), "me", seconds(0)), Verdict::Take);
        assert_eq!(evaluate(&held_by(Some("")), "me", seconds(0)), Verdict::Take);
        assert_eq!(evaluate(&held_by(Some("other")), "me", seconds(15)), Verdict::Wait);
        assert_eq!(evaluate(&held_by(Some("other")), "me", seconds(16)), Verdict::Take);
    }

    #[test]
    fn each_taking_counts_as_a_transition_and_a_renewal_does_not() {
        let first = taken(LeaseSpec::default(), "a");
        assert_eq!(first.lease_transitions, Some(0));
        let second = taken(first, "b");
        assert_eq!(
            (second.lease_transitions, second.holder_identity.as_deref()),
            (Some(1), Some("b"))
        );
    }

    #[test]
    fn an_epoch_says_when_its_lease_was_made() {
        let lease = |second| Lease {
            metadata: ObjectMeta {
                uid: Some(format!("uid-{second}")),
                creation_timestamp: Timestamp::from_second(second).ok().map(Time),
                ..ObjectMeta::default()
            },
            spec: Some(taken(LeaseSpec::default(), "a")),
        };
        assert!(epoch_of(&lease(1)).is_of_older_lease_than(&epoch_of(&lease(2))));
    }
}
