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
async fn one_that_answers_late_is_told_all_of_a_large_set() {
    let (cluster, dialer) = world(OldAgents::default()).await;
    for number in 0..100 {
        let spec = json!({"url": format!("/var/{number}.txt"), "format": "txt", "nodeName": NODE});
        cluster.create(&object("Dataset", &format!("d{number}"), &spec)).await;
    }
    settle().await;
    let mut lc = SednaLc::connect(&dialer).await;
    let read = async {
        while lc.held.len() < 103 || cluster.hub.snapshot().unacked > 0 {
            match lc.wire.next().await {
                Some(Ok(Message::Text(text))) => lc.take(&text),
                // Its library answers a ping once it reads on.
                Some(Ok(Message::Ping(_))) => sleep(Duration::from_secs(2)).await,
                other => panic!("{other:?}, with {} of 103", lc.held.len()),
            }
        }
    };
    // Two messages for each.
    let enough = Duration::from_secs(103 * 2 * 3);
    timeout(enough, read).await.expect("it is told all in time");
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
    let mut lc = SednaLc::up_to_date(&dialer).await;
    lc.settle().await;
    // One message is more than fits on the way to it: a second one would wait for the first to be read, and not be written.
    let large = json!({"large": "x".repeat(100_000)});
    let edit = json!({"spec": {"edgeWorker": {"template": {"metadata": {"annotations": large}}}}});
    cluster.edit(&service(), &edit).await;
    sleep(Duration::from_secs(5)).await;
    assert!(cluster.hub.snapshot().unacked > 0, "it is being written");
    let began = Instant::now();
    cluster.hub.shut_down().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}
