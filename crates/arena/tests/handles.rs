//! How memory is cut into physical handles.

use vramwise_arena::{Heap, Params, PoolId, SimDevice};

const MIB: u64 = 1 << 20;

fn heap(params: Params) -> Heap<SimDevice> {
    Heap::new(SimDevice::new(64 << 30), params)
}

fn alloc(heap: &mut Heap<SimDevice>, stream: u64, bytes: u64) -> u64 {
    heap.alloc(stream, bytes, PoolId::DEFAULT).expect("there is memory").address
}

#[test]
fn a_page_that_two_blocks_share_pins_none_of_the_first_ones_memory() {
    let mut heap = heap(Params::default());
    let first = alloc(&mut heap, 0, 20 * MIB + 512);
    // It begins in the page that the first one ends in.
    let second = alloc(&mut heap, 0, 20 * MIB + 512);
    assert_eq!(second, first + 20 * MIB + 512);
    heap.free(first);
    let before = heap.device().calls();
    alloc(&mut heap, 1, 20 * MIB);
    let after = heap.device().calls();
    assert_eq!(after.create, before.create, "all ten pages below the shared one serve again");
    assert!(after.map > before.map);
}

#[test]
fn a_request_is_cut_into_few_handles() {
    let gib = |params| {
        let mut heap = heap(params);
        alloc(&mut heap, 0, 1024 * MIB);
        heap.device().calls().create
    };
    assert!((100..=128).contains(&gib(Params { request_share: 128, ..Params::default() })));
    assert_eq!(gib(Params { request_share: 16, ..Params::default() }), 16);
    let by_page = Params { handle_share: 1 << 20, request_share: 1 << 20, ..Params::default() };
    assert_eq!(gib(by_page), 512);
    // Not above the cap.
    assert_eq!(gib(Params { request_share: 1, handle_cap: 32 * MIB, ..Params::default() }), 32);
}

#[test]
fn once_memory_moves_requests_of_whole_pages_share_no_page() {
    const PAGE: u64 = 2 * MIB;
    let begins_at_page = |params, moves: bool| {
        let mut heap = heap(params);
        if moves {
            let block = alloc(&mut heap, 1, 40 * MIB);
            heap.free(block);
        }
        // Takes what another stream had, if it had anything.
        alloc(&mut heap, 0, 40 * MIB + MIB / 2);
        let from_new = alloc(&mut heap, 0, 2 * PAGE);
        let hole = alloc(&mut heap, 0, 10 * MIB + MIB / 2);
        alloc(&mut heap, 0, 10 * MIB);
        heap.free(hole);
        let from_free = alloc(&mut heap, 0, 2 * PAGE);
        [from_new, from_free].map(|address| address.is_multiple_of(PAGE))
    };
    assert_eq!(begins_at_page(Params::default(), true), [true, true]);
    // Packed densely where nothing moves, or if asked for.
    assert!(!begins_at_page(Params::default(), false)[0]);
    assert!(!begins_at_page(Params { aligned: 1.0, ..Params::default() }, true)[0]);
}
