//! What a pass does to children and status, and what it costs.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use skerry_globalmanager::engine::PASSES_AT_ONCE;
use skerry_sandbox::api::{Fault, Match, Verb};
use tokio::time::sleep;

use crate::world::{Gadget, GadgetSpec, MANAGER, World, gadget};

#[tokio::test(start_paused = true)]
async fn creation_costs_one_write_per_child_and_one_for_the_status_and_rest_costs_none() {
    let world = World::start().await;
    let mark = world.api.requests().mark();
    world
        .create(
            "a",
            GadgetSpec {
                pod: true,
                ..gadget(80)
            },
        )
        .await;
    assert_eq!(
        world.writes_since(mark),
        ["patch services  a", "create pods  a", "patch gadgets status a"]
    );
    assert_eq!(world.status("a").await.children, Some(2));
    let mark = world.api.requests().mark();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes_since(mark), Vec::<String>::new());
}

/// Where children of others are still to be made, one turn in so many is for what is told.
const TURNS_PER_TOLD: usize = 16;

/// The names of so many gadgets, which are declared and have nothing yet.
async fn declare(world: &World, prefix: &str, number: usize) -> Vec<String> {
    let with_pod = GadgetSpec {
        pod: true,
        ..gadget(80)
    };
    declare_each(world, prefix, number, &with_pod).await
}

async fn declare_each(world: &World, prefix: &str, number: usize, spec: &GadgetSpec) -> Vec<String> {
    let names: Vec<_> = (0..number).map(|number| format!("{prefix}-{number:03}")).collect();
    for name in &names {
        let declared = Gadget::new(name, spec.clone());
        world.gadgets().create(&PostParams::default(), &declared).await.unwrap();
    }
    names
}

/// Has each write of a child take so long.
fn delay_children(world: &World, late: Duration) {
    for kind in ["services", "pods"] {
        let child = Match::writes().user(MANAGER).resource(kind);
        world.api.faults().inject(child, Fault::Latency(late));
    }
}

/// Makes the secret `s`, or changes what it holds.
async fn set_secret(world: &World, encoded: &str) {
    let secrets: Api<Secret> = Api::namespaced(world.api.client_as("user"), "default");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": encoded}});
    let how = PatchParams::apply("user");
    secrets.patch("s", &how, &Patch::Apply(secret)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_many_resources_wait_services_come_first_then_other_children_and_then_what_is_told() {
    let world = World::stopped().await;
    let names = declare(&world, "gadget", 100).await;
    let writes = Match::writes().user(MANAGER);
    world
        .api
        .faults()
        .inject(writes, Fault::Latency(Duration::from_millis(10)));
    let mark = world.api.requests().mark();
    world.run();
    world.settle().await;
    let writes = world.writes_and_events_since(mark);
    let nearly_all = names.len() - PASSES_AT_ONCE + 1;
    let (services, pods, events, statuses) = (
        "patch services  ",
        "create pods  ",
        "create events  ",
        "patch gadgets status ",
    );
    for what in [services, pods, events, statuses] {
        // As many writes as otherwise, and of each sort in the order in which the resources were heard of.
        let of_it = writes
            .iter()
            .filter_map(|write| write.strip_prefix(what)?.split('.').next());
        assert_eq!(of_it.collect::<Vec<_>>(), names, "{what}");
    }
    assert_eq!(before(&writes, services, nearly_all, pods), 0);
    for told in [events, statuses] {
        let told_before = before(&writes, pods, nearly_all, told);
        assert!(told_before <= names.len() / TURNS_PER_TOLD, "{told}: {told_before}");
    }
}

/// How many writes of one sort come before so many of another.
fn before(writes: &[String], others: &str, number: usize, what: &str) -> usize {
    let mut of_others = writes.iter().enumerate().filter(|(_, write)| write.starts_with(others));
    let (nth, _) = of_others.nth(number - 1).unwrap();
    writes[..nth].iter().filter(|write| write.starts_with(what)).count()
}

#[tokio::test(start_paused = true)]
async fn what_is_told_waits_for_children_of_what_is_declared_meanwhile_but_moves_on() {
    let world = World::stopped().await;
    let late = Duration::from_millis(10);
    delay_children(&world, late);
    let first = declare(&world, "first", 80).await;
    let mark = world.api.requests().mark();
    world.run();
    // Some have all of theirs by now.
    sleep(late * 8).await;
    let meanwhile = declare(&world, "meanwhile", 100).await;
    sleep(Duration::from_secs(600)).await;
    let writes = world.writes_and_events_since(mark);
    // Once all others have a pass, or wait in one for an address, nobody has to wait for them.
    let nearly_all = first.len() + meanwhile.len() - PASSES_AT_ONCE;
    let turns = 2 * (first.len() + meanwhile.len());
    let told = before(&writes, "create pods  ", nearly_all, "create events  ");
    assert!((1..=turns / TURNS_PER_TOLD).contains(&told), "{told} in {turns} turns");
    for name in first.iter().chain(&meanwhile) {
        let told = writes
            .iter()
            .filter(|write| write.starts_with(&format!("create events  {name}.")));
        assert_eq!(told.count(), 1, "{name}");
        assert_eq!(world.status(name).await.children, Some(2), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_alone_waits_for_children_of_others_as_well() {
    let world = World::stopped().await;
    delay_children(&world, Duration::from_millis(10));
    set_secret(&world, "b25l").await;
    let with_secret = GadgetSpec {
        secret: Some("s".into()),
        ..gadget(80)
    };
    let told = declare_each(&world, "told", 40, &with_secret).await;
    world.run();
    world.settle().await;
    let mark = world.api.requests().mark();
    let meanwhile = declare(&world, "meanwhile", 100).await;
    set_secret(&world, "dHdv").await;
    sleep(Duration::from_secs(600)).await;
    let writes = world.writes_and_events_since(mark);
    let nearly_all = meanwhile.len() - PASSES_AT_ONCE;
    let turns = 2 * meanwhile.len() + told.len();
    let statuses = before(&writes, "create pods  ", nearly_all, "patch gadgets status told");
    assert!(statuses <= turns / TURNS_PER_TOLD, "{statuses} in {turns} turns");
    for name in &told {
        assert_eq!(
            world.status(name).await.secret_version.as_deref(),
            Some("dHdv"),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_of_children_are_looked_at_together_once_the_children_of_others_are_made() {
    const CHANGES: u64 = 10;
    let world = World::stopped().await;
    let late = Duration::from_secs(1);
    delay_children(&world, late);
    let told = declare(&world, "told", 40).await;
    world.run();
    world.settle().await;
    let (mark, passes) = (world.api.requests().mark(), world.passes());
    let meanwhile = declare(&world, "meanwhile", 100).await;
    let (pods, how) = (world.pods(), PatchParams::apply("user"));
    for change in 0..CHANGES {
        sleep(late).await;
        let status = Patch::Merge(json!({"status": {"message": change.to_string()}}));
        for name in &told {
            pods.patch_status(name, &how, &status).await.unwrap();
        }
    }
    let pods_made = || {
        let writes = world.writes_since(mark);
        writes.iter().filter(|write| write.starts_with("create pods")).count()
    };
    assert_eq!(pods_made(), 0, "others are still given their Services");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(pods_made(), meanwhile.len());
    // Of the others one for each child, one for what is told, and one that sees that this is so.
    let of_others = 4 * u64::try_from(meanwhile.len()).unwrap();
    let of_told = world.passes() - passes - of_others;
    assert!(of_told <= 2 * u64::try_from(told.len()).unwrap(), "{of_told}");
}

#[tokio::test(start_paused = true)]
async fn few_services_wait_for_an_address_at_once_and_all_get_one() {
    let world = World::stopped().await;
    let names = declare(&world, "gadget", 20).await;
    let services = Match::writes().user(MANAGER).resource("services");
    let late = world
        .api
        .faults()
        .inject(services, Fault::Latency(Duration::from_secs(2)));
    world.run();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(late.hits(), 4);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(late.hits(), 8);
    world.settle().await;
    assert_eq!(late.hits(), 20);
    for name in names {
        assert_eq!(world.status(&name).await.children, Some(2), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_made_again_has_the_address_that_it_had_unless_another_has_it() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    let address = async || {
        let service = world.services().get("a").await.unwrap();
        service.spec.unwrap().cluster_ip.unwrap()
    };
    let delete = async || {
        let deleted = world.services().delete("a", &DeleteParams::default()).await;
        deleted.unwrap();
    };
    let first = address().await;
    for port in [81, 82] {
        delete().await;
        world.settle().await;
        assert_eq!(address().await, first);
        // Nothing of that is planned, and an edit leaves it as it is.
        let edit = Patch::Merge(json!({"spec": {"port": port}}));
        world
            .gadgets()
            .patch("a", &PatchParams::default(), &edit)
            .await
            .unwrap();
        world.settle().await;
        let service = world.services().get("a").await.unwrap().spec.unwrap();
        assert_eq!(service.ports.unwrap().first().unwrap().port, port);
        assert_eq!(service.cluster_ip, Some(first.clone()));
    }
    let late = Fault::Latency(Duration::from_secs(1));
    let services = Match::writes().user(MANAGER).resource("services");
    world.api.faults().inject(services, late);
    delete().await;
    let other = json!({"metadata": {"name": "other"}, "spec": {"clusterIP": first, "ports": [{"port": 1}]}});
    let other = serde_json::from_value(other).unwrap();
    world.services().create(&PostParams::default(), &other).await.unwrap();
    world.settle().await;
    let second = address().await;
    assert_ne!(second, first);
    assert_eq!(world.status("a").await.failure, None);
    delete().await;
    world.settle().await;
    assert_eq!(address().await, second, "that is the one which it had last");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_not_given_back_yet_is_waited_for() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    let first = world.services().get("a").await.unwrap().spec.unwrap().cluster_ip;
    let services = Match::writes().user(MANAGER).resource("services");
    let late = Fault::Latency(Duration::from_millis(100));
    let tries = world.api.faults().inject(services, late);
    let delete = async |name| {
        let deleted = world.services().delete(name, &DeleteParams::default()).await;
        deleted.unwrap();
    };
    delete("a").await;
    // An API server that has not given it back refuses it as one that another Service has.
    let other = json!({"metadata": {"name": "other"}, "spec": {"clusterIP": first, "ports": [{"port": 1}]}});
    let other = serde_json::from_value(other).unwrap();
    world.services().create(&PostParams::default(), &other).await.unwrap();
    sleep(Duration::from_secs(8)).await;
    assert!((4..=7).contains(&tries.hits()), "{}", tries.hits());
    delete("other").await;
    world.settle().await;
    let second = world.services().get("a").await.unwrap().spec.unwrap().cluster_ip;
    assert_eq!(second, first);
}

#[tokio::test(start_paused = true)]
async fn an_edit_costs_one_write_and_drift_by_hand_is_put_back() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    let mark = world.api.requests().mark();
    let edit = json!({"spec": {"port": 81}});
    world
        .gadgets()
        .patch("a", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    world.settle().await;
    assert_eq!(world.writes_since(mark), ["patch services  a"]);
    let drift = json!({"spec": {"ports": [{"port": 99}]}});
    world
        .services()
        .patch("a", &PatchParams::default(), &Patch::Merge(drift))
        .await
        .unwrap();
    world.settle().await;
    let ports: Vec<_> = world
        .services()
        .get("a")
        .await
        .unwrap()
        .spec
        .unwrap()
        .ports
        .unwrap()
        .iter()
        .map(|p| p.port)
        .collect();
    // A port more would be theirs, were it valid beside ours.
    assert_eq!(ports, [81]);
    let edit = json!({"spec": {"port": 82}});
    world
        .gadgets()
        .patch("a", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    world.settle().await;
    let service = world.services().get("a").await.unwrap();
    let ports: Vec<_> = service.spec.unwrap().ports.unwrap().iter().map(|p| p.port).collect();
    assert_eq!(ports, [82]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_child_is_made_again() {
    let world = World::start().await;
    world.create("a", gadget(80)).await;
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert!(world.services().get_opt("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_looked_at_together_with_the_names_of_children_that_are_gone() {
    let world = World::start().await;
    let with_pod = GadgetSpec {
        pod: true,
        ..gadget(80)
    };
    world.create("a", with_pod).await;
    let late = Duration::from_millis(10);
    let looks = Match::any().user(MANAGER).verb(Verb::Get);
    world.api.faults().inject(looks, Fault::Latency(late));
    let (services, pods, how) = (world.services(), world.pods(), DeleteParams::default());
    let (service, pod) = tokio::join!(services.delete("a", &how), pods.delete("a", &how));
    service.unwrap();
    pod.unwrap();
    let mark = world.api.requests().mark();
    sleep(late + late / 2).await;
    let writes = world.writes_since(mark);
    let children = ["patch services  a", "create pods  a"].map(str::to_owned);
    assert!(writes.starts_with(&children), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_planned_no_more_is_pruned_and_what_is_not_ours_stays() {
    let world = World::start().await;
    world
        .create(
            "a",
            GadgetSpec {
                pod: true,
                ..gadget(80)
            },
        )
        .await;
    let foreign: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({"metadata": {"name": "foreign",
        "labels": {"gadget.sedna.io/name": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
    .unwrap();
    world.pods().create(&PostParams::default(), &foreign).await.unwrap();
    let edit = json!({"spec": {"pod": false}});
    world
        .gadgets()
        .patch("a", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    world.settle().await;
    let left: Vec<_> = world
        .pods()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|pod| pod.name_any())
        .collect();
    assert_eq!(left, ["foreign"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_said_and_left_alone_and_heals() {
    let world = World::start().await;
    let theirs: k8s_openapi::api::core::v1::Service =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}})).unwrap();
    world.services().create(&PostParams::default(), &theirs).await.unwrap();
    world.create("a", gadget(80)).await;
    let failure = world.status("a").await.failure.unwrap();
    assert!(failure.starts_with("NameTaken: Service a exists"), "{failure}");
    let kept = world.services().get("a").await.unwrap();
    assert_eq!(kept.spec.unwrap().ports.unwrap()[0].port, 1);
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(400)).await;
    assert_eq!(world.status("a").await.failure, None);
}

#[tokio::test(start_paused = true)]
async fn an_owner_on_its_way_out_gets_nothing_new() {
    let world = World::start().await;
    let mut made = Gadget::new("a", gadget(80));
    made.metadata.finalizers = Some(vec!["test/hold".into()]);
    world.gadgets().create(&PostParams::default(), &made).await.unwrap();
    world.settle().await;
    world.gadgets().delete("a", &DeleteParams::default()).await.unwrap();
    world.services().delete("a", &DeleteParams::default()).await.unwrap();
    world.settle().await;
    assert!(world.services().get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_appears_or_changes_is_noticed() {
    let world = World::start().await;
    world
        .create(
            "a",
            GadgetSpec {
                secret: Some("s".into()),
                ..gadget(80)
            },
        )
        .await;
    assert_eq!(world.status("a").await.secret_version, None);
    set_secret(&world, "b25l").await;
    world.settle().await;
    assert_eq!(world.status("a").await.secret_version.as_deref(), Some("b25l"));
    set_secret(&world, "dHdv").await;
    world.settle().await;
    assert_eq!(world.status("a").await.secret_version.as_deref(), Some("dHdv"));
}
