"""The package's side of the allocator, without torch and without CUDA."""

import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from vramwise import allocator, errors  # noqa: E402 - the path comes first
from vramwise.allocator import _compiler, _install, _report, _shim, autoload  # noqa: E402


def torch(version="2.11.0+cu130", git="0123456789abcdef", cuda="13.0"):
    """A module that says it is this PyTorch."""
    made = types.ModuleType("torch")
    made.__version__ = version
    made.version = types.SimpleNamespace(git_version=git, cuda=cuda)
    made.cuda = types.SimpleNamespace(is_initialized=lambda: False)
    made.compiled_with_cxx11_abi = lambda: True
    return made


class Package(unittest.TestCase):
    def setUp(self):
        # Other tests of the same process may have imported it, and what it says of this machine is no measure here.
        modules = mock.patch.dict(sys.modules)
        modules.start()
        self.addCleanup(modules.stop)
        sys.modules.pop("torch", None)

    def test_the_header_that_the_shim_is_compiled_with_is_the_engines(self):
        ours = ROOT / "python/vramwise/allocator/shim/vramwise_engine.h"
        self.assertEqual(ours.read_text(), (ROOT / "crates/allocator/include/vramwise_engine.h").read_text())

    def test_importing_the_package_imports_no_torch(self):
        program = "import sys, vramwise.allocator, vramwise.allocator.autoload; assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})

    def test_only_pytorch_from_2_9_on_is_taken(self):
        self.assertEqual(_shim.minor_version(torch("2.9.1+cu128")), 9)
        self.assertEqual(_shim.minor_version(torch("2.16.0a0+gitabc")), 16)
        for version in ("2.8.0", "1.13.1", "3.0.0", "2.x"):
            with self.assertRaises(errors.NotAvailableError, msg=version):
                _shim.minor_version(torch(version))

    def test_a_ready_made_shim_is_named_by_the_exact_build(self):
        self.assertEqual(_shim.ready_made_name(torch()), "libvramwise_shim-2.11-0123456789ab.so")

    def test_devices_are_named_in_pytorchs_way(self):
        for device, number in (("cuda:0", 0), ("cuda:12", 12), (3, 3), ("2", 2), ("cuda", -1), (-1, -1)):
            self.assertEqual(_install._device_number(device), number)
        for device in ("cpu", "cuda:", "cuda:x", -2, "", "mps:0"):
            with self.assertRaises(ValueError, msg=device):
                _install._device_number(device)

    def test_the_environment_says_whether_and_with_what_it_is_installed(self):
        for value, called in (("", None), ("0", None), ("off", None), ("1", (None,)), ("True", (None,)), ("limit=8GiB", ("limit=8GiB",))):
            with (
                mock.patch.dict(os.environ, {autoload.VARIABLE: value}),
                mock.patch.object(autoload, "_tried", False),
                mock.patch.object(_install, "install_allocator") as install,
            ):
                autoload.autoload()
                autoload.autoload()
                self.assertEqual([call.args for call in install.call_args_list], [] if called is None else [called], value)

    def test_no_failure_leaves_the_hook_of_import_torch(self):
        with (
            mock.patch.dict(os.environ, {autoload.VARIABLE: "1"}),
            mock.patch.object(autoload, "_tried", False),
            mock.patch.object(_install, "install_allocator", side_effect=RuntimeError("broken")),
            mock.patch("sys.stderr") as stderr,
        ):
            autoload.autoload()
        self.assertIn("broken", "".join(call.args[0] for call in stderr.write.call_args_list))

    def test_a_report_tells_of_a_device_that_was_used_what_it_held_and_what_misses_cost(self):
        used = {"reserved_bytes.all.peak": 3 << 20, "requested_bytes.all.peak": 2 << 20}
        held = "vramwise: cuda:1: peak held 3.00 MiB (3145728 bytes), peak requested 2.00 MiB (2097152 bytes), ratio 1.500"
        calls = [allocator.DriverCalls("cuMemCreate", 2, 3_000_000, 2_500_000), allocator.DriverCalls("cuMemMap", 1, 40_000, 40_000)]
        self.assertEqual(_report.lines(0, {}, []), [])
        self.assertEqual(_report.lines(1, used, []), [held])
        self.assertEqual(
            _report.lines(1, used, calls)[1:],
            ["vramwise: cuda:1: calls to the driver: 2 cuMemCreate 3.0 ms, 1 cuMemMap 0.0 ms; the longest 2.50 ms"],
        )

    def test_settings_for_several_devices_are_taken_all_or_none(self):
        class Engine:
            def __init__(self):
                self.taken = []

            def check_settings(self, text):
                if text == "bogus":
                    raise errors.SettingsError("bogus", settings=text)

            def set_settings(self, device, text):
                self.taken.append((device, text))
                return ""

        engine = Engine()
        with self.assertRaises(errors.SettingsError):
            _install._apply(engine, {"cuda:0": "limit:1MiB", "cuda:1": "bogus"})
        self.assertEqual(engine.taken, [])
        for device in ("cuda:128", "cuda:x", 2**32, "cuda:-1", "cpu"):
            with self.assertRaises(ValueError):
                _install._apply(engine, {device: "slack:1%"})
        for settings in (5, b"slack:1%", ["slack:1%"]):
            with self.assertRaises(TypeError):
                _install._apply(engine, settings)
        with mock.patch.object(_install, "_devices", set()):
            _install._apply(engine, {"cuda:1": "slack:1%", "cuda": "slack:2%"})
            # What holds for all comes first, so that it does not undo what is said of one.
            self.assertEqual(engine.taken, [(-1, "slack:2%"), (1, "slack:1%")])

    def test_of_pytorchs_variables_the_first_that_is_set_counts(self):
        engine = mock.Mock(**{"set_settings.return_value": ""})
        for variables, text in (
            ({"PYTORCH_CUDA_ALLOC_CONF": "slack:1%", "PYTORCH_ALLOC_CONF": "slack:2%"}, "slack:1%"),
            ({"PYTORCH_CUDA_ALLOC_CONF": "", "PYTORCH_ALLOC_CONF": "slack:2%"}, ""),
            ({"PYTORCH_ALLOC_CONF": "slack:2%"}, "slack:2%"),
        ):
            with mock.patch.dict(os.environ, variables, clear=True):
                _install._from_environment(engine)
            self.assertEqual(engine.set_settings.call_args.args, (-1, text))

    def test_a_cache_without_room_and_a_missing_compiler_are_told(self):
        with mock.patch.dict(os.environ, {"CXX": "no-such-compiler"}):
            with self.assertRaisesRegex(errors.NotAvailableError, "no-such-compiler"):
                _compiler._compiler(torch())
        with tempfile.TemporaryDirectory() as folder:
            full = OSError(28, "No space left on device")
            plan = _compiler.Plan(("true",), "key")
            with (
                mock.patch.dict(os.environ, {"VRAMWISE_CACHE_DIR": folder}),
                mock.patch.object(_shim._compiler, "plan", return_value=plan),
                mock.patch("builtins.open", side_effect=full),
                self.assertRaisesRegex(errors.NotAvailableError, "No space left"),
            ):
                _shim._cached(torch())

    def test_a_failed_compilation_tells_the_first_complaint(self):
        with tempfile.TemporaryDirectory() as folder:
            compiler = Path(folder) / "g++"
            compiler.write_text("#!/bin/sh\necho 'In file included from x:' >&2\necho 'x.h:3: error: no such type' >&2\nexit 1\n")
            compiler.chmod(0o755)
            with self.assertRaisesRegex(errors.NotAvailableError, r"x\.h:3: error: no such type"):
                _compiler.Plan((str(compiler),), "key").run(Path(folder) / "out.so")

    def plan(self, folder, **named):
        """A plan for a PyTorch whose files are in a folder."""
        made = torch(**named)
        made.__file__ = str(folder / "torch/__init__.py")
        return _compiler.plan(made, _shim.SOURCE, _shim.minor_version(made))

    def test_the_key_of_a_compiled_shim_changes_with_everything_that_it_depends_on(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file in (
                "torch/include/c10/cuda/CUDACachingAllocator.h",
                "torch/lib/libc10_cuda.so",
                "triton/backends/nvidia/include/cuda_runtime_api.h",
                "triton/backends/nvidia/include/crt/host_config.h",
            ):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text("")
            compiler = folder / "c++"
            compiler.write_text("#!/bin/sh\necho 12\n")
            compiler.chmod(0o755)
            with mock.patch.dict(os.environ, {"CXX": str(compiler)}):
                first = self.plan(folder)
                self.assertEqual(first.key, self.plan(folder).key)
                keys = {first.key, self.plan(folder, git="fedcba9876543210").key, self.plan(folder, version="2.11.1").key}
                (folder / "torch/lib/libc10_cuda.so").write_text("built again")
                keys.add(self.plan(folder).key)
                compiler.write_text("#!/bin/sh\necho 13\n")
                keys.add(self.plan(folder).key)
                self.assertEqual(len(keys), 5)
                self.assertIn("-std=c++17", first.command)
                self.assertIn("-std=c++20", self.plan(folder, version="2.14.0").command)
                (folder / "triton/backends/nvidia/include/crt/host_config.h").unlink()
                with mock.patch.object(_compiler, "_header_places", return_value=iter([[folder / "triton/backends/nvidia/include"]])):
                    with self.assertRaisesRegex(errors.NotAvailableError, "CUDA_HOME"):
                        self.plan(folder)

    def test_what_torch_lacks_is_said(self):
        for made, words in (
            (torch(cuda=None), "not a build for CUDA"),
            (None, "cannot be imported"),
        ):
            with mock.patch.dict(sys.modules, {"torch": made}), self.assertRaisesRegex(errors.NotAvailableError, words):
                _install._torch()


if __name__ == "__main__":
    unittest.main()
