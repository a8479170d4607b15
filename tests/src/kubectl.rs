//! The real `kubectl`, run as users run it.

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use kube::config::Kubeconfig;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// The longest that any one command may take: more than what commands say themselves.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A `kubectl` with a configuration, and with a home where nobody's caches and preferences are.
pub struct Kubectl {
    folder: TempDir,
}

impl Kubectl {
    /// With a kubeconfig, and with the namespace that is meant where none is named.
    pub fn new(kubeconfig: &str, namespace: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for files");
        let mut config = Kubeconfig::from_yaml(kubeconfig).expect("the kubeconfig is one");
        for context in config.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
            context.namespace = Some(namespace.to_owned());
        }
        let config = serde_json::to_vec(&config).expect("a kubeconfig is JSON");
        std::fs::write(folder.path().join("kubeconfig"), config).expect("the kubeconfig can be written");
        Self { folder }
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file for `-f`.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder().join(name);
        std::fs::write(&path, text).expect("the file can be written");
        path.display().to_string()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(args)
            .env("KUBECONFIG", self.folder().join("kubeconfig"))
            .env("HOME", self.folder())
            .env("TMPDIR", self.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn output(&self, args: &[&str]) -> Output {
        let ended = timeout(PATIENCE, self.command(args).output()).await;
        let ended = ended.unwrap_or_else(|_| panic!("kubectl {args:?} did not end"));
        ended.expect("kubectl runs")
    }

    /// Runs a command that succeeds, and answers what it printed.
    pub async fn ok(&self, args: &[&str]) -> String {
        let output = self.output(args).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {error}");
        String::from_utf8(output.stdout).expect("kubectl prints text")
    }

    /// Runs a command that fails, and answers why.
    pub async fn fails(&self, args: &[&str]) -> String {
        let output = self.output(args).await;
        assert!(!output.status.success(), "kubectl {args:?} succeeded");
        String::from_utf8(output.stderr).expect("kubectl prints text")
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
        let replace = format!("sed 's|{old}|{new}|' \"$1\" > \"$1.new\" && mv \"$1.new\" \"$1\"\n");
        self.edit_by(object, &replace).await
    }

    /// Runs `kubectl edit` with a shell script for an editor: `$1` is the file.
    pub async fn edit_by(&self, object: &str, script: &str) -> Output {
        let editor = self.file("editor.sh", script);
        let mut command = self.command(&["edit", object]);
        command.env("EDITOR", format!("sh {editor}"));
        let ended = timeout(PATIENCE, command.output()).await.expect("the edit ends");
        ended.expect("kubectl runs")
    }

    /// Starts a command that goes on, such as a watch.
    pub fn follow(&self, args: &[&str]) -> Following {
        let mut child = self.command(args).spawn().expect("kubectl runs");
        let lines = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
        Following { lines, _child: child }
    }

    /// Runs a command with a text for its standard input.
    pub async fn with_input(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("the input is piped");
        stdin.write_all(input.as_bytes()).await.expect("kubectl reads");
        drop(stdin);
        let ended = timeout(PATIENCE, child.wait_with_output()).await;
        ended.expect("the command ends").expect("kubectl runs")
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
            while let Some(line) = self.lines.next_line().await.expect("kubectl prints text") {
                if line.contains(text) {
                    return line;
                }
            }
            panic!("the command ended before it printed {text:?}");
        };
        timeout(PATIENCE, find)
            .await
            .unwrap_or_else(|_| panic!("{text:?} was not printed"))
    }
}
