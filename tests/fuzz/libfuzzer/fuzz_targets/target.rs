//! The target that this binary is named after, under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(target) = skerry_fuzz::target(env!("CARGO_BIN_NAME")) {
        (target.run)(data);
    }
});
