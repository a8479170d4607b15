//! Writes a status where it says something new, and nowhere else; of one resource at most once a second, and so many of all:
//! what children go through on their way up is told as it is by then.

use std::{collections::BTreeMap, time::Duration};

use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use skerry_crds::names;
use skerry_workloads::{Applied, Kind, Observed, Plan};
use tokio::time::Instant;

use super::{
    Engine, ResourceKey,
    pass::{Error, at},
    trim,
    turns::Turns,
};

/// The least time between two writes of one status. A Deployment changes half a dozen times within the second in which its
/// pods come up, and a thousand of them would have the API server write as many statuses that nobody has time to read.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// How often statuses are written.
struct Rate {
    /// The least time between two of one resource, in [`PAUSE`]s.
    pauses: u32,
    /// How many of all resources within one [`PAUSE`].
    in_a_pause: u32,
}

/// Of what there is to say of resources and their children. When a thousand come up at once, or a manager takes them over,
/// telling of it takes a tenth of what an API server takes in writes, not all of it from what makes them come up.
const NEWS: Rate = Rate {
    pauses: 1,
    in_a_pause: 100,
};

/// Where a status says no more than that a newer generation was seen: for that nobody waits, and where a program edits a
/// thousand resources again and again, telling of each would take half of what an API server takes in writes.
const GENERATIONS: Rate = Rate {
    pauses: 5,
    in_a_pause: 20,
};

/// How many statuses are on their way at once, on average. The rates above are for an API server with little else to do; one
/// that answers late has much, and telling of a thousand resources is not to keep it from what makes their children.
const AT_ONCE: u32 = 4;

/// Of how many answers the time that they take is told.
const LATELY: u32 = 8;

/// What takes longer tells of an API server that was away, and nothing of how much it takes now that it is back.
const LONGEST_ANSWER: Duration = Duration::from_millis(400);

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    last: BTreeMap<ResourceKey, Last>,
    news: Turns,
    generations: Turns,
    /// How long the API server has lately taken to answer.
    answer: Duration,
}

/// Which fields were last written, and when: it tells a field that another manager owns from one that we own and no longer
/// want.
#[derive(Clone, Debug)]
struct Last {
    /// The names of its fields.
    fields: Vec<String>,
    at: Instant,
}

/// What became of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It said so already.
    Known,
    /// It is written.
    Now,
    /// It is to be written after this time.
    Later(Duration),
}

/// A status that the resource does not have yet.
#[derive(Debug)]
pub(crate) struct News {
    status: Map<String, Value>,
    /// It may be written after this time.
    wait: Duration,
}

impl News {
    /// Whether it may be written now.
    pub(crate) fn has_its_turn(&self) -> bool {
        self.wait.is_zero()
    }
}

/// Computes the status, and tells it where it says something new; it is then given a turn.
pub(crate) fn news<K: Kind>(
    engine: &Engine,
    key: &ResourceKey,
    resource: &K,
    raw: &Value,
    seen: &Observed,
    plan: &Plan,
    applied: &Applied,
) -> Option<News> {
    let status = resource.status(seen, plan, applied, engine.now());
    let Ok(Value::Object(mut status)) = serde_json::to_value(&status) else {
        return None;
    };
    status.retain(|field, value| !value.is_null() && !K::REPORTED.contains(&field.as_str()));
    let last = engine.shared.status_written.last(key);
    let says = |raw: &Value, status: &Map<String, Value>| {
        let fields = last.as_ref().map(|last| last.fields.as_slice());
        says(raw, status, fields, K::REPORTED)
    };
    (!says(raw, &status)).then(|| {
        let only_generations = says(&raw_without_generations(raw), &without_generations(&status));
        let written = &engine.shared.status_written;
        let wait = written.wait(key, only_generations, engine.shared.parts.pace.status);
        News { status, wait }
    })
}

/// Writes what is new of the resource that was seen as `raw`, once it is its turn.
pub(crate) async fn write(engine: &Engine, key: &ResourceKey, raw: &Value, news: Option<News>) -> Result<Told, Error> {
    let written = &engine.shared.status_written;
    let Some(news) = news else {
        written.settled(key);
        return Ok(Told::Known);
    };
    if !news.has_its_turn() {
        return Ok(Told::Later(news.wait));
    }
    let (namespace, name) = (key.namespace.as_str(), key.name.as_str());
    let api = engine.objects(key.kind, namespace);
    let body = json!({
        "apiVersion": key.kind.api_version(),
        "kind": key.kind.kind,
        // The uid keeps this status off a resource that was deleted and made anew under the name, the version off one that
        // has moved on: a status tells of what was seen, and what was recorded meanwhile must not be undone.
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": raw.pointer("/metadata/uid"),
            "resourceVersion": raw.pointer("/metadata/resourceVersion"),
        },
        "status": news.status,
    });
    let how = PatchParams::apply(names::MANAGER_STATUS).force();
    let asked = Instant::now();
    let answer = api.patch_status(name, &how, &Patch::Apply(&body)).await;
    written.answered(asked.elapsed());
    match answer {
        Ok(object) => {
            written.record(key, news.status.into_iter().map(|(field, _)| field).collect());
            engine.learn(key.kind, &trim::trim(key.kind, object), false);
            Ok(Told::Now)
        }
        // The resource is gone. (After a conflict the next pass knows whether another one has its name by now.)
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Told::Known),
        Err(error) => Err(at("writing the status")(error)),
    }
}

impl Written {
    /// Forgets a resource that is gone.
    pub(crate) fn forget(&self, key: &ResourceKey) {
        self.settled(key);
        self.0.lock().last.remove(key);
    }

    fn last(&self, key: &ResourceKey) -> Option<Last> {
        self.0.lock().last.get(key).cloned()
    }

    /// When a resource is to be looked at of which nothing but the status of something has changed: once its own may be
    /// written again, and within a pause, for more may follow from it than a status.
    pub(crate) fn next(&self, key: &ResourceKey, pause: Duration) -> Instant {
        let books = self.0.lock();
        let now = Instant::now();
        let turns = [&books.news, &books.generations];
        let turn = turns.into_iter().filter_map(|turns| turns.of(key)).min();
        let again = books.last.get(key).map(|last| last.at + pause);
        turn.or(again).map_or(now, |at| at.min(now + pause))
    }

    /// How long it is until this status may be written.
    fn wait(&self, key: &ResourceKey, only_generations: bool, pause: Duration) -> Duration {
        let rate = if only_generations { GENERATIONS } else { NEWS };
        let apart = pause * rate.pauses;
        let since_last = self.last(key).map_or(apart, |last| last.at.elapsed());
        match apart.saturating_sub(since_last) {
            Duration::ZERO => self.turn(key, !only_generations, pause / rate.in_a_pause),
            left => left,
        }
    }

    /// How long it is to a resource's turn, which is `apart` from that of any other, or more where answers take long.
    fn turn(&self, key: &ResourceKey, is_news: bool, apart: Duration) -> Duration {
        let mut books = self.0.lock();
        let apart = apart.max(books.answer / AT_ONCE);
        let turns = if is_news {
            &mut books.news
        } else {
            &mut books.generations
        };
        turns.wait(key, apart)
    }

    /// The API server took so long to answer.
    fn answered(&self, time: Duration) {
        let mut books = self.0.lock();
        books.answer = (books.answer * (LATELY - 1) + time.min(LONGEST_ANSWER)) / LATELY;
    }

    /// There is nothing to be told of this resource.
    fn settled(&self, key: &ResourceKey) {
        let mut books = self.0.lock();
        books.news.over(key);
        books.generations.over(key);
    }

    /// These fields are written now.
    fn record(&self, key: &ResourceKey, fields: Vec<String>) {
        self.settled(key);
        let at = Instant::now();
        self.0.lock().last.insert(key.clone(), Last { fields, at });
    }
}

/// Whether the resource's status already says `wanted`: all of it, and nothing of ours beyond it.
fn says(raw: &Value, wanted: &Map<String, Value>, written: Option<&[String]>, reported: &[&str]) -> bool {
    let empty = Map::new();
    let current = raw.get("status").and_then(Value::as_object).unwrap_or(&empty);
    let all_there = wanted.iter().all(|(key, value)| current.get(key) == Some(value));
    let ours = |key: &String| !reported.contains(&key.as_str()) && !wanted.contains_key(key);
    // Before this process has written anything it cannot know whose the extra fields are: it then writes once.
    let nothing_else = match written {
        Some(written) => !current.keys().any(|key| ours(key) && written.contains(key)),
        None => !current.keys().any(ours),
    };
    all_there && nothing_else
}

/// The field of a status, and of a condition, that names the generation that it is about.
const GENERATION: &str = "observedGeneration";

/// A resource's status, as much of it as is compared, without the generations that it is about.
fn raw_without_generations(raw: &Value) -> Value {
    let status = raw.get("status").and_then(Value::as_object).map(without_generations);
    json!({"status": status.unwrap_or_default()})
}

fn without_generations(status: &Map<String, Value>) -> Map<String, Value> {
    let mut status = status.clone();
    status.remove(GENERATION);
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove(GENERATION);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ObjectKind;

    fn key(name: &str) -> ResourceKey {
        ResourceKey {
            kind: ObjectKind::MODEL,
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_nodes_report_and_what_others_own_is_left_alone() {
        let raw = json!({"status": {"active": 1, "metrics": [{"key": "a"}], "theirs": true}});
        let wanted = map(&json!({"active": 1}));
        assert!(
            !says(&raw, &wanted, None, &["metrics"]),
            "the extra field may be ours of an earlier process"
        );
        let written = ["active".to_owned()];
        assert!(says(&raw, &wanted, Some(&written), &["metrics"]));
        assert!(!says(&raw, &map(&json!({"active": 2})), Some(&written), &["metrics"]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_answers_late_is_told_less_often() {
        const APART: Duration = Duration::from_millis(10);
        let apart = |written: &Written| {
            let first = written.turn(&key("first"), true, APART);
            let apart = written.turn(&key("second"), true, APART).saturating_sub(first);
            written.settled(&key("first"));
            written.settled(&key("second"));
            apart
        };
        let written = Written::default();
        assert_eq!(apart(&written), APART);
        let answered = |time| (0..100).for_each(|_| written.answered(time));
        answered(APART * AT_ONCE / 2);
        assert_eq!(apart(&written), APART, "four at once are fine");
        answered(APART * AT_ONCE * 5);
        assert!(apart(&written) > APART * 4, "{:?}", apart(&written));
        answered(Duration::from_secs(60));
        assert!(apart(&written) <= LONGEST_ANSWER / AT_ONCE, "{:?}", apart(&written));
        answered(Duration::ZERO);
        assert_eq!(apart(&written), APART);
    }

    #[tokio::test(start_paused = true)]
    async fn statuses_that_follow_each_other_are_looked_at_together_and_soon() {
        const PAUSE: Duration = Duration::from_secs(1);
        let written = Written::default();
        let wait = |name: &str| written.next(&key(name), PAUSE) - Instant::now();
        assert_eq!(wait("new"), Duration::ZERO, "nothing was told of it yet");
        written.record(&key("told"), vec![]);
        tokio::time::advance(PAUSE / 4).await;
        assert_eq!(wait("told"), PAUSE * 3 / 4);
        tokio::time::advance(PAUSE).await;
        assert_eq!(wait("told"), Duration::ZERO);
        for (name, waits) in [("first", Duration::ZERO), ("second", PAUSE / 2), ("last", PAUSE)] {
            written.turn(&key(name), true, PAUSE / 2);
            assert_eq!(wait(name), waits, "{name}: not before its turn");
        }
        written.turn(&key("beyond"), true, PAUSE / 2);
        assert_eq!(wait("beyond"), PAUSE, "not only its own status may follow");
    }

    #[test]
    fn a_field_that_we_no_longer_want_is_taken_back() {
        let raw = json!({"status": {"active": 1, "failed": 1}});
        let written = ["active".to_owned(), "failed".to_owned()];
        assert!(!says(&raw, &map(&json!({"active": 1})), Some(&written), &[]));
    }
}
