"""What Python objects come from the other ranks, when this process is rank R of N and there are no others.

A group that moves no data leaves behind what cannot be unpickled, so that evaluation and checkpoints, which exchange objects,
would fail where a real run does not. Here another rank is taken to send what this one would: every rank's object
is this one's own. What only another rank has is left as it was. The report says so, as programs decide by such objects.
"""

import functools

from vramwise_emulator import entry

_told = set()


def _tell(name, what):
    """A remark for the report, once a function."""
    if name not in _told:
        _told.add(name)
        note = entry("vramwise_note")
        if note is not None:
            note(f"there are no other ranks to exchange objects with: {name} {what}".encode())


def install(distributed, is_fake):
    """Replaces the functions that exchange objects; called when torch.distributed has been imported."""

    def replaces(name):
        original = getattr(distributed, name, None)

        def put(replacement):
            @functools.wraps(original or replacement)
            def function(*args, **kwargs):
                if not is_fake():
                    return original(*args, **kwargs)
                return replacement(*args, **kwargs)

            if original is not None:
                setattr(distributed, name, function)
            return original

        return put

    def is_own(rank, group_rank, group):
        """Whether the rank that a caller named, in one of two ways, is this one."""
        if group_rank is not None:
            return distributed.get_rank(group) == group_rank
        return distributed.get_rank() == (0 if rank is None else rank)

    def gather_all(object_list, obj, group=None):
        _tell("all_gather_object", "gave this rank's own object for each")
        # It gives just that, by way of tensors as large as those of a real run.
        return all_gather_object(object_list, obj, group)

    all_gather_object = replaces("all_gather_object")(gather_all)

    @replaces("gather_object")
    def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
        # On the others its tensors come and go, and nothing is handed out.
        gathered = [None] * distributed.get_world_size(group)
        all_gather_object(gathered, obj, group)
        if is_own(dst, group_dst, group) and object_gather_list is not None:
            _tell("gather_object", "gave this rank's own object for each")
            object_gather_list[:] = gathered

    @replaces("scatter_object_list")
    def scatter_object_list(
        scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
    ):
        if is_own(src, group_src, group) and scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[distributed.get_rank(group)]
        else:
            _tell("scatter_object_list", "left the list as it was")

    def broadcast(object_list, src=None, group=None, device=None, group_src=None):
        if is_own(src, group_src, group):
            return broadcast_object_list(object_list, distributed.get_rank(), group, device)
        _tell("broadcast_object_list", "left the list as it was")

    broadcast_object_list = replaces("broadcast_object_list")(broadcast)

    @replaces("recv_object_list")
    def recv_object_list(object_list, src=None, *_args, **_kwargs):
        _tell("recv_object_list", "left the list as it was")
        return 0 if src is None else src
