//! The real kubelet: pods as processes of this machine.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod, Secret, Service};
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use skerry_sandbox::cluster::{Image, NodeSpec, Options, Sandbox};

use crate::support::{condition, events, phase, pod, pod_when, soon};

struct World {
    sandbox: Sandbox,
    client: Client,
    _state: tempfile::TempDir,
}

/// A sandbox with the nodes `cloud-1` and `edge-1`, and an image `sh` that runs its arguments as a script.
async fn world() -> World {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .try_init();
    let state = tempfile::tempdir().unwrap();
    let mut options = Options::new(state.path());
    options.nodes = vec![NodeSpec::cloud("cloud-1"), NodeSpec::edge("edge-1")];
    options.back_off = Duration::from_millis(200);
    let shell = Image {
        command: ["/bin/sh", "-c"].map(str::to_owned).to_vec(),
        ..Image::default()
    };
    options.images.add("sh", shell);
    let sandbox = Sandbox::start(options).await.unwrap();
    World {
        client: sandbox.client(),
        sandbox,
        _state: state,
    }
}

/// A pod on `edge-1` whose one container runs a script.
fn script(name: &str, script: &str, spec: &Value) -> Value {
    let mut object = pod(name, &json!({"nodeName": "edge-1", "terminationGracePeriodSeconds": 5}));
    object["spec"]["containers"] = json!([{"name": "main", "image": "sh", "args": [script]}]);
    json_patch::merge(&mut object["spec"], spec);
    object
}

impl World {
    async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let object: K = serde_json::from_value(object).unwrap();
        Api::namespaced(self.client.clone(), "default")
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn when(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        pod_when(&self.client, name, wanted).await
    }

    async fn log(&self, name: &str) -> String {
        self.pods().logs(name, &LogParams::default()).await.unwrap()
    }

    async fn previous_log(&self, name: &str) -> Result<String, String> {
        let mut previous = LogParams::default();
        previous.previous = true;
        self.pods()
            .logs(name, &previous)
            .await
            .map_err(|error| error.to_string())
    }

    async fn gone(&self, name: &str) {
        soon(async || match self.pods().get_opt(name).await.unwrap() {
            None => Ok(()),
            Some(pod) => Err(format!("{:?}", pod.status)),
        })
        .await;
    }
}

fn status(pod: &Pod) -> ContainerStatus {
    pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].clone()
}

fn waiting(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses[0].state.as_ref()?.waiting.as_ref()?.reason.clone()
}

#[tokio::test]
async fn a_pod_runs_its_containers_in_order_and_keeps_their_logs() {
    let world = world().await;
    let mut object = script(
        "job",
        "cat /downloads/$WHAT $0; exit 0",
        &json!({"restartPolicy": "Never"}),
    );
    object["spec"]["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    let mounts = json!([{"name": "shared", "mountPath": "/downloads"}]);
    object["spec"]["containers"][0]["volumeMounts"] = mounts.clone();
    object["spec"]["containers"][0]["args"] = json!(["cat $MODEL_URL; echo on $(hostname >/dev/null) $NODE $IP"]);
    object["spec"]["containers"][0]["env"] = json!([
        {"name": "MODEL_URL", "value": "/downloads/model"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]);
    object["spec"]["initContainers"] = json!([
        {"name": "fetch", "image": "sh", "command": ["/bin/sh", "-c", "echo weights >$0/model"], "args": ["/downloads"], "volumeMounts": mounts}]);
    world.create::<Pod>(object).await;
    let done = world.when("job", |pod| phase(pod) == "Succeeded").await;
    let ip = done.status.as_ref().unwrap().pod_ip.clone().unwrap();
    assert!(ip.starts_with("127."), "{ip}");
    assert_eq!(world.log("job").await, format!("weights\non edge-1 {ip}\n"));
    let ended = status(&done).state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (0, Some("Completed")));
    let init = &done.status.as_ref().unwrap().init_container_statuses.as_ref().unwrap()[0];
    assert!(init.ready && init.state.as_ref().unwrap().terminated.is_some());
    let expected = ["Pulled", "Created", "Started", "Pulled", "Created", "Started"];
    soon(async || {
        let reasons: Vec<_> = events(&world.client, "job")
            .await
            .into_iter()
            .map(|(reason, _)| reason)
            .collect();
        if reasons == expected {
            Ok(())
        } else {
            Err(format!("{reasons:?}"))
        }
    })
    .await;
    world.pods().delete("job", &DeleteParams::default()).await.unwrap();
    world.gone("job").await;
    world.sandbox.shutdown().await;
}

#[tokio::test]
async fn a_container_that_fails_is_started_again_after_a_while() {
    let world = world().await;
    world
        .create::<Pod>(script("flaky", "echo run; exit 3", &json!({})))
        .await;
    let looping = world
        .when("flaky", |pod| waiting(pod).as_deref() == Some("CrashLoopBackOff"))
        .await;
    assert_eq!(phase(&looping), "Running");
    let last = status(&looping).last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    world.when("flaky", |pod| status(pod).restart_count >= 3).await;
    assert_eq!(world.previous_log("flaky").await.unwrap(), "run\n");
    world.sandbox.shutdown().await;
}

#[tokio::test]
async fn an_image_or_a_secret_that_is_missing_is_waited_for() {
    let world = world().await;
    let mut unknown = script("unknown", "", &json!({}));
    unknown["spec"]["containers"][0]["image"] = json!("example/unknown:1");
    world.create::<Pod>(unknown).await;
    let pulling = world
        .when("unknown", |pod| waiting(pod).as_deref() == Some("ImagePullBackOff"))
        .await;
    assert_eq!(phase(&pulling), "Pending");
    let message = status(&pulling).state.unwrap().waiting.unwrap().message.unwrap();
    assert!(
        message.contains("the sandbox knows no image \"example/unknown:1\""),
        "{message}"
    );

    let mut secretive = script("secretive", "echo $KEY; sleep 60", &json!({}));
    secretive["spec"]["containers"][0]["env"] =
        json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "key"}}}]);
    world.create::<Pod>(secretive).await;
    let held = world
        .when("secretive", |pod| {
            waiting(pod).as_deref() == Some("CreateContainerConfigError")
        })
        .await;
    assert_eq!(
        status(&held).state.unwrap().waiting.unwrap().message.as_deref(),
        Some("secret \"s3\" not found")
    );
    world
        .create::<Secret>(json!({"metadata": {"name": "s3"}, "stringData": {"key": "sesame"}}))
        .await;
    world.when("secretive", |pod| phase(pod) == "Running").await;
    soon(async || match world.log("secretive").await {
        log if log == "sesame\n" => Ok(()),
        log => Err(log),
    })
    .await;
    world.sandbox.shutdown().await;
}

#[tokio::test]
async fn deletion_asks_first_and_insists_after_the_grace_period() {
    let world = world().await;
    let polite = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    world.create::<Pod>(script("polite", polite, &json!({}))).await;
    let stubborn = json!({"terminationGracePeriodSeconds": 1});
    world
        .create::<Pod>(script(
            "stubborn",
            "trap '' TERM; echo up; while :; do sleep 0.05; done",
            &stubborn,
        ))
        .await;
    for name in ["polite", "stubborn"] {
        world
            .when(name, |pod| condition(pod, "Ready").as_deref() == Some("True"))
            .await;
        soon(async || match world.log(name).await {
            log if log == "up\n" => Ok(()),
            log => Err(log),
        })
        .await;
    }
    let mut follow = LogParams::default();
    follow.follow = true;
    let mut followed = world.pods().log_stream("polite", &follow).await.unwrap();
    let start = std::time::Instant::now();
    for name in ["polite", "stubborn"] {
        world.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }
    world.gone("polite").await;
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    let mut heard = String::new();
    followed.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("up\n") && heard.ends_with("bye\n"), "{heard}");
    world.gone("stubborn").await;
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    world.sandbox.shutdown().await;
}

#[tokio::test]
async fn probes_decide_about_readiness_and_life() {
    let world = world().await;
    let test = |file: &str, period: u32| json!({"exec": {"command": ["test", "-e", file]}, "periodSeconds": period, "failureThreshold": 1});
    let mut probed = script("probed", "touch alive; touch ready; sleep 60", &json!({}));
    probed["spec"]["containers"][0]["readinessProbe"] = test("ready", 1);
    probed["spec"]["containers"][0]["livenessProbe"] = test("alive", 1);
    probed["spec"]["containers"][0]["livenessProbe"]["initialDelaySeconds"] = json!(1);
    probed["spec"]["volumes"] = json!([{"name": "work", "hostPath": {"path": "/work", "type": "DirectoryOrCreate"}}]);
    probed["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "work", "mountPath": "/work"}]);
    probed["spec"]["containers"][0]["workingDir"] = json!("/work");
    world.create::<Pod>(probed).await;
    world
        .when("probed", |pod| condition(pod, "Ready").as_deref() == Some("True"))
        .await;
    let work = world.sandbox.node("edge-1").unwrap().host_folder().join("work");
    std::fs::remove_file(work.join("ready")).unwrap();
    let unready = world
        .when("probed", |pod| condition(pod, "Ready").as_deref() == Some("False"))
        .await;
    assert_eq!(phase(&unready), "Running");
    std::fs::remove_file(work.join("alive")).unwrap();
    let restarted = world
        .when("probed", |pod| status(pod).restart_count == 1 && status(pod).ready)
        .await;
    assert_eq!(
        status(&restarted).last_state.unwrap().terminated.unwrap().exit_code,
        143
    );
    soon(async || {
        let said = events(&world.client, "probed").await;
        let killing = said
            .iter()
            .any(|(reason, message)| reason == "Killing" && message.contains("failed liveness probe"));
        if killing { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await;
    world.sandbox.shutdown().await;
}

/// No test: what the pod of the next one runs, until it is killed.
#[test]
#[ignore = "it is run by a pod"]
fn a_server_in_a_pod() {
    let address = std::env::var("AGG_BIND_IP").unwrap();
    let listener = std::net::TcpListener::bind((address, 7363)).unwrap();
    for caller in listener.incoming() {
        // A caller that only tries whether it can connect is nobody to answer. What is left unread at the end would take
        // the answer along.
        let _ = caller.and_then(|mut caller| {
            let asked = caller.read(&mut [0; 1024])? > 0;
            caller.write_all(if asked { b"HTTP/1.0 200 OK\r\n\r\nhello" } else { b"" })
        });
    }
}

#[tokio::test]
async fn services_lead_to_pods_by_name_and_refuse_without_them() {
    let world = world().await;
    let this = std::env::current_exe().unwrap();
    let server = format!("exec {} --exact kubelet::a_server_in_a_pod --ignored", this.display());
    let service = json!({"metadata": {"name": "web"},
        "spec": {"selector": {"app": "server"}, "ports": [{"name": "tcp-0", "port": 80, "targetPort": 7363}]}});
    let service = world.create::<Service>(service).await;
    let ip = service.spec.unwrap().cluster_ip.unwrap();
    let connect = async || tokio::net::TcpStream::connect((ip.as_str(), 80)).await;
    assert_eq!(
        connect().await.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    world.create::<Pod>(script("server", &server, &json!({}))).await;
    soon(async || connect().await.map_err(|error| error.to_string())).await;
    let client = "exec 3<>/dev/tcp/${URL%:*}/${URL#*:}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    let mut caller = script("caller", client, &json!({"restartPolicy": "OnFailure"}));
    caller["spec"]["containers"][0]["command"] = json!(["bash", "-c"]);
    caller["spec"]["containers"][0]["env"] = json!([{"name": "URL", "value": "web.default:80"}]);
    world.create::<Pod>(caller).await;
    world.when("caller", |pod| phase(pod) == "Succeeded").await;
    assert!(world.log("caller").await.ends_with("hello\n"));
    world.sandbox.shutdown().await;
}

#[tokio::test]
async fn a_node_that_is_cut_off_goes_on_and_reports_later() {
    let world = world().await;
    let map = json!({"metadata": {"name": "settings"}, "data": {"MODE": "calm"}});
    world.create::<ConfigMap>(map).await;
    let mut object = script("worker", "echo $MODE; exec sleep 60", &json!({}));
    object["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    world.create::<Pod>(object).await;
    world
        .when("worker", |pod| condition(pod, "Ready").as_deref() == Some("True"))
        .await;
    let node = world.sandbox.node("edge-1").unwrap().clone();
    node.cut();
    assert!(node.kill("default", "worker", None));
    let two_runs = async || {
        let log = world.log("worker").await;
        world.previous_log("worker").await?;
        if log == "calm\n" { Ok(()) } else { Err(log) }
    };
    soon(two_runs).await;
    assert_eq!(
        status(&world.pods().get("worker").await.unwrap()).restart_count,
        0,
        "nobody was told"
    );
    let annotated = json!({"metadata": {"annotations": {"note": "while it was away"}}});
    world
        .pods()
        .patch("worker", &PatchParams::default(), &Patch::Merge(annotated))
        .await
        .unwrap();
    world.pods().delete("worker", &DeleteParams::default()).await.unwrap();
    node.restore();
    world.gone("worker").await;
    world.sandbox.shutdown().await;
}
