//! A complete profile: the file's figures and what follows from them.

use serde::Serialize;

use crate::ProfileError;
use crate::capability;
use crate::card::Card;

/// Bytes that a context has in use on the card that was measured (H200, after initialisation).
const MEASURED_CONTEXT: u64 = 552_402_944;
/// Threads that card holds at a time: 132 multiprocessors of 2048.
const MEASURED_THREADS: u64 = 132 * 2048;
/// The part of a context that is taken not to depend on the card: code and the driver's own tables.
const FIXED_CONTEXT: u64 = 64 << 20;
/// How the device's memory filled there: (done, bytes in use, bytes reserved by PyTorch). Libraries load
/// their code and make their workspaces when they are first used.
const MEASURED_STEPS: &[(&str, u64, u64)] = &[
    ("after init", 552_402_944, 0),
    ("first tensor", 650_969_088, 2_097_152),
    ("randn", 667_746_304, 18_874_368),
    ("matmul fp32", 787_283_968, 69_206_016),
    ("softmax", 804_061_184, 85_983_232),
    ("sort", 837_615_616, 119_537_664),
    ("conv2d", 856_489_984, 119_537_664),
    ("sdpa flash", 858_587_136, 121_634_816),
    ("linalg", 959_250_432, 121_634_816),
    ("side stream matmul", 1_082_982_400, 171_966_464),
];
/// The least memory of a card that runs PyTorch at all.
const LEAST_BYTES: u64 = 1 << 30;

/// A profile with nothing left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Profile {
    /// The card; `attributes`, `context_bytes` and `cudnn_json` are filled in.
    pub card: Card,
}

impl Profile {
    /// Fills in what the file leaves out.
    ///
    /// # Errors
    /// [`ProfileError`] where a figure cannot be.
    pub fn complete(mut card: Card) -> Result<Self, ProfileError> {
        if card.schema != 1 {
            return Err(ProfileError::Schema(card.schema));
        }
        let impossible = |key, value, why| Err(ProfileError::Impossible { key, value, why });
        if card.total_bytes < LEAST_BYTES || card.total_bytes > 1 << 41 {
            return impossible("total_bytes", card.total_bytes, "a card has 1 GiB to 2 TiB");
        }
        if card.multiprocessors == 0 || card.multiprocessors > 4096 {
            let value = u64::from(card.multiprocessors);
            return impossible("multiprocessors", value, "a card has 1 to 4096");
        }
        let major = u64::from(card.compute_capability.0);
        if !(5..=99).contains(&major) {
            return impossible("compute_capability", major, "PyTorch needs 5.0 or later");
        }
        let mut attributes = capability::attributes(&card);
        attributes.append(&mut card.attributes);
        card.attributes = attributes;
        if card.context_bytes.is_none() {
            card.context_bytes = Some(scaled_context(&card, MEASURED_CONTEXT));
            let step = |(done, used, reserved): &(&str, u64, u64)| {
                let context = scaled_context(&card, used.saturating_sub(*reserved));
                ((*done).to_owned(), context + reserved, *reserved)
            };
            card.context_steps = MEASURED_STEPS.iter().map(step).collect();
        }
        if card.context_bytes >= Some(card.total_bytes) {
            let value = card.context_bytes.unwrap_or(0);
            return impossible("context_bytes", value, "a context is smaller than the memory");
        }
        if card.cudnn_json.is_none() {
            card.cudnn_json = Some(cudnn_json(&card));
        }
        Ok(Self { card })
    }

    /// Whether the bytes of a context were measured, rather than scaled from another card.
    pub fn context_is_measured(&self) -> bool {
        self.card.measured
    }
}

/// A context on another card: most of it holds state for every thread that may run at a time.
fn scaled_context(card: &Card, measured: u64) -> u64 {
    let threads = capability::limits(card.compute_capability).threads;
    let threads = u64::from(card.multiprocessors) * u64::try_from(threads).unwrap_or(0);
    let variable = measured.saturating_sub(FIXED_CONTEXT);
    let bytes = FIXED_CONTEXT + variable / MEASURED_THREADS * threads;
    // The driver takes whole pages of 2 MiB.
    bytes.next_multiple_of(2 << 20)
}

/// The description that cuDNN makes of a device, with this card's figures.
fn cudnn_json(card: &Card) -> String {
    let attribute = |number: u32| card.attributes.get(&number).copied().unwrap_or(0);
    let (major, minor) = card.compute_capability;
    serde_json::json!({
        "maxGridSize": [attribute(5), attribute(6), attribute(7)],
        "maxBlockSize": [attribute(2), attribute(3), attribute(4)],
        "regsPerBlock": attribute(12),
        "multiProcessorCount": attribute(16),
        "warpSize": attribute(10),
        "maxSharedMemoryPerBlock": attribute(8),
        "maxSharedMemoryPerBlockOptin": attribute(97),
        "reservedSharedMemoryPerBlock": attribute(111),
        "maxRegistersPerSM": attribute(82),
        "maxCtasPerSM": attribute(106),
        "maxThreadsPerBlock": attribute(1),
        "maxThreadsPerSM": attribute(39),
        "pciDeviceId": attribute(34),
        "isTccDriver": attribute(35),
        "supportCoopLaunch": attribute(95),
        "totalGlobalMem": card.total_bytes,
        "smClockRateKHz": attribute(13),
        "memClockRateKHz": attribute(36),
        "l2CacheSize": attribute(38),
        "cudaDeviceId": 0,
        "deviceVer": major * 100 + minor * 10,
        "driverVer": 13000,
        "deviceName": card.name,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> serde_json::Value {
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn the_description_for_cudnn_is_the_one_of_a_real_card() {
        let measured = crate::find("h200").expect("a built-in profile").card;
        let written = measured.cudnn_json.clone().expect("it was measured");
        assert_eq!(json(&cudnn_json(&measured)), json(&written));
    }

    #[test]
    fn a_context_grows_with_the_card_and_is_the_measured_one_on_the_measured_card() {
        let context =
            |name| crate::find(name).and_then(|p| p.card.context_bytes).expect("built in");
        assert_eq!(context("h200"), MEASURED_CONTEXT);
        let near = context("h100").abs_diff(MEASURED_CONTEXT);
        assert!(near <= 2 << 20, "{near}");
        assert!(context("t4") < context("l4") && context("l4") < context("rtx4090"));
        assert!(crate::find("h200").is_some_and(|p| p.context_is_measured()));
        assert!(crate::find("t4").is_some_and(|p| !p.context_is_measured()));
    }

    #[test]
    fn a_profile_of_a_few_lines_is_enough_and_figures_that_cannot_be_are_refused() {
        let card = |total: u64| {
            format!(
                "{{\"schema\":1,\"id\":\"mine\",\"name\":\"Mine\",\"total_bytes\":{total},\
                 \"compute_capability\":[8,6],\"multiprocessors\":20,\"clock_khz\":1500000,\
                 \"memory_clock_khz\":7000000,\"memory_bus_bits\":128,\"l2_bytes\":2097152,\
                 \"attributes\":{{\"40\":7}}}}"
            )
        };
        let mine = crate::parse(&card(6 << 30)).expect("a profile").card;
        assert_eq!(mine.attributes.get(&40), Some(&7));
        assert_eq!(mine.attributes.get(&81), Some(&102_400));
        assert!(mine.cudnn_json.is_some_and(|text| text.contains("\"deviceVer\":860")));
        assert!(crate::parse(&card(5)).is_err());
    }
}
