//! How fast it is told.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_it_has_not_read_is_not_followed_by_more() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let mut lc = SednaLc::up_to_date(&dialer).await;
    lc.settle().await;
    // It stands still, or the way to it does: then it would find all of these at once.
    for number in 0..5 {
        let url = format!("/var/{number}.txt");
        cluster.edit(&dataset(), &json!({"spec": {"url": url}})).await;
        sleep(Duration::from_secs(2)).await;
    }
    let unacked = cluster.hub.snapshot().unacked;
    assert!(unacked > 0, "written is not read");
    lc.last = None;
    lc.until("the last edit is there", |lc| {
        lc.held
            .get(DATASET)
            .is_some_and(|held| held["spec"]["url"] == "/var/4.txt")
    })
    .await;
    lc.settle().await;
    assert_eq!(cluster.hub.snapshot().unacked, 0);
}

#[tokio::test(start_paused = true)]
async fn two_of_a_name_do_not_take_turns_as_fast_as_they_can() {
    let (_cluster, dialer) = world(OldAgents::default()).await;
    let mut first = SednaLc::up_to_date(&dialer).await;
    let again = SednaLc::dial(&dialer, NODE, Held::new()).await.map(drop);
    assert_eq!(
        again,
        Err(503),
        "it dials again in 5 s where it is sent away, and at once where it is let in"
    );
    sleep(Duration::from_secs(5)).await;
    let mut second = SednaLc::connect(&dialer).await;
    first.ended().await;
    let again = SednaLc::dial(&dialer, NODE, Held::new()).await.map(drop);
    assert_eq!(again, Err(503), "nor is it let in for having been there before");
    second.until("all is there", |lc| lc.held.len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_read_holds_up_no_stop() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    let _lc = SednaLc::connect(&dialer).await;
    // More than fits on the way to it.
    for number in 0..3 {
        let spec = json!({"url": format!("/{}", "x".repeat(100_000)), "format": "txt", "nodeName": NODE});
        cluster
            .create(&object("Dataset", &format!("large-{number}"), &spec))
            .await;
    }
    sleep(Duration::from_secs(5)).await;
    let began = Instant::now();
    cluster.hub.shut_down().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}
