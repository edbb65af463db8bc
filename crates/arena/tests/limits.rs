//! What is asked for beyond what there is: memory, and addresses.

use vramwise_arena::{AllocError, Heap, Params, PoolId, SimDevice};

const MIB: u64 = 1 << 20;

fn heap() -> Heap<SimDevice> {
    Heap::new(SimDevice::new(64 << 30), Params::default())
}

#[test]
fn a_request_above_the_card_gives_back_what_is_free() {
    let mut heap = heap();
    let block = heap.alloc(0, 100 * MIB, PoolId::DEFAULT).expect("there is memory");
    heap.free(block.address);
    assert_eq!(heap.held_bytes(), 100 * MIB);
    let refused = heap.alloc(0, 65 << 30, PoolId::DEFAULT);
    assert_eq!(refused.map(|block| block.size), Err(AllocError::OutOfMemory));
    assert_eq!(heap.held_bytes(), 0);
    assert_eq!(heap.counters().num_alloc_retries, 1);
}

#[test]
fn thousands_of_private_pools_find_addresses() {
    let mut heap = heap();
    for pool in 1..=4000 {
        heap.pool_retain(PoolId(0, pool)).expect("it is new");
        heap.alloc(0, MIB, PoolId(0, pool)).expect("an address for each");
    }
    heap.alloc(0, MIB, PoolId::DEFAULT).expect("and for the rest");
}

#[test]
fn a_private_pool_grows_beyond_its_first_addresses() {
    let mut heap = heap();
    let pool = PoolId(0, 1);
    heap.pool_retain(pool).expect("it is new");
    for _ in 0..40 {
        heap.alloc(0, 700 * MIB, pool).expect("the card has 64 GiB");
    }
    heap.alloc(0, 5 << 30, pool).expect("larger than any addresses so far");
}
