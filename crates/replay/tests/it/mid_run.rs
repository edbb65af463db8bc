//! Histories that began in mid-run or wrapped.

use crate::common::Recorded;

#[test]
fn a_history_that_began_in_mid_run_is_reproduced_from_the_state_rebuilt_for_its_start() {
    for name in ["late_train__large12", "late_fuzz__default", "ring_fuzz__expandable"] {
        let recording = Recorded::named(name).verify();
        assert_eq!(recording.first_divergence, None, "{name}");
        assert_eq!(recording.final_difference, None, "{name}");
        assert!(recording.agreement.all_exact(), "{name}");
        assert!(recording.assumptions.iter().any(|a| a.contains("began in mid-run")), "{name}");
        assert!(recording.program.preamble > 0, "{name}: what was in use is part of the program");
    }
}
