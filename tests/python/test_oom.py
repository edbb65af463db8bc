"""Which errors are out of memory, and what gives the memory back."""

import errno
import gc
import sys
import unittest
import weakref

from batch_support import needs_torch, out_of_memory
from vramwise import is_oom_error
from vramwise.oom import OomWitness, add_note, free_after_oom, release_frames

FAILED_ALLOCATIONS = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 2.42 GiB already allocated; 26.12 MiB free; 2.75 GiB reserved in total by PyTorch)",
    "CUDA out of memory. Tried to allocate 1.38 GiB. GPU 5 has a total capacity of 79.21 GiB of which 974.75 MiB is free.",
    "CUDA out of memory.",
    "HIP out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 15.24 GiB",
    "XPU out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 15.11 GiB.",
    "MPS backend out of memory (MPS allocated: 5.56 GB, other allocations: 1.10 GB, max allowed: 6.80 GB). Tried to allocate 768.00 MB on private pool.",
    "Invalid buffer size: 24.00 GB",
    "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 132426121216 bytes. Error code 12 (Cannot allocate memory)",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 5077901088 bytes.",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "CUDA driver error: out of memory",
    "cuda runtime error (2) : out of memory at THCStorage.cu:65",
    "Triton Error [CUDA]: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled cuda error, NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
    "Last error:\nFailed to CUDA calloc async 608 bytes",
    "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":995, please report a bug',
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 4.86 GiB",
    "RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes.",
    "unable to mmap 4194304 bytes from file </torch_12>: Cannot allocate memory (12)",
    "DataLoader worker (pid 313) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.84 GiB. GPU 1 has a total capacity of",
    'Caught RuntimeError in replica 3 on device 3.\nOriginal Traceback (most recent call last):\n  File "train.py", line 5, in forward\n    x = f(x)\nRuntimeError: CUDA out of memory. Tried to allocate 16.00 MiB (GPU 3; 31.75 GiB total capacity',
)

OTHER_ERRORS = (
    "mat1 and mat2 shapes cannot be multiplied (8x16 and 8x8)",
    "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1. If you encounter CUDA out of memory, try a smaller tile",
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "CUDA error: device-side assert triggered",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "GET was unable to find an engine to execute this computation",
    "out of resource: shared memory, Required: 264192, Hardware limit: 232448. Reducing block sizes may help.",
    "DataLoader worker (pid 313) is killed by signal: Killed.",
    "Tried to allocate more memory than the limit of the simulation allows",
    "CUDA out of memory. Tried to allocate more than 1EB memory.",
    'Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File "data.py", line 3, in load\n    raise ValueError("bad") if ok else RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")\nValueError: bad\n',
    "No available shared memory broadcast block found in 60 seconds.",
    "",
)


class WhichErrors(unittest.TestCase):
    def test_failed_allocations_are(self):
        for text in FAILED_ALLOCATIONS:
            self.assertTrue(is_oom_error(RuntimeError(text)), text)

    def test_all_else_is_not(self):
        for text in OTHER_ERRORS:
            self.assertFalse(is_oom_error(RuntimeError(text)), text)
        self.assertFalse(is_oom_error(None))

    def test_the_class_decides_where_it_can(self):
        class OutOfMemoryError(RuntimeError):
            pass

        OutOfMemoryError.__module__ = "torch_of_a_vendor"
        self.assertTrue(is_oom_error(OutOfMemoryError("not one known word")))
        self.assertTrue(is_oom_error(MemoryError()))
        self.assertTrue(is_oom_error(OSError(errno.ENOMEM, "Cannot allocate memory")))
        self.assertFalse(is_oom_error(OSError(errno.ENOSPC, "No space left on device")))
        for kind in (ValueError, TypeError, AssertionError, KeyError):
            self.assertFalse(is_oom_error(kind(FAILED_ALLOCATIONS[0])), kind)
        self.assertFalse(is_oom_error(KeyboardInterrupt(FAILED_ALLOCATIONS[0])))

    @needs_torch
    def test_torch_raises_such_a_class(self):
        import torch

        self.assertTrue(is_oom_error(torch.OutOfMemoryError("whatever")))
        with self.assertRaises(RuntimeError) as raised:
            torch.empty(1 << 55, dtype=torch.uint8)
        self.assertTrue(is_oom_error(raised.exception))
        with self.assertRaises(RuntimeError) as raised:
            torch.zeros(2, 3) @ torch.zeros(2, 3)
        self.assertFalse(is_oom_error(raised.exception))

    @needs_torch
    def test_a_worker_of_a_data_loader_raises_one(self):
        import torch

        class TooLarge(torch.utils.data.Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, index):
                return torch.empty(1 << 55, dtype=torch.uint8)

        with self.assertRaises(RuntimeError) as raised:
            list(torch.utils.data.DataLoader(TooLarge(), num_workers=1))
        self.assertIn("DataLoader worker", str(raised.exception))
        self.assertTrue(is_oom_error(raised.exception))

    def test_hidden_ones_are_found(self):
        def chained(explicit):
            try:
                try:
                    raise out_of_memory()
                except RuntimeError as error:
                    if explicit is None:
                        raise ValueError("the step failed") from None
                    if explicit:
                        raise ValueError("the step failed") from error
                    raise ValueError("the step failed")  # noqa: B904 (an implicit context is the point)
            except ValueError as error:
                return error

        self.assertTrue(is_oom_error(chained(True)))
        self.assertTrue(is_oom_error(chained(False)))
        self.assertFalse(is_oom_error(chained(None)))

    def test_an_interrupt_on_the_way_ends_the_search(self):
        error = RuntimeError("stopped")
        error.__cause__ = KeyboardInterrupt()
        error.__cause__.__context__ = out_of_memory()
        self.assertFalse(is_oom_error(error))

    def test_chains_may_have_cycles(self):
        one, other = RuntimeError("one"), RuntimeError("other")
        one.__cause__, other.__cause__ = other, one
        self.assertFalse(is_oom_error(one))
        release_frames(one)

    @unittest.skipIf(sys.version_info < (3, 11), "exception groups came with Python 3.11")
    def test_groups_are_if_all_their_members_are(self):
        group = ExceptionGroup  # noqa: F821 (3.11)
        self.assertTrue(is_oom_error(group("ranks", [out_of_memory(), group("nested", [MemoryError()])])))
        self.assertFalse(is_oom_error(group("ranks", [out_of_memory(), ValueError("no")])))

    def test_a_text_that_cannot_be_made_is_none(self):
        class Broken(RuntimeError):
            def __str__(self):
                raise ValueError

        self.assertFalse(is_oom_error(Broken()))


class FakeCuda:
    def __init__(self):
        self.ooms, self.free, self.emptied, self.reserved = 0, 8 << 30, 0, 6 << 20

    def is_initialized(self):
        return True

    is_available = is_initialized

    def device_count(self):
        return 1

    def memory_stats(self, device):
        return {"num_ooms": self.ooms}

    def memory_reserved(self, device):
        return self.reserved

    def mem_get_info(self, device):
        return self.free, 24 << 30

    def empty_cache(self):
        self.emptied += 1
        self.reserved = 1 << 20


class WithAFakeTorch(unittest.TestCase):
    def setUp(self):
        self.cuda = FakeCuda()
        fake = type(sys)("torch")
        fake.cuda = self.cuda
        before = sys.modules.get("torch")
        sys.modules["torch"] = fake
        self.addCleanup(lambda: sys.modules.__setitem__("torch", before) if before else sys.modules.pop("torch"))

    def test_open_texts_count_where_the_allocator_failed(self):
        witness = OomWitness()
        error = RuntimeError("GET was unable to find an engine to execute this computation")
        self.assertFalse(witness.saw_oom(error))
        self.cuda.ooms += 1
        self.assertTrue(witness.saw_oom(error))
        self.assertFalse(witness.saw_oom(RuntimeError("shapes differ")))

    def test_open_texts_count_on_a_full_card(self):
        error = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")
        self.assertFalse(OomWitness().saw_oom(error))
        self.cuda.free = 60 << 20
        self.assertTrue(OomWitness().saw_oom(error))
        self.cuda.mem_get_info = lambda device: 1 / 0
        self.assertFalse(OomWitness().saw_oom(error))

    def test_the_cache_is_emptied_once(self):
        self.assertEqual(free_after_oom(), 5 << 20)
        self.assertEqual(self.cuda.emptied, 1)
        free_after_oom(empty_cache=False)
        self.assertEqual(self.cuda.emptied, 1)


class Large:
    pass


class GivingBack(unittest.TestCase):
    def failed(self):
        def inner(depth):
            large = Large()
            self.alive.append(weakref.ref(large))
            if depth:
                inner(depth - 1)
            loop = [large]
            loop.append(loop)
            raise out_of_memory()

        try:
            try:
                inner(3)
            except RuntimeError as error:
                raise ValueError("wrapped") from error
        except ValueError as error:
            return error

    def test_frames_of_the_whole_chain_are_cleared_and_lines_stay(self):
        self.alive = []
        gc.disable()
        self.addCleanup(gc.enable)
        error = self.failed()
        self.assertTrue(all(one() is not None for one in self.alive))
        free_after_oom(error)
        self.assertTrue(all(one() is None for one in self.alive))
        self.assertIsNotNone(error.__cause__.__traceback__.tb_next)

    def test_the_last_error_of_a_session_is_released(self):
        self.alive = []
        sys.last_value = self.failed()
        self.addCleanup(lambda: delattr(sys, "last_value"))
        free_after_oom()
        self.assertTrue(all(one() is None for one in self.alive))

    def test_notes_are_added_on_every_python(self):
        class Old(Exception):
            add_note = property()  # hides the method, as where there is none

        error = Old()
        with self.assertWarnsRegex(RuntimeWarning, "one"):
            add_note(error, "one")
        with self.assertWarns(RuntimeWarning):
            add_note(error, "two")
        self.assertEqual(error.__notes__, ["one", "two"])


if __name__ == "__main__":
    unittest.main()
