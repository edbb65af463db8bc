"""Out of memory, streams, threads, other processes."""

import gc
import re
import threading

from .registry import MIB, check, current, fresh, raised


@check
def an_error_is_of_the_right_kind_and_says_what_programs_look_for(torch):
    fresh(torch)
    total = torch.cuda.mem_get_info()[1]
    before = current(torch, "num_ooms")
    kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    text, kind = "", None
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text, kind = str(error), type(error).__name__
    words = [
        r"^CUDA out of memory\. Tried to allocate [\d.]+ GiB\. ",
        r"GPU 0 has a total capacity of [\d.]+ GiB of which [\d.]+ GiB is free\. ",
        r"Of the allocated memory [\d.]+ \w+ is allocated by PyTorch,(?: with .*)? and [\d.]+ \w+ is reserved by PyTorch but unallocated\.",
    ]
    found = [re.search(word, text) is not None for word in words]
    del kept
    after = current(torch, "num_ooms")
    counted = [after[name] - before[name] for name in before]
    return kind, found, counted, isinstance(torch.OutOfMemoryError(), RuntimeError)


@check
def work_goes_on_after_an_error(torch):
    fresh(torch)
    total = torch.cuda.mem_get_info()[1]
    held = []
    try:
        while True:
            held.append(torch.empty(total // 8, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    full = 5 <= len(held) <= 8
    held.clear()
    gc.collect()
    again = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    del again
    torch.cuda.empty_cache()
    return full, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


@check
def cached_memory_is_given_back_before_an_error(torch):
    fresh(torch)
    total = torch.cuda.mem_get_info()[1]
    for part in (3, 4, 5):
        torch.empty(total // part, dtype=torch.uint8, device="cuda")
    return raised(torch.empty, total * 3 // 4, dtype=torch.uint8, device="cuda")


@check
def an_absurd_size_is_out_of_memory(torch):
    return raised(torch.empty, 1 << 61, dtype=torch.uint8, device="cuda")


@check
def the_sum_of_a_limit_is_in_the_error(torch):
    torch.cuda.set_per_process_memory_fraction(0.5)
    try:
        torch.empty(torch.cuda.mem_get_info()[1], dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return re.search(r"is free\. .*[\d.]+ GiB allowed; ", str(error)) is not None
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return None


@check
def a_block_waits_for_the_other_stream(torch):
    fresh(torch)
    side = torch.cuda.Stream()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    x.record_stream(side)
    x.record_stream(torch.cuda.current_stream())
    del x
    torch.cuda.synchronize()
    y = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    used = current(torch, "active_bytes.all.current", "allocated_bytes.all.current")
    del y
    return used


@check
def streams_do_not_share_free_blocks(torch):
    fresh(torch)
    side = torch.cuda.Stream()
    x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    at = x.data_ptr()
    del x
    with torch.cuda.stream(side):
        y = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    other = y.data_ptr() != at
    z = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    return other, z.data_ptr() == at


@check
def memory_of_others_is_not_recorded(torch):
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    foreign = torch.from_dlpack(x)
    foreign.record_stream(torch.cuda.Stream())
    view = x[10:]
    view.record_stream(torch.cuda.Stream())
    del x, foreign, view
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")
    return current(torch, "active_bytes.all.current")


@check
def training_takes_what_it_asks_for(torch):
    torch.manual_seed(0)
    fresh(torch)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
    stats = torch.cuda.memory_stats()
    return {name: stats[f"requested_bytes.all.{name}"] for name in ("current", "peak", "allocated")}


@check
def many_threads_at_once(torch):
    fresh(torch)
    problems = []
    torch.cuda.memory._record_memory_history(max_entries=1000)

    def work(number):
        try:
            stream = torch.cuda.Stream()
            layer = torch.nn.Linear(128, 128, device="cuda")
            with torch.cuda.stream(stream):
                for turn in range(60):
                    x = torch.randn(32 + turn, 128, device="cuda")
                    layer(x).sum().backward()
                    x.record_stream(torch.cuda.default_stream())
                    if turn % 20 == number:
                        torch.cuda.memory_stats()
                        torch.cuda.memory._snapshot()
                    if turn % 30 == number:
                        raised(torch.empty, 1 << 50, dtype=torch.uint8, device="cuda")
        except Exception as error:
            problems.append(repr(error))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    stuck = [worker.is_alive() for worker in workers]
    torch.cuda.memory._record_memory_history(None)
    del workers, work
    gc.collect()
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")
    return problems, stuck, current(torch, "active_bytes.all.current")
