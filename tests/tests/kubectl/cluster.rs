//! A sandbox and the `kubectl` that talks to it.

use std::{
    collections::BTreeMap,
    process::{Output, Stdio},
    time::Duration,
};

use skerry_sandbox::{
    api::{Mark, Verb},
    cluster::{Image, Images, NodeSpec, Options, Sandbox},
};
use skerry_tests::tools::kubectl_is_there;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};

/// The longest that any one command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who asks by `kubectl`, whose configuration names nobody.
const USER: &str = "system:admin";

/// A deployment of two pods that come up, and the service before them.
pub const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: 'sleeper:1', ports: [{containerPort: 80}], env: [{name: COLOUR, value: red}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

/// A sandbox with two nodes; images `sleeper:1` and `sleeper:2` do nothing, `ticker:1` prints a line ten times a second,
/// `ender:1` fails.
pub struct Cluster {
    pub sandbox: Sandbox,
    folder: TempDir,
}

impl Cluster {
    /// Starts one; `None` where there is no `kubectl` to talk to it.
    pub async fn start() -> Option<Self> {
        if !kubectl_is_there() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(folder.path().join("state"));
        options.nodes = vec![NodeSpec::cloud("cloud-1"), NodeSpec::edge("edge-1")];
        options.images = images();
        let sandbox = Sandbox::start(options).await.unwrap();
        std::fs::write(folder.path().join("kubeconfig"), sandbox.kubeconfig()).unwrap();
        Some(Self { sandbox, folder })
    }

    /// A file for `-f`.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(args)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            // Caches and preferences of whoever runs the test stay out of it.
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn output(&self, args: &[&str]) -> Output {
        tokio::time::timeout(PATIENCE, self.command(args).output())
            .await
            .unwrap_or_else(|_| panic!("kubectl {args:?} did not end"))
            .unwrap()
    }

    /// Runs a command that succeeds, and answers what it printed.
    pub async fn ok(&self, args: &[&str]) -> String {
        let output = self.output(args).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails, and answers why.
    pub async fn fails(&self, args: &[&str]) -> String {
        let output = self.output(args).await;
        assert!(!output.status.success(), "kubectl {args:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Applies a manifest.
    pub async fn apply(&self, manifest: &str) -> String {
        let file = self.file("manifest.yaml", manifest);
        self.ok(&["apply", "-f", &file]).await
    }

    /// One field of one object, such as `deployment/web`, by its JSON path.
    pub async fn field(&self, object: &str, path: &str) -> String {
        self.ok(&["get", object, "-o", &format!("jsonpath={{{path}}}")]).await
    }

    /// Runs `kubectl edit` with an editor that replaces a text.
    pub async fn edit(&self, object: &str, old: &str, new: &str) -> Output {
        let editor = self.file(
            "editor.sh",
            &format!("sed 's/{old}/{new}/' \"$1\" > \"$1.new\" && mv \"$1.new\" \"$1\"\n"),
        );
        let mut command = self.command(&["edit", object]);
        command.env("EDITOR", format!("sh {editor}"));
        tokio::time::timeout(PATIENCE, command.output())
            .await
            .expect("the edit ends")
            .unwrap()
    }

    /// Starts a command that goes on, such as a watch.
    pub fn follow(&self, args: &[&str]) -> Following {
        let mut child = self.command(args).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { lines, _child: child }
    }

    /// Runs a command with a text for its standard input.
    pub async fn with_input(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        tokio::time::timeout(PATIENCE, child.wait_with_output())
            .await
            .expect("the command ends")
            .unwrap()
    }

    /// Waits until a `kubectl` watches a resource, by its plural name, that it did not at the mark.
    pub async fn watching(&self, resource: &str, since: Mark) {
        let is_watched = || {
            let all = self.sandbox.server().requests().since(since);
            let mut asked = all
                .iter()
                .map(|entry| &entry.request)
                .filter(|request| request.user == USER);
            asked.any(|request| request.verb == Verb::Watch && request.resource == resource)
        };
        let waiting = async {
            let mut look = tokio::time::interval(Duration::from_millis(20));
            while !is_watched() {
                look.tick().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("the resource is watched");
    }

    /// Ends the sandbox.
    pub async fn end(self) {
        self.sandbox.shutdown().await;
    }
}

/// A command that goes on; it ends when this is dropped.
pub struct Following {
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    _child: Child,
}

impl Following {
    /// The next line that holds a text.
    pub async fn line_with(&mut self, text: &str) -> String {
        let find = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(text) {
                    return line;
                }
            }
            panic!("the command ended before it printed {text:?}");
        };
        tokio::time::timeout(PATIENCE, find)
            .await
            .unwrap_or_else(|_| panic!("{text:?} was not printed"))
    }
}

fn images() -> Images {
    let run = |command: &[&str]| Image {
        command: command.iter().map(|&word| word.to_owned()).collect(),
        env: BTreeMap::new(),
        ..Image::default()
    };
    let mut images = Images::default();
    images.add("sleeper:1", run(&["sleep", "3600"]));
    images.add("sleeper:2", run(&["sleep", "3601"]));
    images.add("ender:1", run(&["sh", "-c", "echo the end; exit 3"]));
    images.add("ticker:1", run(&["sh", "-c", "while :; do echo tick; sleep 0.1; done"]));
    images
}
