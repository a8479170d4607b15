//! What the engine knows, and what it tells of it: terms, lists that fail, what nodes hold and report.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use skerry_globalmanager::engine::{ResourceKey, Taken};
use skerry_sandbox::api::{Fault, FaultHandle, Match, Verb};
use skerry_workloads::Payload;
use tokio::time::sleep;

use crate::world::{GADGET, Gadget, Held, MANAGER, Told, World, gadget};

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_and_takes_over_all_of_it() {
    let world = World::start().await;
    world.leads.send_replace(false);
    let mark = world.api.requests().mark();
    world.create("a", gadget(80)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
    world.leads.send_replace(true);
    world.settle().await;
    assert_eq!(
        world.writes_since(mark),
        ["patch services  a", "patch gadgets status a"]
    );
}

#[tokio::test(start_paused = true)]
async fn nodes_hold_a_resource_until_it_is_gone() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    let key = ResourceKey {
        kind: GADGET,
        namespace: "default".into(),
        name: "a".into(),
    };
    assert_eq!(world.held.parts.lock()[&key]["edge-1"], json!({"port": 80}));
    world.gadgets().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert!(!world.held.parts.lock().contains_key(&key));
}

#[tokio::test(start_paused = true)]
async fn nodes_are_told_of_edits_while_the_api_server_holds_up_a_pass() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    let writes = Match::writes().user(MANAGER);
    world
        .api
        .faults()
        .inject(writes, Fault::Latency(Duration::from_secs(50)));
    for port in [81, 82] {
        let edit = json!({"spec": {"port": port}});
        let how = PatchParams::default();
        world.gadgets().patch("a", &how, &Patch::Merge(edit)).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let held: Vec<_> = world.held.parts.lock().values().cloned().collect();
        assert_eq!(held, [[("edge-1".to_owned(), json!({"port": port}))].into()]);
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_told_what_they_hold_once_in_a_term_until_it_is_something_else_or_there_is_room() {
    let world = World::start().await;
    let Held { sets, full, parts, .. } = world.held.as_ref();
    let told = || sets.swap(0, Relaxed);
    world.create("a", gadget(80)).await;
    assert!(told() > 0);
    let delete_child = async || {
        let passes = world.passes();
        world.services().delete("a", &DeleteParams::default()).await.unwrap();
        world.settle().await;
        assert!(world.passes() > passes);
    };
    delete_child().await;
    assert_eq!(told(), 0, "it holds that already");
    let edit = async |port| {
        let edit = json!({"spec": {"port": port}});
        let how = PatchParams::default();
        world.gadgets().patch("a", &how, &Patch::Merge(edit)).await.unwrap();
        world.settle().await;
    };
    edit(81).await;
    assert_eq!(told(), 1);
    full.store(true, Relaxed);
    edit(82).await;
    assert!(told() > 0);
    full.store(false, Relaxed);
    delete_child().await;
    assert_eq!(told(), 1, "there is room for it now");
    world.leads.send(false).unwrap();
    // The hub forgets what it was told in a term before.
    parts.lock().clear();
    world.leads.send(true).unwrap();
    world.settle().await;
    assert!(told() > 0, "who knows what was told by whoever led before");
}

/// The manager's lists of `resource`, which fail.
fn lists_fail(world: &World, resource: &str) -> FaultHandle {
    let lists = Match::any().user(MANAGER).verb(Verb::List).resource(resource);
    world.api.faults().inject(lists, Fault::InternalError)
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_goes_while_another_kind_is_not_listed_is_told_to_be_gone() {
    let world = World::stopped().await;
    let fault = lists_fail(&world, "secrets");
    world.run();
    world.create("a", gadget(80)).await;
    world.told();
    world.gadgets().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert_eq!(world.told(), [Told::Gone("a".into())]);
    fault.remove();
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_list_fails_is_unknown_and_not_empty() {
    let world = World::stopped().await;
    let fault = lists_fail(&world, "gadgets");
    world.run();
    world.create("a", gadget(80)).await;
    let told = world.told();
    assert!(
        told.iter().all(|told| *told == Told::Unknown) && !told.is_empty(),
        "{told:?}"
    );
    fault.remove();
    world.settle().await;
    assert_eq!(world.told(), [Told::Listed(vec!["a".into()])]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_there_is_unknown_and_not_empty() {
    let world = World::stopped().await;
    let crds: Api<CustomResourceDefinition> = Api::all(world.api.client());
    crds.delete("gadgets.sedna.io", &DeleteParams::default()).await.unwrap();
    world.run();
    world.settle().await;
    let told = world.told();
    assert!(
        told.iter().all(|told| *told == Told::Unknown) && !told.is_empty(),
        "{told:?}"
    );
    crds.create(&PostParams::default(), &Gadget::crd()).await.unwrap();
    world.settle().await;
    assert_eq!(world.told(), [Told::Listed(vec![])]);
}

/// What a standby knows may be old: its watch may have failed for as long as it stood by.
#[tokio::test(start_paused = true)]
async fn a_term_begins_with_a_list_of_its_own() {
    let world = World::stopped().await;
    world.leads.send_replace(false);
    world.create("a", gadget(80)).await;
    let watches = Match::any().user(MANAGER).verb(Verb::Watch).resource("gadgets");
    world.api.faults().inject(watches, Fault::InternalError);
    world.run();
    world.settle().await;
    world.create("b", gadget(81)).await;
    let lists = lists_fail(&world, "gadgets");
    world.told();
    world.leads.send_replace(true);
    world.settle().await;
    assert!(world.told().iter().all(|told| *told == Told::Unknown));
    assert!(world.held.parts.lock().is_empty(), "what a standby knows is not placed");
    lists.remove();
    world.settle().await;
    assert_eq!(world.held.parts.lock().len(), 2);
    assert_eq!(world.told(), [Told::Listed(vec!["a".into(), "b".into()])]);
}

/// Another manager may have written what nodes reported meanwhile, and told them so.
#[tokio::test(start_paused = true)]
async fn what_a_standby_knows_is_no_state_to_report_into() {
    let world = World::stopped().await;
    world.leads.send_replace(false);
    let uid = world.create("a", gadget(80)).await.uid().unwrap();
    let watches = Match::any().user(MANAGER).verb(Verb::Watch).resource("gadgets");
    world.api.faults().inject(watches, Fault::InternalError);
    world.run();
    world.settle().await;
    let take = || async {
        let payload = Payload::Samples(7);
        world
            .engine
            .take_report("edge-1", "gadget", "default", "a", &uid, payload)
            .await
    };
    let lists = lists_fail(&world, "gadgets");
    world.leads.send_replace(true);
    world.settle().await;
    let early = take().await;
    assert!(
        matches!(&early, Taken::Later(why) if why.contains("not listed yet")),
        "{early:?}"
    );
    lists.remove();
    world.settle().await;
    assert_eq!(take().await, Taken::Accepted);
}

#[tokio::test(start_paused = true)]
async fn a_report_becomes_status_once_and_what_the_manager_writes_leaves_it_alone() {
    let world = World::start().await;
    let made = world.create("a", gadget(80)).await;
    let uid = made.uid().unwrap();
    let mark = world.api.requests().mark();
    for _ in 0..3 {
        let taken = world
            .engine
            .take_report("edge-1", "gadget", "default", "a", &uid, Payload::Samples(7))
            .await;
        assert_eq!(taken, Taken::Accepted);
    }
    assert_eq!(world.writes_since(mark), ["patch gadgets status a"]);
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert_eq!(world.status("a").await.samples, Some(7));
    let refused = world
        .engine
        .take_report("edge-1", "gadget", "default", "a", "another", Payload::Samples(8))
        .await;
    assert!(matches!(refused, Taken::Refused(_)), "{refused:?}");
}

/// What is refused is lost; what a manager knows may be older than what its node holds.
#[tokio::test(start_paused = true)]
async fn a_report_on_a_resource_that_is_not_known_yet_is_taken() {
    let world = World::stopped().await;
    let watches = Match::any().user(MANAGER).verb(Verb::Watch).resource("gadgets");
    world.api.faults().inject(watches, Fault::InternalError);
    world.run();
    world.settle().await;
    let made = world.create("late", gadget(80)).await;
    let take = |name: &'static str, uid: String| {
        let engine = world.engine.clone();
        async move {
            let payload = Payload::Samples(7);
            engine
                .take_report("edge-1", "gadget", "default", name, &uid, payload)
                .await
        }
    };
    assert_eq!(take("late", made.uid().unwrap()).await, Taken::Accepted);
    assert_eq!(world.status("late").await.samples, Some(7));
    assert!(matches!(take("never", "u".into()).await, Taken::Refused(_)));
    let fault = Match::any().user(MANAGER).verb(Verb::Get).resource("gadgets");
    world.api.faults().inject(fault, Fault::InternalError);
    assert!(matches!(take("never", "u".into()).await, Taken::Later(_)));
}

#[tokio::test(start_paused = true)]
async fn stopping_finishes_what_is_under_way() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    world.stop.cancel();
    let mark = world.api.requests().mark();
    world.create("b", gadget(80)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}
