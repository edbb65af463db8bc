use vramwise_types::TorchVersion;

use super::*;

fn torch(minor: u16) -> TorchVersion {
    TorchVersion::new(2, minor)
}

fn config(text: &str, minor: u16) -> Config {
    match parse(text, torch(minor)) {
        Ok(parsed) => parsed.config,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn ordinary_strings_give_the_settings_they_say() {
    let c = config("max_split_size_mb:64,max_non_split_rounding_mb:64", 11);
    assert_eq!((c.max_split_size, c.max_non_split_rounding), (64 << 20, 64 << 20));
    let c = config("garbage_collection_threshold:0.8,max_split_size_mb:128", 11);
    assert_eq!((c.garbage_collection_threshold, c.max_split_size), (0.8, 128 << 20));
    let c = config("expandable_segments:True,roundup_power2_divisions:8", 11);
    assert!(c.expandable_segments);
    assert_eq!(c.roundup_power2_divisions, [8; 16]);
    let c = config("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 11);
    assert_eq!(c.roundup_power2_divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
    assert_eq!(config("", 11), Config::default());
}
