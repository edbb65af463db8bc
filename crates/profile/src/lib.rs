//! Device profiles: what a GPU says of itself, for a machine that has none.
//!
//! A profile is a JSON file of few lines ([`Card`]); what it leaves out follows from the compute
//! capability by one table ([`mod@capability`]). [`Profile`] is the complete one, which the emulated
//! device is made from. Profiles say whether they were measured on a real card and where their figures
//! come from. Pure data: nothing here reads files or looks at the machine.

#![forbid(unsafe_code)]

pub mod capability;
mod card;
mod complete;

pub use card::{Card, DevicePropHex};
pub use complete::Profile;

/// What is wrong with a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is not JSON, or a key is missing or has the wrong kind of value.
    #[error("this is no device profile: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version of the format.
    #[error("the profile has \"schema\": {0}; this program reads 1")]
    Schema(u32),
    /// A number that no card has.
    #[error("\"{key}\" is {value}: {why}")]
    Impossible {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        why: &'static str,
    },
}

macro_rules! built_in {
    ($($id:literal),* $(,)?) => {
        /// The built-in files, by the cards' places in a list for people.
        const FILES: &[(&str, &str)] = &[$(($id, include_str!(concat!("../profiles/", $id, ".json")))),*];
    };
}

built_in!(
    "b200",
    "h200",
    "h100",
    "h100-pcie",
    "a100-80gb",
    "a100-40gb",
    "l40s",
    "l4",
    "a10",
    "v100-32gb",
    "v100-16gb",
    "t4",
    "rtx5090",
    "rtx4090",
    "rtx4060ti-16gb",
    "rtx4060",
    "rtx3090",
    "rtx3060",
);

/// Every built-in profile, data-centre cards first.
pub fn built_in() -> Vec<Profile> {
    FILES
        .iter()
        // The files are part of the program, and a test reads each.
        .filter_map(|(_, text)| parse(text).ok())
        .collect()
}

/// The built-in profile of this name: its id, an alias or the card's own name; upper and lower case,
/// blanks, `-` and `_` make no difference.
pub fn find(name: &str) -> Option<Profile> {
    let wanted = plain(name);
    built_in().into_iter().find(|profile| {
        let names = [&profile.card.id, &profile.card.name].into_iter().chain(&profile.card.aliases);
        names.map(|name| plain(name)).any(|name| name == wanted)
    })
}

/// Reads a profile and completes it.
///
/// # Errors
/// [`ProfileError`] where the text is no profile or has figures that cannot be.
pub fn parse(text: &str) -> Result<Profile, ProfileError> {
    let card: Card = serde_json::from_str(text)?;
    Profile::complete(card)
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, ' ' | '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect::<String>()
        .trim_start_matches("nvidia")
        .trim_start_matches("geforce")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_can_be_read_and_is_named_as_its_file() {
        let profiles = built_in();
        assert_eq!(profiles.len(), FILES.len());
        for (profile, (id, _)) in profiles.iter().zip(FILES) {
            assert_eq!(profile.card.id, *id);
            assert!(profile.card.source.len() > 20, "{id} says where its figures come from");
        }
    }

    #[test]
    fn no_two_profiles_share_a_name() {
        let mut names: Vec<String> = Vec::new();
        for profile in built_in() {
            let mut own: Vec<String> = [&profile.card.id, &profile.card.name]
                .into_iter()
                .chain(&profile.card.aliases)
                .map(|name| plain(name))
                .collect();
            own.sort();
            own.dedup();
            names.extend(own);
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_card_is_found_however_it_is_written() {
        for name in ["RTX 4090", "rtx4090", "rtx-4090", "4090", "NVIDIA GeForce RTX 4090"] {
            assert_eq!(find(name).map(|p| p.card.id), Some("rtx4090".to_owned()), "{name}");
        }
        assert!(find("rtx9999").is_none() && find("").is_none());
    }

    #[test]
    fn what_is_no_profile_is_refused_with_the_reason() {
        assert!(parse("{").is_err());
        assert!(parse("{\"schema\": 1}").unwrap_err().to_string().contains("id"));
        let text = FILES[0].1.replacen("\"schema\": 1", "\"schema\": 2", 1);
        assert!(matches!(parse(&text), Err(ProfileError::Schema(2))));
    }
}
