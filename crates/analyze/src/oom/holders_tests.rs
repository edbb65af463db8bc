//! Who holds the card, as far as the figures tell, and what they leave open.

use super::*;

fn explained(text: &str) -> Explanation {
    explain_text(text).into_iter().next().unwrap_or_else(|| panic!("no event in {text}"))
}

/// The text of PyTorch 2.5 and later on a card of 79.15 GiB.
fn recent(tried: &str, free: &str, process: &str, live: &str, unused: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of \
         79.15 GiB of which {free} is free. Including non-PyTorch memory, this process has {process} memory in \
         use. Of the allocated memory {live} is allocated by PyTorch, and {unused} is reserved by PyTorch but \
         unallocated. If reserved but unallocated memory is large try setting \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
}

#[test]
fn memory_of_the_process_outside_pytorch_s_allocator_is_no_lack_of_capacity() {
    for live in ["10.00 GiB", "1.00 GiB"] {
        let found = explained(&recent("20.00 MiB", "3.00 MiB", "79.14 GiB", live, "100.00 MiB"));
        assert_eq!(found.cause, Cause::OwnOutsidePytorch, "{live}");
        assert!(found.confidence >= 0.85, "{live}");
        assert!(found.why[0].contains("outside its allocator"), "{:?}", found.why);
        assert!(found.advice[0].action.contains("TensorRT"), "{:?}", found.advice);
        assert!(!found.advice.iter().any(|a| a.action.contains("smaller")), "{:?}", found.advice);
    }
}

#[test]
fn without_the_figure_of_the_process_both_holders_are_named() {
    let found = explained(
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 10.00 GiB already \
         allocated; 3.00 MiB free; 10.10 GiB reserved in total by PyTorch)",
    );
    assert_eq!(found.cause, Cause::OtherProcess);
    assert!(found.why.iter().any(|w| w.contains("outside PyTorch's allocator")), "{:?}", found.why);
    assert!(found.confidence < 0.8, "{}", found.confidence);
}

#[test]
fn a_context_and_its_libraries_are_still_no_cause() {
    let found = explained(&recent("20.00 MiB", "3.00 MiB", "79.14 GiB", "76.50 GiB", "100.00 MiB"));
    assert_eq!(found.cause, Cause::TrueCapacity);
}

#[test]
fn what_is_free_is_not_invented() {
    let xpu = |live: &str, unused: &str| {
        explained(&format!(
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
             15.90 GiB. Of the allocated memory {live} is allocated by PyTorch, and {unused} is reserved by \
             PyTorch but unallocated."
        ))
    };
    let open = xpu("13.00 GiB", "512.00 MiB");
    assert!(open.confidence <= 0.6, "{}", open.confidence);
    let why = open.why.join("\n");
    assert!(!why.contains("0 B free") && !why.contains("no allocator setting"), "{why}");
    assert!(why.contains("does not say how much") && why.contains("not excluded"), "{why}");
    let proven = xpu("14.50 GiB", "512.00 MiB");
    assert_eq!(proven.cause, Cause::TrueCapacity);
    assert!(proven.confidence > 0.9, "{:?}", proven.why);
    let cached = xpu("8.00 GiB", "5.00 GiB").why.join("\n");
    assert!(!cached.contains("0 B free"), "{cached}");
}

#[test]
fn a_request_larger_than_what_is_free_is_said_to_be_so() {
    let found = explained(&recent("40.00 GiB", "39.00 GiB", "40.15 GiB", "38.00 GiB", "1.50 GiB"));
    let why = found.why.join("\n");
    assert!(why.contains("38.00 GiB live + 40.00 GiB asked for = 78.00 GiB"), "{why}");
    assert!(!why.contains("full of live memory"), "{why}");
    let advice = found.advice.iter().map(|a| a.evidence.as_str()).collect::<Vec<_>>().join("\n");
    assert!(!advice.contains("full of live memory"), "{advice}");
}

#[test]
fn texts_in_rotation_are_counted_once_each() {
    let texts: Vec<String> = (0..100)
        .map(|i| {
            recent(
                &format!("{}.00 MiB", 20 + i),
                "3.00 MiB",
                "79.14 GiB",
                "76.50 GiB",
                "100.00 MiB",
            )
        })
        .collect();
    let log: String = (0..2_000).map(|i| format!("{}\n", texts[i % 100])).collect();
    let report = explain_log(&log);
    assert_eq!((report.explanations.len(), report.unlisted), (100, 0));
    assert!(report.explanations.iter().all(|e| e.event.times == 20));
}

#[test]
fn a_list_that_is_full_says_how_many_it_leaves_out() {
    let line = |i: usize| format!("CUDA out of memory. Tried to allocate {i}.00 KiB.\n");
    let log: String = (1..=10_007).map(line).chain([line(1)]).collect();
    let events = explain_log(&log);
    assert_eq!((events.explanations.len(), events.unlisted), (10_000, 7));
    assert_eq!(events.explanations[0].event.times, 2);
}
