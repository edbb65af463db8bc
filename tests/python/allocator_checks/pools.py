"""Private pools: MemPool, CUDA graphs, checkpoints."""

import ctypes
import os

from .registry import MIB, check, current, fresh, minor, raised


def megabytes(torch, count, **named):
    return torch.empty(count * MIB, dtype=torch.uint8, device="cuda", **named)


def inside(torch, tensor, pool_id):
    return any(
        s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"]
        for s in torch.cuda.memory_snapshot(pool_id)
    )


@check
def tensors_go_where_the_pool_is_open(torch):
    fresh(torch)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        a = megabytes(torch, 3)
    b = megabytes(torch, 3)
    owners = {s["segment_pool_id"] for s in torch.cuda.memory_snapshot(pool.id)} == {pool.id}
    used = inside(torch, a, pool.id), inside(torch, b, pool.id), owners
    count = pool.use_count()
    del a
    del pool
    torch.cuda.empty_cache()
    left = torch.cuda.memory_reserved() >= 3 * MIB
    del b
    torch.cuda.empty_cache()
    return used, count, left, torch.cuda.memory_reserved()


@check
def a_pool_dies_before_its_tensors(torch):
    fresh(torch)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        a = megabytes(torch, 3)
    del pool
    alive = torch.cuda.memory_allocated()
    del a
    torch.cuda.empty_cache()
    return alive, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


@check
def another_thread_does_not_fall_into_the_pool(torch):
    import threading

    pool = torch.cuda.MemPool()
    made = []
    with torch.cuda.use_mem_pool(pool):
        worker = threading.Thread(target=lambda: made.append(megabytes(torch, 3)))
        worker.start()
        worker.join()
    return inside(torch, made[0], pool.id)


@check
def of_nested_pools_one_has_the_say(torch):
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer):
        a = megabytes(torch, 3)
        with torch.cuda.use_mem_pool(inner):
            b = megabytes(torch, 3)
        c = megabytes(torch, 3)
    return [(inside(torch, t, outer.id), inside(torch, t, inner.id)) for t in (a, b, c)]


@check
def a_pool_is_not_opened_twice(torch):
    if minor(torch) < 11:
        return None  # the process ends there
    pool = torch.cuda.MemPool()

    def twice():
        with torch.cuda.use_mem_pool(pool), torch.cuda.use_mem_pool(pool):
            pass

    kind = raised(twice)
    # What the failed attempt left open, if anything.
    raised(torch._C._cuda_endAllocateToPool, torch.cuda.current_device(), pool.id)
    return kind


@check
def a_pool_helps_out(torch):
    fresh(torch)
    total = torch.cuda.mem_get_info()[1]
    outcome = []
    for helps in (False, True):
        pool = torch.cuda.MemPool(use_on_oom=helps)
        with torch.cuda.use_mem_pool(pool):
            a = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
        del a
        b = None
        try:
            b = torch.empty(total // 2 - 64 * MIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        outcome.append(b is not None)
        del b, pool
        fresh(torch)
    return outcome


@check
def a_pool_without_splits_works(torch):
    if minor(torch) < 10:
        return None
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        a = megabytes(torch, 3)
    return inside(torch, a, pool.id)


@check
def a_custom_allocator_serves_its_pool(torch):
    library = os.environ.get("VRAMWISE_TEST_CUSTOM_ALLOCATOR")
    if not library:
        return None
    counted = ctypes.CDLL(library).calls
    custom = torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give_back").allocator()
    pool = torch.cuda.MemPool(custom)
    before = torch.cuda.memory_allocated()
    with torch.cuda.use_mem_pool(pool):
        a = megabytes(torch, 3)
    outside = megabytes(torch, 1)
    asked = counted()
    rises = torch.cuda.memory_allocated() - before
    seen = len(pool.snapshot())
    side = torch.cuda.Stream()
    a.record_stream(side)
    del a
    torch.cuda.synchronize()
    with torch.cuda.use_mem_pool(pool):
        again = megabytes(torch, 3)
    del outside, again
    falls = torch.cuda.memory_allocated() - before
    del pool
    return asked, rises, seen, falls, counted()


@check
def a_graph_keeps_its_memory_to_itself(torch):
    fresh(torch)
    static = torch.zeros(MIB, device="cuda")
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        a = static * 2
        b = a + 1
        span = b.data_ptr(), a.data_ptr()
        del a
    ranges = [(s["address"], s["address"] + s["total_size"]) for s in torch.cuda.memory_snapshot(graph.pool())]
    with torch.cuda.stream(stream):
        eager = [torch.empty(MIB, device="cuda") for _ in range(8)]
    overlap = any(low <= t.data_ptr() < high for t in eager for low, high in ranges)
    own = all(any(low <= at < high for low, high in ranges) for at in span)
    graph.replay()
    torch.cuda.synchronize()
    id_of_pool = graph.pool()
    del graph, b, static
    torch.cuda.empty_cache()
    return overlap, own, len(torch.cuda.memory_snapshot(id_of_pool))


@check
def graphs_share_a_pool(torch):
    x = torch.zeros(MIB, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        b = a + 1
    shared = first.pool() == second.pool()
    ids = inside(torch, a, first.pool()), inside(torch, b, first.pool())
    first.replay(), second.replay()
    first.reset()
    del a
    torch.cuda.empty_cache()
    second.replay()
    alive = inside(torch, b, second.pool())
    return shared, ids, alive


@check
def other_streams_of_a_capture_are_in_the_pool(torch):
    x = torch.zeros(MIB, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = x + 1
        torch.cuda.current_stream().wait_stream(side)
        b = a * 2
    graph.replay()
    return inside(torch, a, graph.pool()), inside(torch, b, graph.pool())


@check
def callables_become_graphs(torch):
    layer = torch.nn.Linear(64, 64, device="cuda")
    sample = torch.randn(8, 64, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(layer, (sample,))
    out = graphed(sample)
    out.sum().backward()
    return tuple(out.shape), sample.grad is not None


@check
def a_pool_goes_back_to_a_checkpoint(torch):
    device = torch.cuda.current_device()
    x = torch.zeros(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a = x + 1
        b = x + 2
        c = x + 3
    pool = graph.pool()
    kept = a.data_ptr(), c.data_ptr()
    del b
    right = torch._C._cuda_checkPoolLiveAllocations(device, pool, set(kept))
    wrong = torch._C._cuda_checkPoolLiveAllocations(device, pool, {kept[0]})
    state = torch._C._cuda_getCheckpointState(device, pool)
    # A second recording in the same pool reuses what is free; then the state before it comes back.
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=pool):
        d = x + 4
    changed = torch._C._cuda_checkPoolLiveAllocations(device, pool, {*kept, d.data_ptr()})
    # As trees of graphs do it: tensors of the other path lose their deleters, those that live on get new ones.
    storages = [
        torch._C._construct_storage_from_data_pointer(t.data_ptr(), t.device, t.untyped_storage().nbytes()) for t in (a, c)
    ]
    stale = [t.untyped_storage()._cdata for t in (a, c, d)]
    torch._C._cuda_setCheckpointPoolState(device, state, stale, [s._cdata for s in storages])
    restored = torch._C._cuda_checkPoolLiveAllocations(device, pool, set(kept))
    before = current(torch, "allocation.all.current")["allocation.all.current"]
    del a, c, d, storages
    freed = before - current(torch, "allocation.all.current")["allocation.all.current"]
    return right, wrong, changed, restored, freed


@check
def compiled_graphs_run(torch):
    @torch.compile(backend="cudagraphs")
    def step(x):
        return (x * 2 + 1).sum()

    x = torch.zeros(1000, device="cuda")
    for _ in range(4):
        y = step(x)
    return tuple(y.shape)
