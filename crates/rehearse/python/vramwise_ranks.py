"""Lets a process be rank R of N: collectives go to torch's own "fake" process group.

That group answers at once and moves no data. Shards have the sizes that they have among N ranks, so the
memory of this rank is that of a real run, but for what NCCL itself would take. The ranks are those that the
rehearsal was asked for, or that a launcher such as torchrun started. A group of one stays as it is.
"""

import os

import vramwise_objects
from vramwise_emulator import entry


def _ranks(config, world_size, rank):
    """(number of ranks, own rank): the rehearsal's, the caller's, or the launcher's."""
    if config.get("world_size", 1) > 1:
        return config["world_size"], config["rank"]
    if world_size in (None, -1):
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if rank in (None, -1):
        rank = int(os.environ.get("RANK", "0"))
    return world_size, rank


def install(distributed, config):
    """Replaces the ways to make a process group; called when torch.distributed has been imported."""
    init, new_group = distributed.init_process_group, distributed.new_group

    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, *args, **kwargs):
        size, own = _ranks(config, world_size, rank)
        if size <= 1:
            return init(backend, init_method, timeout, world_size, rank, *args, **kwargs)
        from torch.testing._internal.distributed.fake_pg import FakeStore

        _tell_communicator()

        return init("fake", timeout=timeout, store=FakeStore(), rank=own, world_size=size)

    def fake_group(ranks=None, timeout=None, backend=None, *args, **kwargs):
        if not _is_fake(distributed):
            return new_group(ranks, timeout, backend, *args, **kwargs)
        for name in ("device_id", "pg_options"):
            kwargs.pop(name, None)
        return new_group(ranks, timeout, None, **kwargs)

    gather = distributed.all_gather_into_tensor

    def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
        if _is_fake(distributed) and output_tensor.is_contiguous() and input_tensor.is_contiguous():
            # The fake group divides the first dimension; NCCL sees so many numbers, whatever their shape.
            output_tensor, input_tensor = output_tensor.view(-1), input_tensor.view(-1)
        return gather(output_tensor, input_tensor, group, async_op)

    all_gather_into_tensor.__doc__ = gather.__doc__
    distributed.all_gather_into_tensor = all_gather_into_tensor

    vramwise_objects.install(distributed, lambda: _is_fake(distributed))
    init_process_group.__doc__, fake_group.__doc__ = init.__doc__, new_group.__doc__
    distributed.init_process_group, distributed.new_group = init_process_group, fake_group


def _tell_communicator():
    """NCCL would have memory of its own here: the report says that it is not counted."""
    told = entry("vramwise_communicator")
    if told is not None:
        told()


def _is_fake(distributed):
    return distributed.is_initialized() and distributed.get_backend() == "fake"


def install_data_parallel(module):
    """Has gradients "reduced" at once; called when DistributedDataParallel has been imported.

    Its own reduction expects of the process group the reduced tensors, which the fake one does not hand back.
    """
    kind = module.DistributedDataParallel
    init, register = kind.__init__, kind.register_comm_hook

    def reduced(_state, bucket):
        import torch

        tensor = bucket.buffer()
        future = torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else None)
        future.set_result(tensor)
        return future

    def fakes():
        import torch.distributed

        return _is_fake(torch.distributed)

    def init_and_register(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if fakes():
            register(self, None, reduced)

    def register_comm_hook(self, state, hook):
        if not fakes():
            register(self, state, hook)

    kind.__init__, kind.register_comm_hook = init_and_register, register_comm_hook
