//! What is started next and when, on paused time.

use serde_json::{Value, json};

use super::*;

const FIRST: Duration = Duration::from_secs(10);

fn pod(policy: &str, init: &[&str], containers: &[&str]) -> Pod {
    let list = |names: &[&str]| {
        names
            .iter()
            .map(|name| json!({"name": name, "image": "i"}))
            .collect::<Vec<Value>>()
    };
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"restartPolicy": policy, "initContainers": list(init), "containers": list(containers)},
    }))
    .unwrap()
}

fn time() -> Time {
    Time("2026-01-01T00:00:00Z".parse().unwrap())
}

impl Slots {
    fn start(&mut self, index: usize, now: Instant) {
        let slot = &mut self.slots[index];
        slot.runs += 1;
        (slot.ready, slot.started) = (true, true);
        slot.state = State::Running {
            id: format!("{index}-{}", slot.runs),
            since: time(),
            at: now,
        };
    }

    fn end(&mut self, index: usize, code: i32, now: Instant, ran: Duration) {
        let id = format!("{index}-{}", self.slots[index].runs);
        let (started, finished) = (time(), time());
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.slots[index].state = State::Ended(Ended {
            id,
            code,
            reason,
            message: None,
            started,
            finished,
            at: now,
            ran,
        });
    }
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_one_after_the_other_before_the_others() {
    let (pod, now) = (pod("Always", &["a", "b"], &["x", "y"]), Instant::now());
    let mut slots = Slots::new(&pod, FIRST);
    for index in [0, 1] {
        assert_eq!(slots.next(&pod, now), Next::Start(index));
        slots.start(index, now);
        assert_eq!(slots.next(&pod, now), Next::Wait(None));
        slots.end(index, 0, now, Duration::ZERO);
    }
    assert_eq!(slots.next(&pod, now), Next::Start(2));
    slots.start(2, now);
    assert_eq!(slots.next(&pod, now), Next::Start(3));
    slots.start(3, now);
    assert_eq!(slots.next(&pod, now), Next::Wait(None));
    let (init, others) = slots.statuses();
    assert!(init.iter().chain(&others).all(|status| status.ready));
}

#[tokio::test(start_paused = true)]
async fn failures_wait_twice_as_long_each_time() {
    let (pod, now) = (pod("Always", &[], &["x"]), Instant::now());
    let mut slots = Slots::new(&pod, FIRST);
    let mut waits = vec![];
    for _ in 0..8 {
        slots.start(0, now);
        slots.end(0, 1, now, Duration::ZERO);
        match slots.next(&pod, now) {
            Next::Start(0) => waits.push(0),
            // Told once, then waited for.
            Next::BackOff(0) => match slots.next(&pod, now) {
                Next::Wait(Some(until)) => waits.push((until - now).as_secs()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
    let status = &slots.statuses().1[0];
    let waiting = status.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(status.restart_count, 7);
    assert_eq!(
        status
            .last_state
            .as_ref()
            .unwrap()
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        1
    );
    slots.start(0, now);
    slots.end(0, 1, now, RECOVERED);
    assert_eq!(slots.next(&pod, now), Next::Start(0), "who ran well begins anew");
}

#[tokio::test(start_paused = true)]
async fn the_message_says_how_long_it_waits() {
    let (pod, now) = (pod("Always", &[], &["x"]), Instant::now());
    let mut slots = Slots::new(&pod, FIRST);
    for _ in 0..2 {
        slots.start(0, now);
        slots.end(0, 1, now, Duration::ZERO);
        slots.next(&pod, now);
    }
    let State::Waiting { message, .. } = &slots.slots[0].state else {
        panic!()
    };
    assert_eq!(
        message.as_deref(),
        Some("back-off 10s restarting failed container=x pod=p_ns(u)")
    );
}

#[tokio::test(start_paused = true)]
async fn the_restart_policy_decides() {
    let now = Instant::now();
    for (policy, code, again) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 0, false),
        ("Never", 1, false),
    ] {
        let pod = pod(policy, &[], &["x"]);
        let mut slots = Slots::new(&pod, FIRST);
        slots.start(0, now);
        slots.end(0, code, now, Duration::ZERO);
        let expected = if again { Next::Start(0) } else { Next::Wait(None) };
        assert_eq!(slots.next(&pod, now), expected, "{policy} {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_init_container_is_tried_again_unless_never() {
    let now = Instant::now();
    for (policy, expected) in [("Always", Next::Start(0)), ("Never", Next::Wait(None))] {
        let pod = pod(policy, &["a"], &["x"]);
        let mut slots = Slots::new(&pod, FIRST);
        slots.start(0, now);
        slots.end(0, 1, now, Duration::ZERO);
        assert_eq!(slots.next(&pod, now), expected);
    }
}
