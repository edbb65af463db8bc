"""Training steps that survive running out of memory: the batch goes through in parts, with the same gradients.

After an out-of-memory error everything is put back as it was before the step (gradients, random numbers, running
statistics), the memory is given back, and the batch is taken again in smaller parts, whose losses are weighted so that
the accumulated gradients are those of the whole batch. The size that fits is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, Literal

from .._numbers import whole_number
from .._ranks import FAILED, FINE, OUT_OF_MEMORY, Ranks
from ..errors import OtherRankError
from ..oom import OomWitness, add_note, free_after_oom
from .attempt import (
    NOT_RECOVERABLE,
    GivenUpError,
    StepOutcome,
    detached,
    keep_snapshot,
    loss_and_rest,
    notes_for,
    refuse_other_kinds,
    refuse_what_is_no_function,
)
from .optimizer_step import guarded_step
from .parallel import Unsynchronised, cannot_resume, forget_sharded_attempt, is_sharded
from .parts import Parts
from .size import MicroSize
from .trees import Cut, even_sizes
from .undo import Undo, tensors_with_gradients
from .warned import warn_about_model, warn_of_batch


class MicroBatcher:
    """Takes batches through a model in as many parts as memory asks for.

    ::

        batcher = vramwise.MicroBatcher(lambda part: loss_fn(model(part["x"]), part["y"]), model, optimizer)
        for batch in loader:
            outcome = batcher.step(batch)        # forward, backward, optimizer.step(), zero_grad()

    The step function computes the loss and nothing else: no ``backward``, no optimizer. It may be called again for the
    same samples, so it should have no effects outside.

    Args:
        step_fn: called with a batch or a part of one; returns the loss (a scalar tensor), or a tuple, mapping or
            object with the loss as first item, ``"loss"`` or ``loss``.
        model: the module that is trained, wrapped in DDP or FSDP as the step function uses it. Needed unless
            ``optimizer`` or ``parameters`` tell which gradients there are; buffers are only put back with it.
        optimizer: for :meth:`step`.
        parameters: tensors whose gradients the step adds to, instead of those of model and optimizer.
        scaler: a ``torch.amp.GradScaler``: losses are scaled, :meth:`step` goes through it.
        reduction: how the step function's loss joins its samples: ``"mean"`` or ``"sum"``.
        weight_fn: with ``"mean"``, what a part weighs: called with the part, gives the number that its loss was divided
            by, such as the number of tokens that are not padding (or labels that are not ``-100``). ``None``: samples.
            Parts that weigh 0 are left out, unless all do: then samples count.
        cut: how batches are cut, if tensors' first dimension is not all there is to it; see :class:`Cut`.
        split_fn: cuts by itself: called with the batch and the list of sizes, gives the list of parts. Needs ``cut``
            with ``batch_size``, unless batches can be measured.
        micro_batch_size: samples at once to begin with; ``None`` for whole batches.
        min_size: fewer samples at once are not tried.
        grow_after: after so many steps without a failure, twice the size is tried; 0 never.
        ddp_sync: ``"agreed"``: gradients are averaged when every rank has its own, so that no rank waits for one that
            ran out of memory. ``"overlapped"``: sizes that fitted three times are synchronised by DDP during the last
            part's backward pass, which is faster; an out-of-memory error there cannot be recovered.
        group: the process group whose ranks agree; ``None`` for all.
        backward: called with the weighted (and scaled) loss instead of its ``backward()``.
        max_grad_norm: :meth:`step` clips gradients to this norm (of what the optimizer holds).
        keep_grads_on: where gradients of earlier batches wait during an attempt, ``"device"`` or ``"cpu"``.
        restore_rng: whether a retry draws the random numbers that the failed attempt drew.
        recorder: a :class:`vramwise.Recorder`, whose snapshot of a failed attempt is kept; ``None`` for those at work.

    Raises:
        ValueError, TypeError: arguments that cannot be, or nothing that says whose gradients to put back.
    """

    def __init__(
        self,
        step_fn: Callable[[Any], Any],
        model: Any = None,
        optimizer: Any = None,
        *,
        parameters: Iterable[Any] | None = None,
        scaler: Any = None,
        reduction: Literal["mean", "sum"] = "mean",
        weight_fn: Callable[[Any], Any] | None = None,
        cut: Cut | None = None,
        split_fn: Callable[[Any, Sequence[int]], Sequence[Any]] | None = None,
        micro_batch_size: int | None = None,
        min_size: int = 1,
        grow_after: int = 100,
        ddp_sync: Literal["agreed", "overlapped"] = "agreed",
        group: Any = None,
        backward: Callable[[Any], None] | None = None,
        max_grad_norm: float | None = None,
        keep_grads_on: Literal["device", "cpu"] = "device",
        restore_rng: bool = True,
        recorder: Any = None,
    ) -> None:
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction={reduction!r}: write 'mean' or 'sum', as the loss joins its samples")
        if ddp_sync not in ("agreed", "overlapped") or keep_grads_on not in ("device", "cpu"):
            raise ValueError("ddp_sync is 'agreed' or 'overlapped', keep_grads_on 'device' or 'cpu'")
        refuse_what_is_no_function(step_fn, weight_fn=weight_fn, split_fn=split_fn, backward=backward)
        if cut is not None and not isinstance(cut, Cut):
            raise TypeError(f"cut is a vramwise.microbatch.Cut, not {cut!r}")
        min_size, grow_after = whole_number(min_size, "min_size"), whole_number(grow_after, "grow_after", least=0)
        micro_batch_size = None if micro_batch_size is None else whole_number(micro_batch_size, "micro_batch_size")
        if max_grad_norm is not None and (isinstance(max_grad_norm, bool) or not isinstance(max_grad_norm, Real)):
            raise TypeError(f"max_grad_norm is a number, not {max_grad_norm!r}")
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"max_grad_norm is {max_grad_norm}: a norm to clip to is above 0")
        if min_size < 1 or (micro_batch_size is not None and micro_batch_size < min_size):
            raise ValueError("min_size is at least 1, and micro_batch_size at least min_size")
        if weight_fn is not None and reduction == "sum":
            raise ValueError("weight_fn is for reduction='mean': sums need no weights")
        refuse_other_kinds(model, optimizer, scaler, recorder)
        self._step_fn, self._model, self._optimizer = step_fn, model, optimizer
        if parameters is not None and not isinstance(parameters, Iterable):
            raise TypeError(f"parameters are tensors in a list, not {parameters!r}")
        self._parameters = None if parameters is None else list(parameters)
        if model is None and optimizer is None and self._parameters is None:
            raise ValueError("give model=, optimizer= or parameters=: after a failure their gradients are put back")
        self._scaler, self._backward = scaler, backward
        self._overlapped = ddp_sync == "overlapped"
        self._group, self._max_norm = group, max_grad_norm
        self._keep_on, self._restore_rng = keep_grads_on, restore_rng
        self._recorder = recorder
        self.training_size = MicroSize(grow_after, min_size, micro_batch_size)
        self.evaluation_size = MicroSize(grow_after, min_size, micro_batch_size)
        self._sharded = model is not None and is_sharded(model)
        self._parts = Parts(cut or Cut(), split_fn, reduction == "mean", weight_fn, all_needed=self._sharded)
        self._changing: set[str] | None = None
        self._stage = "forward pass"
        self._ranks: Ranks | None = None

    def step(self, batch: Any) -> StepOutcome:
        """Gradients of a batch, the optimizer's step, and no gradients afterwards.

        Args:
            batch: the batch, in whatever form the step function takes it.

        Raises:
            Exception: out of memory with the smallest part, or in the middle of the optimizer's step, with notes;
                whatever the step function raises.
            ValueError: there is no optimizer.
        """
        optimizer = self._optimizer
        if optimizer is None:
            raise ValueError("step() needs optimizer=; backward() takes a batch without one")
        outcome = self.backward(batch)
        if self._max_norm is not None:
            import torch

            if self._scaler is not None:
                self._scaler.unscale_(optimizer)
            held = [one for group in optimizer.param_groups for one in group["params"]]
            torch.nn.utils.clip_grad_norm_(held, self._max_norm)
        scaler = self._scaler
        guarded_step(optimizer, optimizer.step if scaler is None else lambda: scaler.step(optimizer))
        if scaler is not None:
            scaler.update()
        optimizer.zero_grad(set_to_none=True)
        outcome.stepped = True
        return outcome

    __call__ = step

    def backward(self, batch: Any) -> StepOutcome:
        """Adds a batch's gradients to those that are there, in as many parts as it takes.

        Raises:
            Exception: as for :meth:`step`. Gradients are then what they were before.
            OtherRankError: another rank failed.
        """
        ranks = self._agreeing()
        immeasurable: Exception | None = None
        samples, whole_only = 1, None
        try:
            samples, whole_only = self._parts.measure(batch)
        except Exception as error:  # noqa: BLE001 - raised below, when the other ranks know
            immeasurable = error
        sync = Unsynchronised(self._model)
        if sync:
            sync.broadcast_buffers()
        if immeasurable is not None:
            if self._sharded:
                ranks.most(1)
            ranks.least([FAILED])
            raise immeasurable
        warn_of_batch(samples, whole_only)
        undo = self._undo(batch)
        tried: list[int] = []
        ended: BaseException | None = None
        try:
            outcome = self._until_it_fits(batch, samples, whole_only, sync, ranks, undo, tried)
        except GivenUpError as end:
            undo.give_up()
            ended = self._end(end.failure, tried, end.why or whole_only)
        except BaseException:
            undo.give_up()
            raise
        if ended is not None:
            # Not above: there it would lose the cause that it has.
            raise ended
        outcome.retries = len(tried)
        if self._model is not None:
            self._changing = (self._changing or set()) | undo.changed_buffers()
        undo.keep()
        if sync and not outcome.synchronised:
            sync.synchronise()
        self.training_size.passed()
        return outcome

    def _until_it_fits(
        self,
        batch: Any,
        samples: int,
        whole_only: str | None,
        sync: Unsynchronised,
        ranks: Ranks,
        undo: Undo,
        tried: list[int],
    ) -> StepOutcome:
        """Attempts with ever smaller parts, everything put back in between.

        Raises:
            GivenUpError: the smallest does not fit.
        """
        while True:
            count = self.training_size.parts(samples)
            sizes = even_sizes(samples, ranks.most(count) if self._sharded else count)
            warn_about_model(self._model, len(sizes), sync)
            outcome, failure = self._attempt(batch, sizes, sync, ranks)
            if outcome is not None:
                return outcome
            keep_snapshot(self._recorder, failure)
            tried.append(sizes[0])
            undo.roll_back()
            why = forget_sharded_attempt(self._model) if self._sharded else None
            free_after_oom(failure)
            if self._sharded and (why := cannot_resume(self._model) or why) is not None:
                raise GivenUpError(failure, why)
            longest, whole = (-least for least in ranks.least([-sizes[0], -samples]))
            if whole_only is not None or not self.training_size.failed(longest=longest, whole=whole):
                raise GivenUpError(failure)
            del failure

    def evaluate(self, fn: Callable[[Any], Any], batch: Any) -> list[Any]:
        """What a function gives for a batch, without gradients, in as many parts as it takes; one result for each part.

        Its size is remembered apart from training's. Ranks do not agree here: under DDP nothing is communicated, and
        with FSDP all ranks should use the same :attr:`evaluation_size`.

        Args:
            fn: called with the batch or a part of it.
            batch: the batch.

        Raises:
            Exception: out of memory with the smallest part, with notes; whatever the function raises.
        """
        import torch

        samples, whole_only = self._parts.measure(batch)
        tried: list[int] = []
        self._stage = "evaluation"
        while True:
            sizes = even_sizes(samples, self.evaluation_size.parts(samples))
            witness = OomWitness()
            try:
                with torch.no_grad():
                    results = [fn(part) for part in self._parts.of(batch, sizes)]
            except Exception as error:
                if not witness.saw_oom(error):
                    raise
                failure = error
            else:
                self.evaluation_size.passed()
                return results
            keep_snapshot(self._recorder, failure)
            tried.append(sizes[0])
            free_after_oom(failure)
            if whole_only is not None or not self.evaluation_size.failed(longest=sizes[0], whole=samples):
                raise self._end(failure, tried, whole_only)
            del failure

    def _attempt(
        self, batch: Any, sizes: list[int], sync: Unsynchronised, ranks: Ranks
    ) -> tuple[StepOutcome | None, Exception | None]:
        """All parts once, and what all ranks make of it: the outcome, or this rank's error if it is out of memory.

        Raises:
            Exception: whatever this rank failed with besides, when the others know.
        """
        overlapped = bool(sync) and self._overlapped and self.training_size.proven
        outcome = StepOutcome(None, [None] * len(sizes), list(sizes), synchronised=overlapped)
        witness = OomWitness()
        failure: Exception | None = None
        work: list[tuple[int, Any, float]] = []
        try:
            self._stage = "preparation"
            parts = self._parts.of(batch, sizes)
            work = list(zip(range(len(parts)), parts, self._parts.shares(parts, sizes), strict=True))
            if overlapped:
                # DDP communicates in the last one, which therefore must not be one that counts for nothing.
                work.sort(key=lambda one: one[2] > 0)
            with sync.scope():
                for number, part, share in work[:-1] if overlapped else work:
                    self._one_part(outcome, number, part, share)
        except Exception as error:
            if not witness.saw_oom(error):
                ranks.least([FAILED])
                raise
            failure = error
        worst = ranks.least([FINE if failure is None else OUT_OF_MEMORY])[0]
        if worst == FAILED:
            raise OtherRankError("another rank failed at this step; its log says why")
        if worst == FINE and overlapped:
            try:
                self._one_part(outcome, *work[-1])
            except Exception as error:
                if witness.saw_oom(error):
                    add_note(error, NOT_RECOVERABLE)
                raise
        return (outcome, None) if worst == FINE else (None, failure)

    def _one_part(self, outcome: StepOutcome, number: int, part: Any, share: float) -> None:
        """One part forward and backward; its share of the loss, and what else there is, go to the outcome."""
        if share == 0.0:
            # Nothing in it counts; its own mean would be 0 / 0.
            return
        self._stage = "forward pass"
        loss, rest = loss_and_rest(self._step_fn(part))
        weighted = loss if share == 1.0 else loss * share
        value = weighted.detach()
        if self._scaler is not None:
            weighted = self._scaler.scale(weighted)
        self._stage = "backward pass"
        if self._backward is not None:
            self._backward(weighted)
        else:
            weighted.backward()
        outcome.rest[number] = detached(rest)
        outcome.loss = value if outcome.loss is None else outcome.loss + value

    def _undo(self, batch: Any) -> Undo:
        parameters = self._parameters
        if parameters is None:
            parameters = list(self._model.parameters()) if self._model is not None else []
            known = {id(one) for one in parameters}
            groups = self._optimizer.param_groups if self._optimizer is not None else []
            parameters += [one for group in groups for one in group["params"] if id(one) not in known]
        own = tensors_with_gradients(batch)
        known = {id(one) for one in parameters}
        training = self._model is not None and self._model.training
        return Undo(
            [*parameters, *(one for one in own if id(one) not in known)],
            list(self._model.named_buffers()) if training else [],
            changing=self._changing,
            keep_on=self._keep_on,
            rng=self._restore_rng,
        )

    def _agreeing(self) -> Ranks:
        if self._ranks is None:
            self._ranks = Ranks(self._group, wait_s=120.0 if self._sharded else None)
        return self._ranks

    def _end(self, failure: Exception | None, tried: list[int], whole_only: str | None) -> BaseException:
        """The error for the caller: this rank's own, with notes, or one about the rank that has it."""
        if failure is None:
            return OtherRankError(f"another rank ran out of memory with every size down to {tried[-1]} samples at once")
        for note in notes_for(tried, self._stage, whole_only, sharded=self._sharded):
            add_note(failure, note)
        return failure
