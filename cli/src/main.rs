//! `skerry`, the command line.

fn main() {}
