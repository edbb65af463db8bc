//! The settings a recording was made under.

use vramwise_model::settings::{self, Config};
use vramwise_trace::{DeviceTrace, RecordedSettings, SettingsBefore, Snapshot};
use vramwise_types::{Action, TorchVersion};

use crate::recording::VerifyOptions;

/// Minor number of the newest 2.x release that was compared with the model.
const NEWEST: u16 = 15;

/// The settings of a recording, with their changes in mid-run.
#[derive(Clone, Debug, Default)]
pub struct Under {
    /// Those that its history begins with.
    pub config: Config,
    /// What holds from which event on, ascending; empty where nothing changed.
    pub changes: Vec<(usize, Config)>,
    /// What had to be assumed, and which changes there were.
    pub notes: Vec<String>,
}

impl Under {
    /// How a recording that was made under these settings is verified.
    pub fn verify(&self, version: TorchVersion) -> VerifyOptions {
        VerifyOptions {
            changes: self.changes.clone(),
            ..VerifyOptions::new(self.config.clone(), version)
        }
    }
}

/// Changes that are named one by one; of more only their number is said.
const NAMED: usize = 3;

/// The settings that a device's history was recorded under: `allocator_settings` says the last ones, and the note of
/// vramwise's recorder which changes came before.
pub fn recorded_under(snapshot: &Snapshot, device: &DeviceTrace, version: TorchVersion) -> Under {
    let last = snapshot.settings.as_ref();
    let told = snapshot.recorder.as_ref().and_then(|note| note.settings.as_ref());
    let Some(told) = told.filter(|_| !last.is_some_and(RecordedSettings::of_drop_in)) else {
        let (config, mut notes) = recorded_config(last, version);
        notes.extend(seen_change(last, device));
        return Under { config, changes: Vec::new(), notes };
    };
    let times = &device.events.time_us;
    if times.iter().all(|time| *time == 0) && !device.events.is_empty() {
        let (config, mut notes) = recorded_config(last, version);
        notes.push(format!(
            "the settings changed {} times in mid-run, but the history has no times to find the events by: the last \
             ones are taken for the whole of it",
            told.changes.len()
        ));
        return Under { config, changes: Vec::new(), notes };
    }
    let (mut config, mut notes) = match &told.before {
        SettingsBefore::Values(values) => recorded_config(Some(values), version),
        SettingsBefore::Text(conf) => {
            let only_text = settings::parse(conf, version);
            let refused =
                |error| vec![format!("'{conf}' is no settings of PyTorch {version} ({error})")];
            only_text.map_or_else(
                |error| (Config::default(), refused(error)),
                |p| (p.config, Vec::new()),
            )
        }
    };
    let mut changes: Vec<(usize, Config)> = Vec::new();
    let mut named = Vec::new();
    for (time, conf) in &told.changes {
        let event = times.partition_point(|t| t < time);
        let current = changes.last().map_or(&config, |(_, config)| config);
        let next = match settings::parse_onto(current, conf, version) {
            Ok(parsed) => parsed.config,
            Err(error) => {
                notes.push(format!(
                    "PyTorch {version} would refuse '{conf}', which was set before event {event} ({error}): this \
                     change is left out"
                ));
                continue;
            }
        };
        if next == *current || event >= times.len() {
            continue;
        }
        if event == 0 {
            config = next;
            continue;
        }
        // Nothing was asked for in between.
        if changes.pop_if(|(at, _)| *at == event).is_some() {
            named.pop();
        }
        named.push(format!("{event} ('{conf}')"));
        changes.push((event, next));
    }
    if let Some(more) = named.len().checked_sub(NAMED).filter(|more| *more > 0) {
        named.truncate(NAMED);
        named.push(format!("{more} more"));
    }
    if !named.is_empty() {
        notes.push(format!("the settings changed in mid-run, before event {}", named.join(", ")));
    }
    Under { config, changes, notes }
}

/// A change that no note tells of and that shows all the same: memory is mapped only where expandable segments are on.
fn seen_change(last: Option<&RecordedSettings>, device: &DeviceTrace) -> Option<String> {
    let last = last.filter(|s| !s.expandable_segments && !s.of_drop_in())?;
    let map = device.events.action.iter().position(|action| *action == Action::SegmentMap)?;
    Some(format!(
        "expandable segments are off in the recorded settings '{}', but event {map} maps memory for one: the settings \
         changed in mid-run, and the file does not say when (--conf with --conf-at EVENT=SETTINGS can)",
        last.conf
    ))
}

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
