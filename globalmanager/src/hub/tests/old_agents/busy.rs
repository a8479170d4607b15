//! A resource of which more is said than is taken.

use skerry_edge::sedna::agent::PATIENCE;
use skerry_sandbox::api::{Fault, Match};

use super::*;

async fn say_round(lc: &mut SednaLc, number: u32) {
    let info = json!({"currentRound": number, "sampleCount": 9, "startTime": "t", "updateTime": "u"});
    let status = json!({"phase": "train", "status": "running", "output": {"models": null, "ownerInfo": info}});
    lc.report("federatedlearningjob", "job", &status).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_holds_up_what_is_said_of_others_for_a_minute_only() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::up_to_date(&dialer).await;
    let writes = Match::writes().resource("federatedlearningjobs").subresource("status");
    cluster.api.faults().inject(writes, Fault::InternalError);
    for number in 1..=150 {
        say_round(&mut lc, number).await;
    }
    lc.report("dataset", "d", &json!({"numberOfSamples": 9})).await;
    sleep(PATIENCE / 2).await;
    let counted = async || cluster.status(&dataset()).await["numberOfSamples"].clone();
    assert_eq!(counted().await, Value::Null, "the rounds are waited for");
    sleep(PATIENCE).await;
    assert_eq!(counted().await, 9);
    let given_up = cluster.hub.snapshot().reports_given_up;
    assert!((1..150).contains(&given_up), "{given_up}");

    lc.report("dataset", "d", &json!({"numberOfSamples": 10})).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(counted().await, 10, "from then on nothing holds it up");
    cluster.api.faults().clear();
    lc.settle().await;
    let told = cluster.status(&job()).await;
    let last = told["rounds"].as_array().and_then(|rounds| rounds.last().cloned());
    assert_eq!(last.unwrap()["round"], 150, "the newest were kept");
}

#[tokio::test(start_paused = true)]
async fn of_a_burst_of_a_thousand_rounds_none_is_given_up() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::up_to_date(&dialer).await;
    let accepted = cluster.hub.snapshot().reports_accepted;
    for number in 1..=1_000 {
        say_round(&mut lc, number).await;
    }
    lc.settle().await;
    let snapshot = cluster.hub.snapshot();
    assert_eq!(
        (snapshot.reports_accepted - accepted, snapshot.reports_given_up),
        (1_000, 0)
    );
}
