//! The control planes that are lent to this process. `SKERRY_CONTROL_PLANES` names a file with their list; whoever runs the
//! scenarios on the real thing starts them.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::Semaphore,
    time::sleep,
};

use crate::loopback::HTTP;

/// The variable that names the file with the list of control planes.
pub const CONTROL_PLANES: &str = "SKERRY_CONTROL_PLANES";

/// A control plane, as the list has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plane {
    /// The kubeconfig of a user who may do everything and impersonate everybody.
    pub kubeconfig: PathBuf,
    /// Where etcd's HTTP interface is.
    pub etcd: String,
    /// The socket of its control, which takes it down and up again.
    pub control: PathBuf,
    /// The kubeconfig of managers: of a user who has the chart's role, and nothing more.
    pub manager: Option<PathBuf>,
    /// Locked by the process that uses it: several programs are lent the same.
    lock: PathBuf,
    /// The definitions that were made known here last, by name: their specs, and the generations that these got.
    #[serde(skip)]
    pub(crate) defined: Arc<Mutex<BTreeMap<String, (CustomResourceDefinitionSpec, i64)>>>,
    /// That lock, once this process has looked whether it is free.
    #[serde(skip)]
    opened: Option<Arc<File>>,
}

impl Plane {
    /// Whether no other process uses it; then this one does, until [`Plane::release`].
    fn claim(&mut self) -> bool {
        let lock = self.opened.get_or_insert_with(|| {
            let lock = File::create(&self.lock);
            Arc::new(lock.expect("the plane's folder can be written"))
        });
        lock.try_lock().is_ok()
    }

    fn release(&self) {
        if let Some(lock) = &self.opened {
            lock.unlock().expect("the plane's lock is held");
        }
    }

    /// Has its control do something: `kill the API server`, `stop the API server`, `stop etcd`, `restore`; until it is done.
    pub async fn command(&self, command: &str) {
        let mut control = UnixStream::connect(&self.control)
            .await
            .expect("the plane has a control");
        control
            .write_all(format!("{command}\n").as_bytes())
            .await
            .expect("the control takes commands");
        let mut answer = String::new();
        control.read_to_string(&mut answer).await.expect("the control answers");
        assert_eq!(answer.trim(), "ok", "{command}");
    }

    /// Has etcd forget the history before a revision.
    pub async fn compact(&self, revision: u64) {
        self.ask_etcd(
            "compaction",
            json!({"revision": revision.to_string(), "physical": true}),
        )
        .await;
    }

    /// What etcd answers to a question about keys.
    pub(crate) async fn ask_etcd(&self, what: &str, with: Value) -> Value {
        let url = format!("{}/v3/kv/{what}", self.etcd);
        let answer = HTTP.post(url).body(with.to_string()).send().await;
        let answer = answer.expect("etcd answers");
        assert!(answer.status().is_success(), "{answer:?}");
        let answer = answer.bytes().await.expect("etcd answers to the end");
        serde_json::from_slice(&answer).expect("etcd answers in JSON")
    }
}

/// Whether control planes are lent to this process.
pub fn is_lent() -> bool {
    IDLE.is_some()
}

/// Control planes that nobody uses right now; nothing where scenarios run in memory.
static IDLE: LazyLock<Option<Idle>> = LazyLock::new(|| {
    let file = env::var_os(CONTROL_PLANES)?;
    let list = fs::read(&file).expect("the list of control planes can be read");
    let planes: Vec<Plane> = serde_json::from_slice(&list).expect("the list of control planes is JSON");
    Some(Idle {
        all: planes.len(),
        free: Semaphore::new(planes.len()),
        planes: Mutex::new(planes),
        turn: Semaphore::new(1),
    })
});

struct Idle {
    all: usize,
    planes: Mutex<Vec<Plane>>,
    /// As many as this process does not use; waits in order.
    free: Semaphore,
    /// Whoever looks for one that no other process uses.
    turn: Semaphore,
}

/// Waits for a control plane that nobody uses; nothing where scenarios run in memory.
pub(crate) async fn take() -> Option<Plane> {
    IDLE.as_ref()?.take().await
}

/// Lends one to the next.
pub(crate) fn give_back(plane: Plane) {
    if let Some(idle) = IDLE.as_ref() {
        idle.give_back(plane);
    }
}

impl Idle {
    /// How often it is looked whether another process has given one back.
    const LOOK: Duration = Duration::from_millis(20);

    async fn take(&self) -> Option<Plane> {
        self.free.acquire().await.ok()?.forget();
        let _turn = self.turn.acquire().await.ok()?;
        loop {
            {
                let mut planes = self.planes.lock().unwrap();
                if let Some(unused) = planes.iter_mut().position(Plane::claim) {
                    return Some(planes.swap_remove(unused));
                }
            }
            sleep(Self::LOOK).await;
        }
    }

    fn give_back(&self, plane: Plane) {
        plane.release();
        self.planes.lock().unwrap().push(plane);
        self.free.add_permits(1);
    }
}

/// Does the same with each of these: side by side, with a control plane each, or one after the other in memory, where
/// their time would be one.
pub async fn side_by_side<T, R>(each: impl IntoIterator<Item = T>, act: impl AsyncFn(T) -> R) -> Vec<R> {
    let at_once = IDLE.as_ref().map_or(1, |idle| idle.all);
    stream::iter(each).map(|one| act(one)).buffered(at_once).collect().await
}
