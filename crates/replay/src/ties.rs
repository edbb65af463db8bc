//! Which release's rule for free blocks of equal size a recording follows, where its schema leaves it open.

use vramwise_model::TieRule;
use vramwise_trace::DeviceTrace;
use vramwise_types::Action;

use crate::history::History;
use crate::recording::{Solved, VerifyOptions, solve_as};
use crate::verify::Run;

const RULES: [TieRule; 3] = [TieRule::Address, TieRule::BlockAge, TieRule::SegmentAge];

/// Replays a history by the rules of the release that is meant. Where it then parts at a choice between
/// blocks, the rules of other releases are tried; one that reproduces everything is taken.
pub(crate) fn solve(
    history: &History,
    device: &DeviceTrace,
    options: &VerifyOptions,
    assumptions: &mut Vec<String>,
) -> Solved {
    let mut own = Vec::new();
    let solved = solve_as(options.version, history, device, options, &mut own);
    if options.other_ties && parts_at_a_choice(history, &solved.run) {
        let others = RULES.into_iter().filter(|rule| *rule != TieRule::of(options.version));
        for version in others.map(TieRule::release) {
            let mut notes = Vec::new();
            let other = solve_as(version, history, device, options, &mut notes);
            if other.run.mismatch.is_none() {
                assumptions.append(&mut notes);
                assumptions.push(format!(
                    "free blocks of equal size are taken in the order of PyTorch {version}, not of \
                     {}, which the file looks like: only so the recording is reproduced",
                    options.version
                ));
                return other;
            }
        }
    }
    assumptions.append(&mut own);
    solved
}

/// Whether the model did the same thing as the recording, but with another block.
fn parts_at_a_choice(history: &History, run: &Run) -> bool {
    let Some(mismatch) = run.mismatch else { return false };
    let (Some(got), Some(want)) = (mismatch.got, history.entries.get(mismatch.at)) else {
        return false;
    };
    let choice = want.action == Action::Alloc || want.action.is_release();
    choice && got.action == want.action && got.addr != want.addr
}
