#![no_main]

use vramwise_fuzz::Target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| Target::Logs.run(data));
