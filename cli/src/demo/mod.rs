//! `skerry demo`: the main job, from nothing to healed, on loopback.
//!
//! It starts a sandbox with a cloud and two edge nodes, applies the examples, edits them and breaks them, and ends well
//! only if all that should follow was seen through the API, as a user would see it.

mod observe;
mod script;
mod timeline;

use std::time::Duration;

use crate::{
    failure::{Failure, print},
    signals,
    stack::{Options, Stack},
};

/// How the demo runs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave everything running at the end, to try by hand
    #[arg(long)]
    keep: bool,
    /// Print lines instead of live progress
    #[arg(long)]
    plain: bool,
}

/// What the demo promises to stay under.
const PROMISE: Duration = Duration::from_secs(90);

/// Runs the demo to its end.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let stop = signals::stop()?;
    let mut timeline = timeline::Timeline::start(args.plain);
    let mut stack = Stack::start(Options::new("demo")).await?;
    let played = tokio::select! {
        played = script::play(&mut stack, &mut timeline) => played,
        () = stop.cancelled() => Err(Failure::new("the demo was interrupted", "run it again to see the rest")),
    };
    timeline.finish()?;
    if played.is_ok() && args.keep {
        print(&format!(
            "Everything goes on running; Ctrl-C ends it. In another shell:\n\n    export KUBECONFIG={}\n    kubectl get ji,fl,pods -o wide\n",
            stack.kubeconfig().display()
        ))?;
        stop.cancelled().await;
    } else if played.is_err() {
        print(&format!("\nThe logs of the parts are in {}\n", stack.logs().display()))?;
    }
    let took = timeline.elapsed();
    stack.shutdown().await;
    played?;
    print(&format!("All of it was observed, in {:.0} s.\n", took.as_secs_f64()))?;
    if took > PROMISE && !args.keep {
        print(&format!(
            "That is longer than the promised {} s; is the machine busy?\n",
            PROMISE.as_secs()
        ))?;
    }
    Ok(())
}
