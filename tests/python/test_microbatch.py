"""Micro-batches: the same gradients as the whole batch, and everything as before after a failed attempt."""

# ruff: noqa: B023 (functions that are made in a loop are called in the same turn)

import dataclasses
import gc
import types
import unittest
import unittest.mock
import warnings
import weakref

from batch_support import HAS_TORCH, less_garbage, needs_torch, out_of_memory

if HAS_TORCH:
    import torch

    from vramwise import MicroBatcher, oom_retry
    from vramwise.errors import VramwiseError


def setUpModule():
    less_garbage()


def tearDownModule():
    gc.unfreeze()


def too_large(part, most):
    if len(part[0]) > most:
        raise out_of_memory()


def model_and_batch(dtype=None, samples=10):
    torch.manual_seed(5)
    dtype = dtype or torch.float64
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).to(dtype)
    return model, (torch.randn(samples, 6, dtype=dtype), torch.randint(0, 3, (samples,)))


def gradients(model):
    return [None if one.grad is None else one.grad.clone() for one in model.parameters()]


def whole_gradients(model, loss):
    model.zero_grad()
    loss.backward()
    whole = gradients(model)
    model.zero_grad()
    return whole


@needs_torch
class SameGradients(unittest.TestCase):
    def assert_close(self, got, wanted, relative):
        for one, other in zip(got, wanted, strict=True):
            error = (one - other).norm() / other.norm()
            self.assertLessEqual(float(error.detach()), relative)

    def check(self, dtype, relative, reduction, samples=10):
        model, batch = model_and_batch(dtype, samples)
        loss_fn = torch.nn.CrossEntropyLoss(reduction=reduction)
        whole = whole_gradients(model, loss_fn(model(batch[0]), batch[1]))

        def step_fn(part):
            too_large(part, 3)
            return loss_fn(model(part[0]), part[1])

        outcome = MicroBatcher(step_fn, model, reduction=reduction).backward(batch)
        self.assert_close(gradients(model), whole, relative)
        expected = loss_fn(model(batch[0]), batch[1]).detach()
        self.assertLessEqual(float((outcome.loss - expected).abs() / expected.abs()), relative)
        self.assertFalse(outcome.loss.requires_grad)
        return outcome

    def test_of_means_and_sums_in_both_precisions(self):
        for reduction in ("mean", "sum"):
            self.check(torch.float64, 1e-12, reduction)
            self.check(torch.float32, 1e-6, reduction)

    def test_where_the_parts_are_not_equal(self):
        outcome = self.check(torch.float64, 1e-12, "mean", samples=11)
        self.assertEqual((outcome.sizes, outcome.retries), ([2, 2, 2, 2, 2, 1], 2))

    def test_of_a_mean_over_tokens_that_are_not_padding(self):
        torch.manual_seed(1)
        model = torch.nn.Embedding(11, 11).double()
        tokens, labels = torch.randint(0, 11, (8, 5)), torch.randint(0, 11, (8, 5))
        for row, length in enumerate([5, 1, 0, 0, 4, 2, 3, 1]):
            labels[row, length:] = -100
        loss_fn = torch.nn.CrossEntropyLoss(ignore_index=-100)

        def step_fn(part):
            if len(part["tokens"]) > 2:
                raise out_of_memory()
            return loss_fn(model(part["tokens"]).flatten(0, 1), part["labels"].flatten())

        batch = {"tokens": tokens, "labels": labels}
        whole = whole_gradients(model, loss_fn(model(tokens).flatten(0, 1), labels.flatten()))
        batcher = MicroBatcher(step_fn, model, weight_fn=lambda part: (part["labels"] != -100).sum())
        outcome = batcher.backward(batch)
        self.assert_close(gradients(model), whole, 1e-12)
        # The second part is padding only: its own mean would be 0 / 0.
        self.assertIsNone(outcome.rest[1])
        self.assertTrue(torch.isfinite(outcome.loss))
        # Weighted by samples it would be wrong, so the weights matter here.
        model.zero_grad()
        MicroBatcher(step_fn, model).backward(batch)
        self.assertFalse(all(torch.allclose(a, b, equal_nan=False) for a, b in zip(gradients(model), whole)))

    def test_added_to_gradients_that_were_there(self):
        model, batch = model_and_batch()
        loss_fn = torch.nn.CrossEntropyLoss()
        earlier = whole_gradients(model, loss_fn(model(batch[0] * 2), batch[1]))
        whole = whole_gradients(model, loss_fn(model(batch[0]), batch[1]))
        for keep_on in ("device", "cpu"):
            for one, gradient in zip(model.parameters(), earlier):
                one.grad = gradient.clone()

            def step_fn(part):
                too_large(part, 4)
                return loss_fn(model(part[0]), part[1])

            MicroBatcher(step_fn, model, keep_grads_on=keep_on).backward(batch)
            self.assert_close(gradients(model), [a + b for a, b in zip(earlier, whole)], 1e-12)

    def test_under_a_gradient_scaler(self):
        model, batch = model_and_batch(torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        reference, _ = model_and_batch(torch.float32)
        loss_fn = torch.nn.CrossEntropyLoss()
        loss_fn(reference(batch[0]), batch[1]).backward()
        torch.optim.SGD(reference.parameters(), lr=0.1).step()

        def step_fn(part):
            too_large(part, 4)
            return loss_fn(model(part[0]), part[1])

        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        outcome = MicroBatcher(step_fn, model, optimizer, scaler=scaler, max_grad_norm=1e9).step(batch)
        self.assertTrue(outcome.stepped)
        self.assertTrue(all(one.grad is None for one in model.parameters()))
        self.assert_close(list(model.parameters()), list(reference.parameters()), 1e-6)

    def test_under_autocast_around_it_all(self):
        model, batch = model_and_batch(torch.float32)

        def step_fn(part):
            too_large(part, 3)
            return torch.nn.functional.cross_entropy(model(part[0]), part[1])

        with torch.autocast("cpu", torch.bfloat16):
            outcome = MicroBatcher(step_fn, model).backward(batch)
        self.assertEqual(len(outcome.sizes), 5)
        self.assertTrue(all(torch.isfinite(one).all() for one in gradients(model)))


@needs_torch
class AsBefore(unittest.TestCase):
    def test_gradients_come_back_bit_by_bit_when_it_is_given_up(self):
        model, batch = model_and_batch()
        for one in model.parameters():
            one.grad = torch.randn_like(one)
        before = [(one.grad, one.grad.clone()) for one in model.parameters()]

        def step_fn(part):
            loss = torch.nn.functional.cross_entropy(model(part[0]), part[1])
            # The backward pass has reached the last layer when this fails.
            model[0].weight.register_hook(fail)
            return loss

        def fail(gradient):
            raise out_of_memory()

        for keep_on in ("device", "cpu"):
            with self.assertRaises(torch.OutOfMemoryError) as raised:
                MicroBatcher(step_fn, model, keep_grads_on=keep_on).backward(batch)
            for one, (_, copy) in zip(model.parameters(), before):
                self.assertTrue(torch.equal(one.grad, copy))
        notes = "\n".join(raised.exception.__notes__)
        self.assertIn("backward pass with 10, 5, 2, 1 samples at once", notes)

    def test_after_failures_in_every_place(self):  # noqa: C901 (one place after another)
        for place in ("forward", "hook of a module", "backward", "hook of a gradient"):
            with self.subTest(place):
                model, batch = model_and_batch()
                state = {"failures": 1}

                def fail(*_):
                    if state["failures"]:
                        state["failures"] -= 1
                        raise out_of_memory()

                class Fails(torch.autograd.Function):
                    @staticmethod
                    def forward(ctx, x):
                        return x.clone()

                    @staticmethod
                    def backward(ctx, gradient):
                        fail()
                        return gradient

                if place == "hook of a module":
                    model[1].register_forward_hook(fail)
                if place == "hook of a gradient":
                    model[0].weight.register_post_accumulate_grad_hook(fail)

                def step_fn(part):
                    hidden = model(part[0])
                    if place == "forward":
                        fail()
                    if place == "backward":
                        hidden = Fails.apply(hidden)
                    return torch.nn.functional.cross_entropy(hidden, part[1])

                outcome = MicroBatcher(step_fn, model).backward(batch)
                self.assertEqual((outcome.retries, outcome.sizes), (1, [5, 5]))
                got = gradients(model)
                whole = whole_gradients(model, torch.nn.functional.cross_entropy(model(batch[0]), batch[1]))
                for one, other in zip(got, whole):
                    self.assertTrue(torch.allclose(one, other, rtol=1e-12, atol=1e-15))

    def test_random_numbers_are_drawn_again(self):
        model, batch = model_and_batch()
        drawn = []

        def step_fn(part):
            drawn.append(torch.rand(1).item())
            too_large(part, 5)
            return torch.nn.functional.cross_entropy(model(part[0]), part[1])

        MicroBatcher(step_fn, model).backward(batch)
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[1], drawn[2])

    def test_running_statistics_do_not_count_a_failed_attempt(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
        batch = (torch.randn(8, 6), torch.randint(0, 3, (8,)))
        failures = [2]

        def step_fn(part):
            loss = torch.nn.functional.cross_entropy(model(part[0]), part[1])
            if failures[0]:
                failures[0] -= 1
                raise out_of_memory()
            return loss

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            batcher = MicroBatcher(step_fn, model)
            for _ in range(2):
                batcher.backward(batch)
        # Four parts a step, two steps: the two failed attempts are forgotten.
        self.assertEqual(int(model[1].num_batches_tracked), 8)
        self.assertEqual(sum("batch normalisation" in str(one.message) for one in said), 1)

    def test_nothing_of_a_failed_attempt_stays_alive(self):
        model, batch = model_and_batch()
        seen = []

        def step_fn(part):
            hidden = model(part[0])
            seen.append(weakref.ref(hidden))
            if len(part[0]) > 5:
                loop = [hidden]
                loop.append(loop)
                raise out_of_memory()
            if len(seen) == 2:
                seen.append(seen[0]() is None)
            return torch.nn.functional.cross_entropy(hidden, part[1])

        MicroBatcher(step_fn, model).backward(batch)
        self.assertIs(seen[2], True)

    def test_other_errors_pass_at_once_and_leave_gradients_as_before(self):
        for error in (ValueError("a label is missing"), KeyboardInterrupt()):
            model, batch = model_and_batch()
            model[2].bias.grad = torch.ones(3, dtype=torch.float64)
            calls = []

            def step_fn(part):
                calls.append(len(part[0]))
                torch.nn.functional.cross_entropy(model(part[0]), part[1]).backward()
                raise error

            with self.assertRaises(type(error)):
                MicroBatcher(step_fn, model).backward(batch)
            self.assertEqual(calls, [10])
            self.assertTrue(torch.equal(model[2].bias.grad, torch.ones(3, dtype=torch.float64)))
            self.assertIsNone(model[0].weight.grad)

    def test_a_cause_that_is_out_of_memory_counts_and_stays_the_cause(self):
        model, batch = model_and_batch()

        def step_fn(part):
            try:
                raise out_of_memory()
            except RuntimeError as error:
                raise RuntimeError("the worker failed") from error

        with self.assertRaisesRegex(RuntimeError, "the worker failed") as raised:
            MicroBatcher(step_fn, model).backward(batch)
        self.assertIsInstance(raised.exception.__cause__, torch.OutOfMemoryError)

    def test_a_worker_of_a_data_loader_that_runs_out_of_host_memory_counts(self):
        model, batch = model_and_batch()
        text = (
            "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            '  File "data.py", line 3, in __getitem__\n    return load(index)\n'
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
            "you tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)\n"
        )

        def step_fn(part):
            if len(part[0]) > 5:
                raise RuntimeError(text)
            return torch.nn.functional.cross_entropy(model(part[0]), part[1])

        self.assertEqual(MicroBatcher(step_fn, model).backward(batch).retries, 1)


@needs_torch
class TheSize(unittest.TestCase):
    def sizes(self, limits, steps, **options):
        model, batch = model_and_batch(samples=16)
        limit = [0]

        def step_fn(part):
            too_large(part, limit[0])
            return torch.nn.functional.cross_entropy(model(part[0]), part[1])

        batcher, seen = MicroBatcher(step_fn, model, **options), []
        for step in range(steps):
            limit[0] = limits(step)
            outcome = batcher.backward(batch)
            seen.append((outcome.sizes[0], outcome.retries))
        return seen

    def test_is_remembered(self):
        self.assertEqual(self.sizes(lambda step: 5, 3), [(4, 2), (4, 0), (4, 0)])

    def test_halves_rounded_down_as_the_guide_says(self):
        for samples, fits, parts in ((8, 4, [4, 4]), (8, 2, [2] * 4), (7, 3, [3, 2, 2]), (7, 2, [1] * 7)):
            model, batch = model_and_batch(samples=samples)

            def step_fn(part, model=model, fits=fits):
                too_large(part, fits)
                return torch.nn.functional.cross_entropy(model(part[0]), part[1])

            with self.subTest(samples=samples, fits=fits):
                self.assertEqual(MicroBatcher(step_fn, model).backward(batch).sizes, parts)

    def test_parts_that_all_weigh_nothing_count_by_their_samples(self):
        model, batch = model_and_batch(samples=3)

        def step_fn(part):
            too_large(part, 2)
            return torch.nn.functional.cross_entropy(model(part[0]), part[1], ignore_index=int(part[1][0]), reduction="sum")

        seen = []
        batcher = MicroBatcher(lambda part: seen.append(len(part[1])) or step_fn(part), model, weight_fn=lambda part: 0)
        outcome = batcher.backward(batch)
        self.assertEqual((outcome.sizes, seen), ([1, 1, 1], [3, 1, 1, 1]))
        self.assertIsNotNone(outcome.loss)

    def test_grows_again_after_a_while(self):
        seen = self.sizes(lambda step: 5 if step < 1 else 99, 6, grow_after=2)
        self.assertEqual(seen, [(4, 2), (4, 0), (8, 0), (8, 0), (16, 0), (16, 0)])

    def test_waits_longer_after_growth_failed(self):
        seen = self.sizes(lambda step: 8, 9, grow_after=2)
        self.assertEqual([step for step, (_, retries) in enumerate(seen) if retries], [0, 2, 6])
        self.assertEqual({size for size, _ in seen}, {8})

    def test_ends_with_the_smallest_that_is_allowed(self):
        with self.assertRaises(torch.OutOfMemoryError) as raised:
            self.sizes(lambda step: 1, 1, min_size=3)
        self.assertIn("16, 8, 4, 3 samples", "\n".join(raised.exception.__notes__))

    def test_is_remembered_by_the_place_of_the_step_function(self):
        model, batch = model_and_batch(samples=8)
        retries = []
        for _ in range(3):

            def step_fn(part):
                too_large(part, 2)
                return torch.nn.functional.cross_entropy(model(part[0]), part[1])

            retries.append(oom_retry(step_fn, batch, model).retries)
        self.assertEqual(retries, [2, 0, 0])

    def test_of_evaluation_is_another(self):
        model, batch = model_and_batch(samples=8)

        def fn(part):
            too_large(part, 2)
            return model(part[0])

        batcher = MicroBatcher(lambda part: model(part[0]).sum(), model)
        results = batcher.evaluate(fn, batch)
        self.assertEqual([len(one) for one in results], [2, 2, 2, 2])
        self.assertTrue(torch.allclose(torch.cat(results), model(batch[0])))
        self.assertFalse(results[0].requires_grad)
        self.assertEqual(batcher.backward(batch).sizes, [8])


@needs_torch
class TheOptimizer(unittest.TestCase):
    def failing(self, model, calls, halfway):
        class Fails(torch.optim.AdamW):
            @torch.no_grad()
            def step(self, closure=None):
                calls.append(self.param_groups[0]["foreach"])
                if len(calls) == 1:
                    first = next(iter(model.parameters()))
                    if halfway:
                        first.mul_(0.9)
                    else:
                        self.state[first]["exp_avg"] = torch.zeros_like(first)
                    raise out_of_memory()
                return super().step(closure)

        return Fails(model.parameters(), lr=0.1)

    def test_steps_again_without_foreach_where_nothing_was_updated(self):
        model, batch = model_and_batch()
        reference, _ = model_and_batch()
        loss_fn = torch.nn.CrossEntropyLoss()
        loss_fn(reference(batch[0]), batch[1]).backward()
        torch.optim.AdamW(reference.parameters(), lr=0.1, foreach=False).step()
        calls = []
        optimizer = self.failing(model, calls, halfway=False)
        with self.assertWarnsRegex(RuntimeWarning, "foreach=False"):
            MicroBatcher(lambda part: loss_fn(model(part[0]), part[1]), model, optimizer).step(batch)
        self.assertEqual(calls, [None, False])
        for one, other in zip(model.parameters(), reference.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_says_that_half_a_step_was_taken(self):
        model, batch = model_and_batch()
        calls = []
        optimizer = self.failing(model, calls, halfway=True)
        step_fn = lambda part: torch.nn.functional.cross_entropy(model(part[0]), part[1])  # noqa: E731
        with self.assertRaises(torch.OutOfMemoryError) as raised:
            MicroBatcher(step_fn, model, optimizer).step(batch)
        self.assertEqual(len(calls), 1)
        self.assertIn("partly updated", "\n".join(raised.exception.__notes__))


class Recorder:
    def __init__(self):
        self.reasons = []
        self.options = types.SimpleNamespace(on_oom=False)

    def dump(self, reason):
        self.reasons.append(reason)


class WhatOfFsdpCannotBeForgotten(unittest.TestCase):
    def test_nothing_is_tried_again_where_a_release_is_unknown(self):
        from vramwise.microbatch.parallel import forget_sharded_attempt

        def state(self):
            raise AttributeError("no state")

        sharded = type("FSDPModule", (), {"__module__": "torch.distributed.fsdp.later", "_get_fsdp_state": state})()
        model = types.SimpleNamespace(modules=lambda: [types.SimpleNamespace(), sharded])
        self.assertIn("cannot forget an interrupted pass (AttributeError: no state)", forget_sharded_attempt(model))
        self.assertIsNone(forget_sharded_attempt(types.SimpleNamespace(modules=lambda: [types.SimpleNamespace()])))


@needs_torch
class Around(unittest.TestCase):
    def test_a_recorder_keeps_the_failed_attempt(self):
        model, batch = model_and_batch()
        recorder = Recorder()

        def step_fn(part):
            too_large(part, 5)
            return torch.nn.functional.cross_entropy(model(part[0]), part[1])

        MicroBatcher(step_fn, model, recorder=recorder).backward(batch)
        self.assertEqual(recorder.reasons, ["oom-retry"])
        # Without one being named, those at work; not where they heard of it from the allocator.
        heard = Recorder()
        heard.options.on_oom, heard.heard_failure = True, True
        with unittest.mock.patch("vramwise.recorder.attempts.at_work", lambda: [recorder, heard]):
            MicroBatcher(step_fn, model).backward(batch)
        self.assertEqual((recorder.reasons, heard.reasons), (["oom-retry"] * 2, []))

    def test_wrong_arguments_say_what_is_right(self):
        model, _ = model_and_batch()
        step_fn = lambda part: None  # noqa: E731
        for options, words in (
            ({"reduction": "none"}, "'mean' or 'sum'"),
            ({"min_size": 0}, "at least 1"),
            ({"reduction": "sum", "weight_fn": len}, "sums need no weights"),
            ({"ddp_sync": "later"}, "'agreed' or 'overlapped'"),
            ({"max_grad_norm": -1.0}, "above 0"),
            ({"grow_after": -1}, "at least 0"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                MicroBatcher(step_fn, model, **options)
        for options, words in (
            ({"min_size": None}, "whole number"),
            ({"micro_batch_size": 1.5}, "whole number"),
            ({"cut": "rows"}, "a vramwise.microbatch.Cut"),
            ({"weight_fn": 3}, "weight_fn is a function"),
        ):
            with self.subTest(options), self.assertRaisesRegex(TypeError, words):
                MicroBatcher(step_fn, model, **options)
        with self.assertRaisesRegex(TypeError, "step_fn is a function"):
            MicroBatcher(None, model)
        with self.assertRaisesRegex(ValueError, "give model="):
            MicroBatcher(step_fn)
        with self.assertRaisesRegex(ValueError, "needs optimizer="):
            MicroBatcher(step_fn, model).step([])
        with self.assertRaisesRegex(TypeError, "without a loss"):
            MicroBatcher(step_fn, model).backward((torch.zeros(2, 6),))
        with self.assertRaisesRegex(ValueError, "reduce it to a scalar"):
            MicroBatcher(lambda part: model(part[0]), model).backward((torch.zeros(2, 6).double(),))

    def test_losses_in_tuples_mappings_and_objects(self):
        model, batch = model_and_batch()

        @dataclasses.dataclass
        class Output:
            loss: object
            logits: object

        for kind in (lambda loss, out: (loss, out), lambda loss, out: {"loss": loss, "logits": out}, Output):
            outcome = MicroBatcher(
                lambda part, kind=kind: kind(
                    torch.nn.functional.cross_entropy(model(part[0]), part[1]), model(part[0])
                ),
                model,
                micro_batch_size=5,
            ).backward(batch)
            self.assertEqual(len(outcome.rest), 2)

    def test_a_batch_that_cannot_be_cut_is_said_to_be_so(self):
        model, _ = model_and_batch()

        def step_fn(part):
            raise out_of_memory()

        with self.assertRaises(torch.OutOfMemoryError) as raised:
            MicroBatcher(step_fn, model).backward((torch.zeros(4, 6), torch.zeros(5)))
        self.assertIn("cannot go in parts", "\n".join(raised.exception.__notes__))
        self.assertTrue(issubclass(VramwiseError, Exception))


if __name__ == "__main__":
    unittest.main()
