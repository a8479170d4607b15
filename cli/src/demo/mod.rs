//! `skerry demo`: the main job, from nothing to healed, on loopback.
//!
//! It starts a sandbox with a cloud and two edge nodes, applies the examples, edits them and breaks them, and ends well
//! only if all that should follow was seen through the API, as a user would see it.

mod figures;
mod observe;
mod script;
mod timeline;

use std::time::Duration;

use crate::{
    failure::{Failure, print},
    signals,
    stack::Stack,
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
    let interrupted = || Failure::new("the demo was interrupted", "run it again to see the rest");
    let mut timeline = timeline::Timeline::start(args.plain);
    let starting = Box::pin(script::start(&mut timeline));
    let mut stack = stop.run_until_cancelled(starting).await.ok_or_else(interrupted)??;
    let played = tokio::select! {
        played = script::play(&mut stack, &mut timeline) => played,
        () = stop.cancelled() => Err(interrupted()),
    };
    let told = tell(&played, &mut timeline, &stack);
    if played.is_ok() && told.is_ok() && args.keep {
        print(&kept(&stack))?;
        stop.cancelled().await;
    }
    stack.shutdown().await;
    played.and(told)
}

/// Prints the timeline, and how it ended.
fn tell(played: &Result<(), Failure>, timeline: &mut timeline::Timeline, stack: &Stack) -> Result<(), Failure> {
    let took = timeline.elapsed();
    timeline.finish()?;
    if played.is_err() {
        return print(&format!("\nThe logs of the parts are in {}\n", stack.logs().display()));
    }
    print(&format!("\nAll of it was observed, in {:.0} s.\n", took.as_secs_f64()))?;
    if took > PROMISE {
        let promise = PROMISE.as_secs();
        print(&format!(
            "That is longer than the promised {promise} s; is the machine busy?\n"
        ))?;
    }
    Ok(())
}

/// What to do with what goes on running.
fn kept(stack: &Stack) -> String {
    format!(
        "\nEverything goes on running; Ctrl-C ends it. In another shell:\n\n    \
         export KUBECONFIG={}\n    \
         kubectl get nodes,fl,models,pods\n    \
         kubectl apply --server-side -f examples/joint-inference/digits.yaml\n    \
         kubectl get ji -w\n",
        stack.kubeconfig().display()
    )
}
