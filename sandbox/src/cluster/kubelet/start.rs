//! What a container needs before it can start, and what its pod's status and events say while it is missing.

use std::time::Duration;

use tokio::time::Instant;

use super::super::clock::Times;
use super::compose::compose;
use super::env::{Addresses, Sources, environment};
use super::launch::{RunId, launch};
use super::probe::Subject;
use super::process::Run;
use super::rewrite::Surroundings;
use super::slots::{Ended, State};
use super::volumes::{mount_paths, prepare};
use super::worker::Worker;

/// How long after a missing Secret or volume the next try comes.
const RETRY: Duration = Duration::from_secs(2);

/// The longest wait before an image is looked for again is so many times the first.
const LONGEST: u32 = 30;

/// Why a container is not started now.
struct Hold {
    /// The reason in its status; as before where absent.
    reason: Option<&'static str>,
    message: String,
    wait: Duration,
}

impl Worker {
    /// Starts a container, or says why not and when it is tried again.
    pub(super) async fn start(&mut self, index: usize) {
        let run = match self.ready_to_run(index).await {
            Ok(run) => run,
            Err(hold) => return self.hold(index, hold),
        };
        let Some(slot) = self.slots.slots.get_mut(index) else {
            return;
        };
        slot.runs = slot.runs.saturating_add(1);
        let of = RunId {
            slot: index,
            run: slot.runs,
        };
        let run = Run {
            log: self.site.logs(&self.pod).file(&slot.container.name, of.run),
            ..run
        };
        let (container, name) = (slot.container.clone(), slot.container.name.clone());
        let id = format!("{}.{name}.{}", super::super::meta::uid(self.pod.as_ref()), of.run);
        slot.ready = container.readiness_probe.is_none();
        slot.started = container.startup_probe.is_none();
        let (since, at) = (self.site.clock.time(), Instant::now());
        let program = run.command.first().cloned().unwrap_or_default();
        let subject = Subject {
            container,
            ip: self.address.to_string(),
            run,
        };
        match launch(subject, of, self.site.clock, &self.sender) {
            Ok(launched) => {
                self.launched.insert(index, launched);
                slot.state = State::Running { id, since, at };
                self.site.say(
                    &self.pod,
                    Some(&name),
                    false,
                    "Created",
                    format!("Created container: {name}"),
                );
                self.site.say(
                    &self.pod,
                    Some(&name),
                    false,
                    "Started",
                    format!("Started container {name}"),
                );
            }
            Err(error) => {
                let message = format!("exec: \"{program}\": {error}");
                self.site
                    .say(&self.pod, Some(&name), true, "Failed", format!("Error: {message}"));
                slot.state = State::Ended(Ended {
                    id,
                    code: 128,
                    reason: "StartError",
                    message: Some(message),
                    started: since.clone(),
                    finished: since,
                    at,
                    ran: Duration::ZERO,
                });
            }
        }
    }

    fn hold(&mut self, index: usize, hold: Hold) {
        let Some(slot) = self.slots.slots.get_mut(index) else {
            return;
        };
        let State::Waiting {
            reason: before,
            message,
            ..
        } = &slot.state
        else {
            return;
        };
        let reason = hold.reason.unwrap_or(before);
        let message = if hold.reason.is_some() {
            Some(hold.message)
        } else {
            message.clone()
        };
        slot.state = State::Waiting {
            reason,
            message,
            until: Some(Instant::now() + hold.wait),
        };
    }

    async fn ready_to_run(&mut self, index: usize) -> Result<Run, Hold> {
        let sources = self.site.sources(&self.pod).await;
        if !self.prepared {
            self.prepare_volumes(sources.clone()).await?;
        }
        let Some(slot) = self.slots.slots.get(index) else {
            return Err(Hold {
                reason: None,
                message: String::new(),
                wait: RETRY,
            });
        };
        if slot.init && slot.container.restart_policy.as_deref() == Some("Always") {
            let message = "the sandbox does not run init containers with restartPolicy Always".to_owned();
            return Err(Hold {
                reason: Some("CreateContainerConfigError"),
                message,
                wait: self.site.back_off * LONGEST,
            });
        }
        let name = slot.container.image.clone().unwrap_or_default();
        let Some(image) = self.site.images.get(&name) else {
            return Err(self.image_missing(index, &name));
        };
        let container = &slot.container;
        let message = format!("Container image \"{name}\" already present on machine");
        self.site
            .say(&self.pod, Some(&container.name), false, "Pulled", message);
        if container.lifecycle.is_some() {
            let message = "the sandbox runs no lifecycle hooks".to_owned();
            self.site
                .say(&self.pod, Some(&container.name), true, "HooksIgnored", message);
        }
        let addresses = Addresses {
            pod: self.address.to_string(),
            host: self.site.address.to_string(),
        };
        let variables = environment(&self.pod, container, &sources, &addresses).map_err(|error| {
            self.site.say(
                &self.pod,
                Some(&container.name),
                true,
                "Failed",
                format!("Error: {error}"),
            );
            Hold {
                reason: Some("CreateContainerConfigError"),
                message: error.to_string(),
                wait: RETRY,
            }
        })?;
        let surroundings = Surroundings {
            services: self.site.known(|known| known.services.clone()),
            mounts: mount_paths(container),
            root: self.site.folders(&self.pod).root(&container.name),
            local_controller: self.site.local_controller.clone(),
            pod_ip: addresses.pod,
        };
        let log = std::path::PathBuf::new();
        Ok(compose(
            &self.pod,
            container,
            image,
            variables,
            &surroundings,
            &self.site.machine,
            log,
        ))
    }

    async fn prepare_volumes(&mut self, sources: Sources) -> Result<(), Hold> {
        let (pod, folders) = (self.pod.clone(), self.site.folders(&self.pod));
        let made = tokio::task::spawn_blocking(move || prepare(&pod, &sources, &folders)).await;
        let message = match made {
            Ok(Ok(())) => {
                self.prepared = true;
                return Ok(());
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.site.say(
            &self.pod,
            None,
            true,
            "FailedMount",
            format!("MountVolume.SetUp failed: {message}"),
        );
        Err(Hold {
            reason: None,
            message,
            wait: RETRY,
        })
    }

    /// An image that the sandbox does not know: a failed pull, then the back-off, and so on.
    fn image_missing(&self, index: usize, image: &str) -> Hold {
        let slot = self.slots.slots.get(index);
        let container = slot.map(|slot| slot.container.name.as_str());
        let say = |reason, message| self.site.say(&self.pod, container, true, reason, message);
        let never = slot.is_some_and(|slot| slot.container.image_pull_policy.as_deref() == Some("Never"));
        if never {
            let message = format!("Container image \"{image}\" is not present with pull policy of Never");
            say("ErrImageNeverPull", message.clone());
            return Hold {
                reason: Some("ErrImageNeverPull"),
                message,
                wait: self.site.back_off * LONGEST,
            };
        }
        let failed =
            format!("the sandbox knows no image \"{image}\"; name its command in the file given with --images");
        let pulled = slot.is_some_and(|slot| {
            matches!(
                slot.state,
                State::Waiting {
                    reason: "ErrImagePull",
                    ..
                }
            )
        });
        if pulled {
            let message = format!("Back-off pulling image \"{image}\"");
            say("BackOff", message.clone());
            say("Failed", "Error: ImagePullBackOff".to_owned());
            let message = format!("{message}: ErrImagePull: {failed}");
            return Hold {
                reason: Some("ImagePullBackOff"),
                message,
                wait: self.site.back_off * LONGEST,
            };
        }
        say("Failed", format!("Failed to pull image \"{image}\": {failed}"));
        say("Failed", "Error: ErrImagePull".to_owned());
        Hold {
            reason: Some("ErrImagePull"),
            message: failed,
            wait: self.site.back_off,
        }
    }
}
