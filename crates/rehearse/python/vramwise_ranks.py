"""Lets one process be rank R of N: collectives go to torch's own "fake" process group.

That group answers at once and moves no data. Shards have the sizes that they have among N ranks, so the
memory of this rank is that of a real run, but for what NCCL itself would take.
"""


def install(distributed, world_size, rank):
    """Replaces the ways to make a process group; called when torch.distributed has been imported."""
    init, new_group = distributed.init_process_group, distributed.new_group

    def init_process_group(backend=None, *args, **kwargs):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        timeout = kwargs.get("timeout")
        kept = {} if timeout is None else {"timeout": timeout}
        return init("fake", store=FakeStore(), rank=rank, world_size=world_size, **kept)

    def fake_group(ranks=None, timeout=None, backend=None, *args, **kwargs):
        for name in ("device_id", "pg_options"):
            kwargs.pop(name, None)
        return new_group(ranks, timeout, None, **kwargs)

    init_process_group.__doc__, fake_group.__doc__ = init.__doc__, new_group.__doc__
    distributed.init_process_group, distributed.new_group = init_process_group, fake_group


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

    def init_and_register(self, *args, **kwargs):
        init(self, *args, **kwargs)
        register(self, None, reduced)

    kind.__init__ = init_and_register
    kind.register_comm_hook = lambda self, state, hook: None
