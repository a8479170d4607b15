//! Probes of a running container: startup first, then readiness and liveness beside each other.

use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::process::Run;

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Startup,
    Readiness,
    Liveness,
}

impl Purpose {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) purpose: Purpose,
    /// Why an attempt failed.
    pub(super) failure: Option<String>,
    /// The verdict, if this attempt made one: so many successes or failures in a row.
    pub(super) verdict: Option<bool>,
}

/// A container that is probed.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) container: Container,
    /// The pod's address.
    pub(super) ip: String,
    /// How it was started: probes that run a command do so in the same place.
    pub(super) run: Run,
}

impl Subject {
    /// Probes until the receiver is gone.
    pub(super) async fn probe(self, findings: mpsc::Sender<Finding>) {
        if let Some(probe) = &self.container.startup_probe
            && !self.until_started(probe, &findings).await
        {
            return;
        }
        let run = |purpose, probe: &Option<Probe>| {
            let (probe, findings) = (probe.clone(), findings.clone());
            let subject = &self;
            async move {
                if let Some(probe) = probe {
                    subject.repeat(purpose, &probe, &findings).await;
                }
            }
        };
        tokio::join!(
            run(Purpose::Readiness, &self.container.readiness_probe),
            run(Purpose::Liveness, &self.container.liveness_probe)
        );
    }

    /// Whether the container has started: false if the receiver is gone.
    async fn until_started(&self, probe: &Probe, findings: &mpsc::Sender<Finding>) -> bool {
        let mut counter = Counter::new(Purpose::Startup, probe);
        tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
        loop {
            let finding = counter.count(self.attempt(probe).await);
            let started = finding.verdict == Some(true);
            if findings.send(finding).await.is_err() {
                return false;
            }
            if started {
                return true;
            }
            tokio::time::sleep(seconds(probe.period_seconds, 10)).await;
        }
    }

    async fn repeat(&self, purpose: Purpose, probe: &Probe, findings: &mpsc::Sender<Finding>) {
        let mut counter = Counter::new(purpose, probe);
        tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
        while findings.send(counter.count(self.attempt(probe).await)).await.is_ok() {
            tokio::time::sleep(seconds(probe.period_seconds, 10)).await;
        }
    }

    async fn attempt(&self, probe: &Probe) -> Result<(), String> {
        let limit = seconds(probe.timeout_seconds, 1);
        let attempt = async {
            if let Some(exec) = &probe.exec {
                return self.exec(exec.command.as_deref().unwrap_or_default()).await;
            }
            if let Some(http) = &probe.http_get {
                return self.http(http).await;
            }
            if let Some(tcp) = &probe.tcp_socket {
                let host = tcp.host.as_deref().unwrap_or(&self.ip);
                return self.connect(host, &tcp.port).await.map(drop);
            }
            Err("the sandbox does exec, httpGet and tcpSocket probes only".to_owned())
        };
        tokio::time::timeout(limit, attempt)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {}s", limit.as_secs())))
    }

    async fn exec(&self, command: &[String]) -> Result<(), String> {
        let (program, arguments) = command.split_first().ok_or("exec: the command is empty")?;
        let output = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(self.run.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.run.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(String::from_utf8_lossy(&said).trim_end().to_owned())
    }

    async fn connect(&self, host: &str, port: &IntOrString) -> Result<TcpStream, String> {
        let port = self.port(port)?;
        TcpStream::connect((host, port))
            .await
            .map_err(|error| format!("dial tcp {host}:{port}: {error}"))
    }

    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports
                    .find(|port| port.name.as_ref() == Some(name))
                    .map(|port| port.container_port);
                named.or_else(|| name.parse().ok())
            }
        };
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.ok_or_else(|| format!("the container has no port {port:?}"))
    }

    async fn http(&self, get: &HTTPGetAction) -> Result<(), String> {
        if get.scheme.as_deref() == Some("HTTPS") {
            return Err("the sandbox does not do httpGet probes over HTTPS".to_owned());
        }
        let host = get.host.as_deref().unwrap_or(&self.ip);
        let mut stream = self.connect(host, &get.port).await?;
        let path = get.path.as_deref().unwrap_or("/");
        let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nUser-Agent: kube-probe/1.33\r\n");
        let headers = get.http_headers.as_deref().unwrap_or_default();
        if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
            request.extend(["Host: ", host, "\r\n"]);
        }
        for header in headers {
            request.extend([&header.name, ": ", &header.value, "\r\n"]);
        }
        request.push_str("\r\n");
        let failed = |error: std::io::Error| format!("Get \"http://{host}{path}\": {error}");
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        // The status line is all that counts.
        let mut head = [0; 64];
        let mut read = 0;
        while let Some(rest) = head.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match stream.read(rest).await.map_err(failed)? {
                0 => break,
                more => read += more,
            }
        }
        let line = String::from_utf8_lossy(head.get(..read).unwrap_or_default()).into_owned();
        let code: u16 = line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or("the answer is not HTTP")?;
        if (200..400).contains(&code) {
            Ok(())
        } else {
            Err(format!("HTTP probe failed with statuscode: {code}"))
        }
    }
}

/// Successes and failures in a row.
struct Counter {
    purpose: Purpose,
    successes_needed: i32,
    failures_needed: i32,
    successes: i32,
    failures: i32,
}

impl Counter {
    fn new(purpose: Purpose, probe: &Probe) -> Self {
        Self {
            purpose,
            successes_needed: probe.success_threshold.unwrap_or(1).max(1),
            failures_needed: probe.failure_threshold.unwrap_or(3).max(1),
            successes: 0,
            failures: 0,
        }
    }

    fn count(&mut self, attempt: Result<(), String>) -> Finding {
        let failure = attempt.err();
        if failure.is_none() {
            (self.successes, self.failures) = (self.successes.saturating_add(1), 0);
        } else {
            (self.successes, self.failures) = (0, self.failures.saturating_add(1));
        }
        let verdict = match () {
            () if self.successes >= self.successes_needed => Some(true),
            () if self.failures >= self.failures_needed => Some(false),
            () => None,
        };
        Finding {
            purpose: self.purpose,
            failure,
            verdict,
        }
    }
}

fn seconds(given: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(given.and_then(|given| u64::try_from(given).ok()).unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;

    fn subject(ports: &Value) -> Subject {
        let container = serde_json::from_value(json!({"name": "c", "ports": ports})).unwrap();
        let env = vec![
            ("PATH".to_owned(), std::env::var("PATH").unwrap()),
            ("CODE".to_owned(), "3".to_owned()),
        ];
        let run = Run {
            command: vec![],
            env,
            folder: "/".into(),
            log: "/dev/null".into(),
        };
        Subject {
            container,
            ip: "127.0.0.1".to_owned(),
            run,
        }
    }

    async fn attempt(subject: &Subject, probe: Value) -> Result<(), String> {
        subject.attempt(&serde_json::from_value(probe).unwrap()).await
    }

    async fn http_server(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                if read == 0 {
                    continue; // a probe that only connects
                }
                assert!(String::from_utf8_lossy(&request[..read]).starts_with("GET /healthz HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        port
    }

    #[tokio::test]
    async fn commands_connections_and_requests() {
        let shell = |script: &str| json!({"exec": {"command": ["/bin/sh", "-c", script]}});
        let subject_without = subject(&json!([]));
        assert_eq!(attempt(&subject_without, shell("true")).await, Ok(()));
        assert_eq!(
            attempt(&subject_without, shell("echo no $CODE; exit $CODE")).await,
            Err("no 3".to_owned())
        );
        let port = http_server("HTTP/1.1 204 No Content\r\n\r\n").await;
        let named = subject(&json!([{"name": "web", "containerPort": port}]));
        assert_eq!(attempt(&named, json!({"tcpSocket": {"port": "web"}})).await, Ok(()));
        assert_eq!(
            attempt(&named, json!({"httpGet": {"port": "web", "path": "/healthz"}})).await,
            Ok(())
        );
        let failing = http_server("HTTP/1.1 503 Busy\r\n\r\n").await;
        let refused = attempt(&named, json!({"httpGet": {"port": failing, "path": "/healthz"}})).await;
        assert_eq!(refused, Err("HTTP probe failed with statuscode: 503".to_owned()));
        // Bound, so that nobody else can listen there.
        let silent = tokio::net::TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = silent.local_addr().unwrap();
        let closed = json!({"tcpSocket": {"port": address.port()}});
        let closed = attempt(&named, closed).await.unwrap_err();
        assert!(closed.starts_with(&format!("dial tcp {address}: ")), "{closed}");
        assert!(
            attempt(&named, json!({"tcpSocket": {"port": "nope"}}))
                .await
                .unwrap_err()
                .contains("no port")
        );
        let slow = json!({"exec": {"command": ["/bin/sh", "-c", "exec sleep 60"]}, "timeoutSeconds": 1});
        assert_eq!(attempt(&named, slow).await, Err("no answer within 1s".to_owned()));
    }

    #[test]
    fn verdicts_need_so_many_in_a_row() {
        let probe = serde_json::from_value(json!({"successThreshold": 2, "failureThreshold": 3})).unwrap();
        let mut counter = Counter::new(Purpose::Readiness, &probe);
        let no = || Err("no".to_owned());
        let attempts = [Ok(()), no(), Ok(()), Ok(()), no(), no(), no(), Ok(())];
        let verdicts: Vec<_> = attempts
            .into_iter()
            .map(|attempt| counter.count(attempt).verdict)
            .collect();
        assert_eq!(verdicts, [None, None, None, Some(true), None, None, Some(false), None]);
    }
}
