//! The settings a recording was made under.

use vramwise_model::settings::{self, Config};
use vramwise_trace::RecordedSettings;
use vramwise_types::TorchVersion;

/// Minor number of the newest 2.x release that was compared with the model.
const NEWEST: u16 = 15;

/// The recorded settings as the allocator used them, with what had to be assumed.
pub fn recorded_config(
    recorded: Option<&RecordedSettings>,
    version: TorchVersion,
) -> (Config, Vec<String>) {
    let mut notes = Vec::new();
    let Some(recorded) = recorded else {
        notes.push("the file does not say its settings: PyTorch's defaults are assumed".to_owned());
        return (Config::default(), notes);
    };
    if recorded.of_drop_in() {
        return under_drop_in(&recorded.conf_of_pytorch(), version);
    }
    let later = || (version.minor + 1..=NEWEST).map(|minor| TorchVersion::new(2, minor));
    let read_by = |version| settings::parse(&recorded.conf, version).ok().map(|p| (version, p));
    let mut config = match settings::parse(&recorded.conf, version) {
        Ok(parsed) => parsed.config,
        Err(_) if let Some((later, parsed)) = later().find_map(read_by) => {
            notes.push(format!(
                "PyTorch {version} would refuse the recorded settings string '{}', so the file is of a later \
                 release: the string is read as PyTorch {later} reads it",
                recorded.conf
            ));
            parsed.config
        }
        Err(error) => {
            notes.push(format!(
                "PyTorch {version} would refuse the recorded settings string '{}' ({error}); the \
                 values recorded beside it are used",
                recorded.conf
            ));
            Config::default()
        }
    };
    // The values in force win: a string can be older than a change at run time.
    let from_string = config.clone();
    config.max_split_size = recorded.max_split_size.unwrap_or(u64::MAX);
    config.garbage_collection_threshold = recorded.garbage_collection_threshold;
    config.expandable_segments = recorded.expandable_segments;
    for (mib, divisions) in &recorded.roundup_power2_divisions {
        if let Some(bucket) = mib.checked_ilog2()
            && let Some(entry) = config.roundup_power2_divisions.get_mut(bucket as usize)
        {
            *entry = *divisions;
        }
    }
    if config != from_string {
        notes.push(format!(
            "the recorded values differ from the settings string '{}'; the values are used",
            recorded.conf
        ));
    }
    (config, notes)
}

/// What PyTorch's own allocator would have been told where vramwise's was in its place.
fn under_drop_in(conf: &str, version: TorchVersion) -> (Config, Vec<String>) {
    match settings::parse(conf, version) {
        Ok(parsed) if conf.is_empty() => {
            let note = "for PyTorch's own allocator the program had no settings: its defaults are what others are \
                        compared with";
            (parsed.config, vec![note.to_owned()])
        }
        Ok(parsed) => {
            let note = format!(
                "for PyTorch's own allocator the program had the settings '{conf}': others are compared with them"
            );
            (parsed.config, vec![note])
        }
        Err(error) => {
            let note = format!(
                "PyTorch {version} would refuse the recorded settings string '{conf}' ({error}): its defaults are assumed"
            );
            (Config::default(), vec![note])
        }
    }
}
