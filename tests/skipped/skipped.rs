//! The last words of `cargo test`: which tests were skipped on this machine, and why. It fails nothing.

fn main() {
    for line in skerry_tests::tools::missing() {
        println!("{line}");
    }
}
