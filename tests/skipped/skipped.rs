//! The last words of `cargo test`: which tests were skipped on this machine, and why. It fails nothing.

fn main() {
    let unrefused = skerry_cluster::abilities::unrefused().map(|why| format!("skipped: {why}"));
    for line in skerry_tests::tools::missing().into_iter().chain(unrefused) {
        println!("{line}");
    }
}
