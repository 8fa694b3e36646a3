#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| raincheck::fuzzing::header(input));
