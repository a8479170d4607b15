//! Faults: whatever request fails, whenever the manager is killed, the end is that of a run in which nothing failed.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::LocalBoxFuture;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rstest::rstest;
use serde_json::{Map, Value, json};
use skerry_crds::sedna::v1alpha1::{FederatedLearningJob, JointInferenceService, Model};
use skerry_sandbox::api::{Fault, FaultHandle, Match, Past, RequestInfo, Verb};
use skerry_tests::{
    NAMESPACE, World,
    planes::{is_lent, side_by_side},
    world::MANAGER,
};
use tokio::time::Instant;

use crate::{CLOUD, EDGE, JOB, READY, SERVICE, Service, edited, find_pod, image, name, pod, serving};

/// What happens to a resource, step by step; it exists from the start.
pub(crate) type Life = for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>;

/// Everything that a user may do to a service.
fn life_of_a_service(world: &World) -> LocalBoxFuture<'_, ()> {
    Box::pin(async {
        let both = json!({"spec": {
            "edgeWorker": {"hpa": {"maxReplicas": 3}, "hardExampleMining": {"name": "CloudOnly"}},
            "cloudWorker": {"template": {"spec": {"containers": [{"name": "big", "image": "example/big:v2"}]}}},
        }});
        world.edit::<JointInferenceService>("helmet", both).await;
        let how = DeleteParams::default();
        world.delete::<Deployment>(EDGE, &how).await;
        world.delete::<Service>("helmet-cloud", &how).await;
        let url = json!({"spec": {"url": "/var/models/other.pb"}});
        world.edit::<Model>("large", url).await;
        let without = json!({"spec": {"edgeWorker": {"hpa": null}}});
        world.edit::<JointInferenceService>("helmet", without).await;
    })
}

/// A trainer is edited, then the aggregator; then a trainer is evicted.
fn life_of_a_job(world: &World) -> LocalBoxFuture<'_, ()> {
    Box::pin(async {
        let edit = edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2");
        world.apply(&edit).await;
        let edit = edited(&edit, "example/aggregator:v1", "example/aggregator:v2");
        world.apply(&edit).await;
        if let Some(trainer) = find_pod(world, "surface-train-0-").await {
            world.kubelet.evict(NAMESPACE, name(&trainer));
        }
        world.settle().await;
    })
}

/// The job runs to its end, while one of its trainers is edited and another one's pod is cleaned away.
fn end_of_a_job(world: &World) -> LocalBoxFuture<'_, ()> {
    Box::pin(async {
        let first = name(&pod(world, "surface-train-0-").await).to_owned();
        world.kubelet.exit(NAMESPACE, &first, 0);
        world.settle().await;
        world.delete::<Pod>(&first, &DeleteParams::default()).await;
        world
            .apply(&edited(JOB, "example/trainer-1:v1", "example/trainer-1:v2"))
            .await;
        for place in ["surface-train-1-", "surface-aggregation-"] {
            world.kubelet.exit(NAMESPACE, name(&pod(world, place).await), 0);
            world.settle().await;
        }
    })
}

/// A resource goes, and another one of its name comes.
fn death_and_rebirth(world: &World) -> LocalBoxFuture<'_, ()> {
    Box::pin(async {
        let how = DeleteParams::background();
        world.delete::<JointInferenceService>("helmet", &how).await;
        world.apply(SERVICE).await;
    })
}

/// What came of a life.
pub(crate) struct Lived {
    outcome: Value,
    /// What the manager wrote, events apart, in order.
    writes: Vec<Write>,
    /// By which of the faults that kill managers one was killed.
    kills: BTreeSet<usize>,
}

impl Lived {
    fn has(&self, write: &Write) -> bool {
        self.writes.contains(write)
    }
}

/// One of the manager's writes: the `nth` of those alike, counted from 1. (In which order unlike ones come, and what pods
/// are called, differs from one life to the next.)
#[derive(Debug, PartialEq)]
struct Write {
    verb: Verb,
    resource: String,
    subresource: String,
    nth: u64,
}

impl Write {
    /// Numbers the writes of a life.
    fn all(requests: Vec<RequestInfo>) -> Vec<Self> {
        let mut alike = BTreeMap::new();
        let number = |request: RequestInfo| {
            let RequestInfo {
                verb,
                resource,
                subresource,
                ..
            } = request;
            let nth = alike
                .entry((verb.to_string(), resource.clone(), subresource.clone()))
                .or_insert(0);
            *nth += 1;
            Self {
                verb,
                resource,
                subresource,
                nth: *nth,
            }
        };
        requests.into_iter().map(number).collect()
    }

    /// Whether every life has it: one may tell in one write of a status what another tells in two.
    fn comes_always(&self) -> bool {
        self.subresource != "status" || self.nth == 1
    }

    fn here(&self) -> Match {
        Match::writes()
            .user(MANAGER)
            .verb(self.verb)
            .resource(&self.resource)
            .subresource(&self.subresource)
            .nth(self.nth)
    }
}

/// Lives a life from a manifest that was there before the manager; `faults` are put in before that starts.
async fn live(manifest: &str, life: Life, faults: impl FnOnce(&World)) -> Lived {
    let world = World::without_manager().await;
    world.apply(manifest).await;
    live_in(&world, life, faults).await
}

/// What comes of a life in which nothing fails; lived once, for all tests that compare.
async fn undisturbed(manifest: &str, life: Life) -> Arc<Lived> {
    static LIVED: Mutex<BTreeMap<usize, Arc<tokio::sync::OnceCell<Arc<Lived>>>>> = Mutex::new(BTreeMap::new());
    let cell = LIVED.lock().unwrap().entry(life as usize).or_default().clone();
    cell.get_or_init(async || Arc::new(live(manifest, life, |_| {}).await))
        .await
        .clone()
}

/// Lives a life in a world in which everything is there but the manager.
pub(crate) async fn live_in(world: &World, life: Life, faults: impl FnOnce(&World)) -> Lived {
    faults(world);
    // One life is compared with another write by write.
    world.tell_seldom();
    let mark = world.mark();
    world.start_manager();
    world.settle().await;
    life(world).await;
    world.rest().await;
    world.api.faults().clear();
    let writes = Write::all(world.requests_since(mark));
    // And it stays there.
    let mark = world.mark();
    world.settle().await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    Lived {
        outcome: world.outcome().await,
        writes,
        kills: world.kills(),
    }
}

pub(crate) fn assert_same(found: &Lived, expected: &Lived, why: &str) {
    let mut differences = vec![];
    compare(&found.outcome, &expected.outcome, "", &mut differences);
    assert!(differences.is_empty(), "{why}:\n{}", differences.join("\n"));
}

fn compare(found: &Value, expected: &Value, path: &str, differences: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
            let of = |fields: &Map<String, Value>, key: &str| fields.get(key).cloned().unwrap_or_default();
            for key in keys {
                compare(
                    &of(found, key),
                    &of(expected, key),
                    &format!("{path}/{key}"),
                    differences,
                );
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                compare(found, expected, &format!("{path}/{index}"), differences);
            }
        }
        (found, expected) if found == expected => {}
        (found, expected) => differences.push(format!("{path} is {found}, not {expected}")),
    }
}

/// Kills the manager after each of its writes: before the next one, that is. (Events are no part of what there is.)
#[rstest]
#[case::service(SERVICE, life_of_a_service)]
#[case::job(JOB, life_of_a_job)]
#[case::end_of_a_job(JOB, end_of_a_job)]
#[case::another_of_the_name(SERVICE, death_and_rebirth)]
#[tokio::test(start_paused = true)]
async fn a_manager_killed_between_any_two_writes_leaves_nothing_undone_and_nothing_double(
    #[case] manifest: &str,
    #[case] life: Life,
) {
    let expected = undisturbed(manifest, life).await;
    kill_after_each_write(&expected, async |faults| live(manifest, life, faults).await).await;
}

/// Kills the manager after each write that a life has when nothing disturbs it. Where time passes, a status may be told in
/// one write more or less: what two lives have in common is met.
pub(crate) async fn kill_after_each_write(expected: &Lived, live: impl AsyncFn(&dyn Fn(&World)) -> Lived) {
    let another = live(&|_| {}).await;
    assert_same(&another, expected, "nothing was disturbed");
    let writes: Vec<_> = expected.writes.iter().filter(|write| another.has(write)).collect();
    let all = expected.writes.len();
    assert!(all > 5, "{:#?}", expected.writes);
    assert!(writes.len() * 10 >= all * 8, "{} of {all} in common", writes.len());
    assert!(is_lent() || writes.len() == all, "in virtual time all lives are alike");
    let (mut killed, all) = (0, writes.len());
    let mut left = writes;
    // One manager may meet two writes before it is gone: the second one's turn comes again. In each life there is a first one.
    while !left.is_empty() {
        let lives = left.len().div_ceil(kills_of_a_life());
        let met = side_by_side(0..lives, async |first| {
            // Far apart: so a manager has taken over before the next one is killed.
            let here = left.iter().copied().skip(first).step_by(lives).collect();
            live_and_be_killed(here, expected, &live).await
        })
        .await;
        killed += met.iter().map(|met| met.killed).sum::<usize>();
        left = met.into_iter().flat_map(|met| met.beside_others).collect();
    }
    if is_lent() {
        assert!(
            killed * 10 >= all * 9,
            "{killed} managers were killed after {all} writes"
        );
    } else {
        assert_eq!(killed, all, "in virtual time all lives are alike");
    }
}

/// What the managers of a life met.
struct Met<'a> {
    /// How many of them were killed.
    killed: usize,
    /// The writes that one of them met that was being killed already.
    beside_others: Vec<&'a Write>,
}

/// Lives a life in which the manager is killed after each of these writes, and sees to it that the same comes of it.
async fn live_and_be_killed<'a>(
    writes: Vec<&'a Write>,
    expected: &Lived,
    live: &impl AsyncFn(&dyn Fn(&World)) -> Lived,
) -> Met<'a> {
    let crashes: OnceCell<Vec<FaultHandle>> = OnceCell::new();
    let found = live(&|world| {
        let crash = |write: &&Write| world.api.faults().inject(write.here(), Fault::Crash { applied: true });
        let faults: Vec<_> = writes.iter().map(crash).collect();
        world.kill_manager_at(faults.iter().cloned());
        let _ = crashes.set(faults);
    })
    .await;
    assert_same(&found, expected, &format!("killed after each of {writes:?}"));
    let mut beside_others = vec![];
    let crashes = crashes.get().into_iter().flatten();
    for ((index, write), crash) in writes.into_iter().enumerate().zip(crashes) {
        let came = crash.hits() == 1;
        assert!(came || !write.comes_always(), "{write:?} did not come");
        if came && !found.kills.contains(&index) {
            beside_others.push(write);
        }
    }
    assert!(
        beside_others.is_empty() || !found.kills.is_empty(),
        "whoever meets {beside_others:?} is killed"
    );
    Met {
        killed: found.kills.len(),
        beside_others,
    }
}

/// How many managers are killed in one life: one, where that shows best what became of it, and more where each life takes
/// seconds of an API server.
fn kills_of_a_life() -> usize {
    if is_lent() { 4 } else { 1 }
}

/// A write that was not carried out when the manager was killed is made by the next one, and only once.
#[tokio::test(start_paused = true)]
async fn a_manager_killed_before_a_write_makes_it_later() {
    let expected = undisturbed(JOB, life_of_a_job).await;
    side_by_side(expected.writes.iter().step_by(5), async |write| {
        let found = live(JOB, life_of_a_job, |world| {
            let fault = world.api.faults().inject(write.here(), Fault::Crash { applied: false });
            world.kill_manager_at([fault]);
        })
        .await;
        assert_same(&found, &expected, &format!("killed before {write:?}"));
    })
    .await;
}

/// The faults that a request may meet.
const FAILURES: [Fault; 5] = [
    Fault::Conflict,
    Fault::TooManyRequests { retry_after: 1 },
    Fault::InternalError,
    Fault::Timeout { applied: false },
    Fault::Timeout { applied: true },
];

/// Every second request of the manager fails.
#[rstest]
#[case::conflict(FAILURES[0].clone())]
#[case::throttled(FAILURES[1].clone())]
#[case::internal_error(FAILURES[2].clone())]
#[case::timed_out(FAILURES[3].clone())]
#[case::timed_out_but_applied(FAILURES[4].clone())]
#[tokio::test(start_paused = true)]
async fn every_second_write_may_fail(#[case] failure: Fault) {
    for (manifest, life) in [
        (SERVICE, life_of_a_service as Life),
        (JOB, life_of_a_job),
        (JOB, end_of_a_job),
    ] {
        let expected = undisturbed(manifest, life).await;
        let found = live(manifest, life, |world| {
            for number in (1..200).step_by(2) {
                let here = Match::writes().user(MANAGER).nth(number);
                world.api.faults().inject(here, failure.clone());
            }
        })
        .await;
        assert_same(&found, &expected, &format!("{failure:?}"));
    }
}

/// Reads and writes fail, watches end and expire, lists are stale, all at random. The seed is in the message.
#[rstest]
#[tokio::test(start_paused = true)]
async fn any_mixture_of_faults_is_survived(#[values(1, 2, 3, 4)] seed: u64) {
    for (manifest, life) in [(SERVICE, life_of_a_service as Life), (JOB, life_of_a_job)] {
        let expected = undisturbed(manifest, life).await;
        let found = live(manifest, life, |world| {
            // A resource may fail fourteen times in a row. Were it tried again only every five minutes after the tenth, it
            // would be chance whether the life is looked at before it has come by.
            world.retry_soon();
            world.patience.set(Duration::from_secs(600));
            mix(world, seed);
        })
        .await;
        assert_same(&found, &expected, &format!("seed {seed}"));
    }
}

/// Lets every third request of the manager meet a fault.
fn mix(world: &World, seed: u64) {
    const WATCHES: [Fault; 3] = [
        Fault::ExpireWatch,
        Fault::DropWatch { after: 1 },
        Fault::DropWatch { after: 5 },
    ];
    const LISTS: [Fault; 3] = [
        Fault::Stale(Past::Ago(5)),
        Fault::Stale(Past::Ago(50)),
        Fault::InternalError,
    ];
    let mut random = StdRng::seed_from_u64(seed);
    let manager = || Match::any().user(MANAGER);
    for (requests, faults) in [
        (Match::writes().user(MANAGER), &FAILURES[..]),
        (manager().verb(Verb::Get), &FAILURES[..]),
        (manager().verb(Verb::List), &LISTS[..]),
        (manager().verb(Verb::Watch), &WATCHES[..]),
    ] {
        for number in 1..200 {
            if random.random_ratio(1, 3) {
                let fault = faults[random.random_range(0..faults.len())].clone();
                world.api.faults().inject(requests.clone().nth(number), fault);
            }
        }
    }
}

#[rstest]
#[case::dropped(Fault::DropWatch { after: 1 })]
#[case::expired(Fault::ExpireWatch)]
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_again_and_again_only_slows_things_down(#[case] fault: Fault) {
    let world = World::start().await;
    let watches = Match::any().user(MANAGER).verb(Verb::Watch).times(100);
    world.api.faults().inject(watches, fault);
    // Those that run expire at the next change.
    world.api.compact().await;
    world.restart_manager().await;
    world.apply(SERVICE).await;
    world.delete::<Service>("helmet-cloud", &DeleteParams::default()).await;
    let edit = image("edgeWorker", "little", "example/little:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    world.pass(Duration::from_secs(300)).await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
    let edge = world.object::<Deployment>(EDGE).await;
    assert_eq!(
        edge["spec"]["template"]["spec"]["containers"][0]["image"],
        "example/little:v2"
    );
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_watches_were_down_is_found_by_the_next_list() {
    let world = serving().await;
    // All watches end, nothing is told in between, and the history is forgotten.
    let down = world
        .api
        .faults()
        .inject(Match::any().user(MANAGER), Fault::Timeout { applied: false });
    world.end_watches().await;
    // Nothing follows from these that would have to be waited for.
    let services = world.view::<Service>();
    services.delete("helmet-cloud", &DeleteParams::default()).await.unwrap();
    let edit = Patch::Merge(image("edgeWorker", "little", "example/little:v2"));
    let service = world.view::<JointInferenceService>();
    service.patch("helmet", &PatchParams::default(), &edit).await.unwrap();
    world.api.compact().await;
    down.remove();
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(world.names::<Service>().await, ["helmet-cloud"]);
    let edge = world.object::<Deployment>(EDGE).await;
    assert_eq!(
        edge["spec"]["template"]["spec"]["containers"][0]["image"],
        "example/little:v2"
    );
}

/// Watches are tried again every ten seconds at the latest.
const RECOVERY: Duration = Duration::from_secs(12);

/// However long nothing answered: what users did meanwhile is heard of within seconds of the end of it.
#[tokio::test(start_paused = true)]
async fn after_a_long_outage_everything_is_seen_within_seconds() {
    let world = serving().await;
    let everything = Match::any().user(MANAGER);
    let down = world.api.faults().inject(everything, Fault::InternalError);
    world.end_watches().await;
    let how = DeleteParams::default();
    world.view::<Service>().delete("helmet-cloud", &how).await.unwrap();
    world.view::<Deployment>().delete(EDGE, &how).await.unwrap();
    assert_eq!(world.names::<Deployment>().await, [CLOUD]);
    down.remove();
    let answered = Instant::now();
    world
        .until("what was deleted", async || {
            let services = world.names::<Service>().await;
            let deployments = world.names::<Deployment>().await;
            (services == ["helmet-cloud"] && deployments == [CLOUD, EDGE]).then_some(())
        })
        .await;
    // A real API server has others to serve.
    let limit = if is_lent() { RECOVERY * 3 } else { RECOVERY };
    assert!(answered.elapsed() <= limit, "{:?}", answered.elapsed());
}

/// The manager that starts sees the owner as it was before its children were orphaned; a second look tells better.
#[tokio::test(start_paused = true)]
async fn a_stale_list_undoes_no_orphan_deletion() {
    let world = serving().await;
    world.kill_manager().await;
    let before = world.api.revision().await;
    world
        .delete::<JointInferenceService>("helmet", &DeleteParams::orphan())
        .await;
    let owners = Match::any().user(MANAGER).resource("jointinferenceservices");
    let stale = owners.clone().verb(Verb::List);
    let list = world.api.faults().inject(stale, Fault::Stale(Past::At(before)));
    // Nor does the watch tell for a while.
    let watch = world
        .api
        .faults()
        .inject(owners.verb(Verb::Watch), Fault::Latency(Duration::from_secs(30)));
    let mark = world.mark();
    world.start_manager();
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(list.hits(), 1);
    world.settle().await;
    watch.remove();
    list.remove();
    world.settle().await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    for orphan in [EDGE, CLOUD] {
        let owners = &world.object::<Deployment>(orphan).await["metadata"]["ownerReferences"];
        assert!(owners.is_null(), "{owners}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_makes_no_pod_twice_and_starts_no_finished_job_again() {
    let world = World::start().await;
    let without_pods = world.api.revision().await;
    world.apply(JOB).await;
    let running = world.api.revision().await;
    for place in ["surface-train-0-", "surface-train-1-", "surface-aggregation-"] {
        world.kubelet.exit(NAMESPACE, name(&pod(&world, place).await), 0);
        world.settle().await;
    }
    let ended = world.object::<FederatedLearningJob>("surface").await;
    assert_eq!(ended["status"]["phase"], "Succeeded");
    world.kill_manager().await;
    // As if just created: the job without its end, and no pods.
    for (resource, past) in [("pods", without_pods), ("federatedlearningjobs", running)] {
        let lists = Match::any().user(MANAGER).resource(resource).verb(Verb::List).times(1);
        world.api.faults().inject(lists, Fault::Stale(Past::At(past)));
        let watches = Match::any().user(MANAGER).resource(resource).verb(Verb::Watch).times(1);
        world
            .api
            .faults()
            .inject(watches, Fault::Latency(Duration::from_secs(20)));
    }
    let mark = world.mark();
    world.start_manager();
    world.pass(Duration::from_secs(120)).await;
    let mut made = world.writes_since(mark);
    made.retain(|write| write.contains(" pods"));
    assert_eq!(made, Vec::<String>::new());
    let after = world.object::<FederatedLearningJob>("surface").await;
    assert_eq!(after["status"]["phase"], "Succeeded");
    assert_eq!(after["status"]["completionTime"], ended["status"]["completionTime"]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_view_of_a_job_deletes_no_pod_that_was_made_since() {
    let world = crate::training().await;
    let before = world.api.revision().await;
    world
        .apply(&crate::edited(
            crate::JOB,
            "example/trainer-0:v1",
            "example/trainer-0:v2",
        ))
        .await;
    world.rest().await;
    world.kill_manager().await;
    // The job as before the edit; its pods as they are.
    let of_jobs = || Match::any().user(MANAGER).resource("federatedlearningjobs").times(1);
    world
        .api
        .faults()
        .inject(of_jobs().verb(Verb::List), Fault::Stale(Past::At(before)));
    let late = Fault::Latency(Duration::from_secs(10));
    world.api.faults().inject(of_jobs().verb(Verb::Watch), late);
    let mark = world.mark();
    world.start_manager();
    world.pass(Duration::from_secs(120)).await;
    let mut written = world.changes_since(mark);
    written.retain(|write| write.contains(" pods") || write.contains("/status"));
    assert_eq!(written, Vec::<String>::new());
}

/// A status that cannot be written takes no news with it: the next pass finds the work done and has nothing to tell.
#[tokio::test(start_paused = true)]
async fn what_was_done_is_told_though_the_status_fails() {
    let world = serving().await;
    let status = Match::writes().user(MANAGER).subresource("status").times(1);
    let refused = world.api.faults().inject(status, Fault::Conflict);
    let edit = image("cloudWorker", "big", "example/big:v2");
    world.edit::<JointInferenceService>("helmet", edit).await;
    assert_eq!(refused.hits(), 1);
    let events = world.events_about("helmet").await;
    let rolled = |event: &String| event.starts_with("Normal WorkerUpdated");
    assert_eq!(events.iter().filter(|event| rolled(event)).count(), 1, "{events:#?}");
}

/// What the API server cannot do for one object (a webhook is down, addresses have run out) is told until it can.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_fails_at_is_told() {
    let world = World::without_manager().await;
    let services = Match::writes().user(MANAGER).resource("services");
    let failing = world.api.faults().inject(services, Fault::InternalError);
    world.start_manager();
    world.apply(SERVICE).await;
    let told = world.condition::<JointInferenceService>("helmet", "Ready").await;
    assert_eq!(
        told,
        "False ChildRefused: Service helmet-cloud: Internal error occurred: injected fault"
    );
    assert_eq!(world.names::<Deployment>().await, [CLOUD, EDGE], "the others are made");
    failing.remove();
    world.rest().await;
    assert_eq!(world.condition::<JointInferenceService>("helmet", "Ready").await, READY);
}
