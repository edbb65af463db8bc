"""vramwise's allocator in the place of PyTorch's: every use of the interface gives what PyTorch's own gives.

On the emulated device, in processes of their own. The engine is the real one where VRAMWISE_LIB_DIR has it, and a double of
it (allocator_double) otherwise. `cargo xtask test` builds what is needed and sets the variable.
"""

import json
import os
import shutil
import tempfile
import textwrap
import unittest
from pathlib import Path

import emulated
import emulated_torch
from emulated_torch import ENGINE, LIBRARIES, ROOT, TESTS, Device, compiler, shared_object

HEADERS = ROOT / "python/vramwise/allocator/shim"
DOUBLE = TESTS / "allocator_double"
INSTALL = "import torch, vramwise\nvramwise.install_allocator(required=True)\n"


def too_old():
    """Why this PyTorch is none that the allocator can be put into, or None."""
    version = emulated_torch.torch_version()[0]
    known = tuple(map(int, version.split(".")[:2])) >= (2, 9)
    return None if known else f"the allocator needs PyTorch 2.9, and this is {version}"


class Allocator(unittest.TestCase):
    """Builds once; each test runs programs."""

    @classmethod
    def setUpClass(cls):
        reason = emulated_torch.missing() or too_old() or (None if compiler() else "there is no C++ compiler")
        if reason:
            raise unittest.SkipTest(reason)
        cls.built = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.built.cleanup)
        place = Path(cls.built.name)
        cls.libraries, cls.cache, cls.custom = place / "lib", place / "cache", place / "custom.so"
        cls.libraries.mkdir()
        cls.double = place / "double"
        cls.double.mkdir()
        shared_object(DOUBLE / "engine.cpp", cls.double / ENGINE, f"-I{HEADERS}")
        real = Path(LIBRARIES).resolve() / ENGINE
        (cls.libraries / ENGINE).symlink_to(real if real.is_file() else cls.double / ENGINE)
        shared_object(DOUBLE / "custom.cpp", cls.custom)
        # Compiled once, for all tests.
        os.environ.setdefault("VRAMWISE_TEST_CACHE", str(cls.cache))
        cls.cache = Path(os.environ["VRAMWISE_TEST_CACHE"])

    def run_python(self, *arguments, devices=1, expect=0, **more):
        device = Device(devices)
        self.addCleanup(device.close)
        variables = {"VRAMWISE_LIB_DIR": self.libraries, "VRAMWISE_CACHE_DIR": self.cache, **more}
        done = device.run(*arguments, VRAMWISE_TEST_CUSTOM_ALLOCATOR=self.custom, **variables)
        if expect is not None:
            self.assertEqual(done.returncode, expect, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done

    def run_program(self, program, **more):
        return self.run_python("-c", textwrap.dedent(program), **more)


class Interface(Allocator):
    def facts(self, which, *names, **more):
        done = self.run_python("-m", "allocator_checks", which, *names, **more)
        line = next(line for line in done.stdout.splitlines() if line.startswith("FACTS "))
        return json.loads(line.removeprefix("FACTS "))

    def compare(self, *names, **more):
        native, ours = self.facts("native", *names, **more), self.facts("ours", *names, **more)
        self.assertEqual((native.pop("backend"), ours.pop("backend")), ("native", "vramwise"))
        self.assertEqual(list(native), list(ours))
        self.assertGreater(len(native), 0)
        for name, told in native.items():
            with self.subTest(name):
                # What this PyTorch cannot do on the emulated device is no measure.
                if "error" not in told:
                    self.assertEqual(told, ours[name], name)

    def test_every_use_of_the_interface_gives_what_pytorchs_own_allocator_gives(self):
        self.compare()

    def test_devices_are_kept_apart(self):
        self.compare("both_devices_have_counters_of_their_own", devices=2)


class Recordings(Allocator):
    """What vramwise says of a recording that was made under its allocator, beside PyTorch's own of the same program."""

    PROGRAM = """
import sys, torch, vramwise
if sys.argv[1] == "ours":
    vramwise.install_allocator(required=True)
torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step(batch):
    model(torch.ones(batch, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
for batch in (64, 3000, 500, 5000, 64, 7000):
    step(batch)
torch.cuda.empty_cache()
step(100)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = torch.empty(5 << 20, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    side = torch.empty(3 << 20, device="cuda")
    side.record_stream(torch.cuda.default_stream())
del side
step(4000)
torch.cuda.memory._dump_snapshot(sys.argv[2])
"""

    @unittest.skipUnless(os.path.exists(emulated.PROGRAM), "VRAMWISE_BIN does not name the program")
    def test_replays_of_its_requests_hold_what_pytorchs_own_allocator_held(self):
        room = tempfile.TemporaryDirectory()
        self.addCleanup(room.cleanup)
        folder = Path(room.name)
        program = folder / "program.py"
        program.write_text(self.PROGRAM)
        reports = {}
        for which in ("native", "ours"):
            self.run_python(program, which, folder / f"{which}.pickle")
            done = emulated.vramwise("replay", folder / f"{which}.pickle", "--json")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            reports[which] = json.loads(done.stdout)
        native, ours = reports["native"], reports["ours"]
        self.assertEqual((native["recorded_allocator"], ours["recorded_allocator"]), ("pytorch", "vramwise"))
        self.assertTrue(native["verify"]["final_state_exact"])
        self.assertIsNone(ours["verify"])
        for counter in ("reserved_bytes.all.peak", "allocated_bytes.all.peak", "requested_bytes.all.peak"):
            self.assertEqual(ours["stats"][counter], native["stats"][counter], counter)
        best = [json.loads(emulated.vramwise("tune", folder / f"{which}.pickle", "--json").stdout)["candidates"]
                for which in ("native", "ours")]
        self.assertEqual(*[{c["conf"]: c["peak_reserved_bytes"] for c in found} for found in best])

    def test_settings_of_pytorchs_own_are_told_beside_the_allocator(self):
        done = self.run_program(INSTALL + """
x = torch.empty(1000, device="cuda")
print(torch.cuda.memory._snapshot()["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"])
from vramwise.settings import allocator_settings
print(repr(allocator_settings()))
""", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
        self.assertEqual(done.stdout, "max_split_size_mb:64,backend:vramwise\n'max_split_size_mb:64'\n")


class Processes(Allocator):
    def test_a_forked_child_frees_in_peace(self):
        done = self.run_program(INSTALL + """
import os
torch.cuda.memory._record_memory_history()
x = torch.empty(1000, device="cuda")
child = os.fork()
if child == 0:
    del x
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert torch.cuda.memory_allocated() == 4096
del x
assert torch.cuda.memory_allocated() == 0
""")
        self.assertEqual(done.stderr, "")

    def test_a_process_ends_with_tensors_pools_and_graphs_alive(self):
        done = self.run_program(INSTALL + """
import sys, threading, time
class Cycle: pass
cycle = Cycle()
cycle.own, cycle.tensor = cycle, torch.empty(1000, device="cuda")
sys.modules["kept"] = torch.empty(1000, device="cuda")
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = torch.empty(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = inside + 1
torch.cuda.memory._record_memory_history()
last = torch.empty(1000, device="cuda")
last.record_stream(torch.cuda.Stream())
# Asleep by then: a thread that Python ends in the midst of an allocation aborts the process, under PyTorch's own as well.
allocated = threading.Event()
threading.Thread(target=lambda: (torch.empty(10, device="cuda"), allocated.set(), time.sleep(60)), daemon=True).start()
allocated.wait()
print("end")
""")
        self.assertEqual((done.stdout, done.stderr), ("end\n", ""))

    def test_tensors_travel_to_another_process(self):
        # The emulated device's driver exports no memory; the double stands for one that does.
        program = Path(self.built.name) / "travel.py"
        program.write_text(INSTALL + textwrap.dedent("""
            import torch.multiprocessing as multiprocessing

            def receive(queue, answers):
                x = queue.get()
                y = queue.get()
                answers.put((x.device.type, tuple(x.shape), tuple(y.shape), torch.cuda.get_allocator_backend()))
                del x, y

            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                queue, answers = context.Queue(), context.Queue()
                child = context.Process(target=receive, args=(queue, answers), daemon=True)
                child.start()
                x = torch.ones(5_000_000, device="cuda")
                queue.put(x)
                queue.put(x[10:])
                print(answers.get(timeout=300))
                child.join()
                print(child.exitcode)
        """))
        done = self.run_python(program, VRAMWISE_LIB_DIR=self.double)
        self.assertEqual(done.stdout, "('cuda', (5000000,), (4999990,), 'vramwise')\n0\n")

    def test_a_compiled_model_runs_in_trees_of_graphs(self):
        done = self.run_program(INSTALL + """
torch._inductor.config.triton.cudagraph_trees = True
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).cuda()
step = torch.compile(model, mode="reduce-overhead")
for turn in range(4):
    model.zero_grad()
    step(torch.randn(16, 32, device="cuda")).sum().backward()
for turn in range(3):
    with torch.no_grad():
        y = step(torch.randn(16, 32, device="cuda"))
print(tuple(y.shape), torch.cuda.get_allocator_backend())
""", expect=None)
        if "triton" in done.stderr.lower() and done.returncode != 0:
            native = self.run_program("import torch; torch.compile(torch.nn.Linear(3, 3).cuda())(torch.randn(2, 3).cuda())",
                                      expect=None)
            if native.returncode != 0:
                self.skipTest("torch.compile does not run here, with PyTorch's own allocator neither")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertIn("(16, 32) vramwise", done.stdout)


class Installation(Allocator):
    def test_it_is_refused_once_cuda_has_started(self):
        done = self.run_program("""
            import torch, vramwise
            x = torch.empty(1000, device="cuda")
            status = vramwise.install_allocator()
            assert not status.installed and "CUDA is up already" in status.reason, status
            assert torch.cuda.get_allocator_backend() == "native"
            try:
                vramwise.install_allocator(required=True)
            except vramwise.errors.NotAvailableError as error:
                print(error.missing)
        """)
        self.assertEqual(done.stdout, "time\n")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("PyTorch's own allocator is used, as CUDA is up already", done.stderr)

    def test_a_second_call_changes_nothing_but_settings(self):
        self.run_program(INSTALL + """
assert vramwise.install_allocator().installed
status = vramwise.allocator_status()
assert status.installed and status.reason == "" and status.shim.is_file() and status.torch == torch.__version__, status
x = torch.empty(1000, device="cuda")
assert vramwise.install_allocator().installed
""")

    def test_settings_that_make_no_sense_install_nothing(self):
        done = self.run_program("""
            import torch, vramwise
            try:
                vramwise.install_allocator("nonsense=1")
            except vramwise.errors.SettingsError as error:
                print(error.settings)
            print(torch.cuda.get_allocator_backend(), vramwise.allocator_status().installed)
            try:
                vramwise.set_settings("cuda:0", "")
            except vramwise.errors.NotAvailableError:
                print("not installed")
        """)
        self.assertEqual(done.stdout, "nonsense=1\nnative False\nnot installed\n")

    def test_options_of_pytorchs_own_allocator_are_named_and_stop_nobody(self):
        done = self.run_program(INSTALL, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
        self.assertIn("PYTORCH_CUDA_ALLOC_CONF: ", done.stderr)
        self.assertIn("max_split_size_mb", done.stderr)

    def test_caching_that_is_switched_off_stays_off(self):
        done = self.run_program("import torch, vramwise; print(vramwise.install_allocator().installed)",
                                PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        self.assertEqual(done.stdout, "False\n")
        self.assertIn("PYTORCH_NO_CUDA_MEMORY_CACHING", done.stderr)

    def test_without_the_engine_pytorchs_own_allocator_stays(self):
        with tempfile.TemporaryDirectory() as empty:
            done = self.run_program("""
                import torch, vramwise
                vramwise.install_allocator()
                print(torch.empty(3, device="cuda").shape, torch.cuda.get_allocator_backend())
            """, VRAMWISE_LIB_DIR=empty)
        self.assertEqual(done.stdout, "torch.Size([3]) native\n")
        self.assertIn(ENGINE, done.stderr)

    def test_without_a_compiler_the_cache_is_enough_and_without_both_a_line_says_so(self):
        self.run_program(INSTALL)
        with tempfile.TemporaryDirectory() as empty:
            program = "import torch, vramwise; print(vramwise.install_allocator().installed)"
            none = self.run_program(program, VRAMWISE_CACHE_DIR=Path(empty) / "cache", PATH=empty, CXX=None)
        self.assertEqual(none.stdout, "False\n")
        self.assertIn("no C++ compiler", none.stderr)

    def test_a_cache_that_others_can_write_is_not_trusted(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)
            done = self.run_program("import torch, vramwise; print(vramwise.install_allocator().installed)",
                                    VRAMWISE_CACHE_DIR=folder)
        self.assertEqual(done.stdout, "False\n")
        self.assertIn("by nobody else", done.stderr)

    def test_a_ready_made_shim_is_taken_only_for_its_own_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(self.libraries / ENGINE, folder)
            program = """
                import torch, vramwise
                from vramwise.allocator import _shim
                print(_shim.ready_made_name(torch))
                print(vramwise.install_allocator().installed)
            """
            made = self.run_python("-m", "vramwise.allocator", "--build", folder).stdout.strip()
            with tempfile.TemporaryDirectory() as empty:
                surroundings = {"VRAMWISE_LIB_DIR": folder, "VRAMWISE_CACHE_DIR": empty, "PATH": empty}
                good = self.run_program(program, **surroundings)
                self.assertEqual(good.stdout, f"{Path(made).name}\nTrue\n")
                source = Path(folder) / "other.cpp"
                source.write_text('extern "C" const char* vramwise_shim_built_for() { return "2.99.0 0123456789"; }')
                shared_object(source, made)
                other = self.run_program(program, **surroundings)
        self.assertEqual(other.stdout, f"{Path(made).name}\nFalse\n")
        self.assertIn("made for PyTorch 2.99.0", other.stderr)

    def entry_point(self, folder):
        """A folder with the declaration that an installed package has."""
        facts = Path(folder) / "vramwise-0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: vramwise\nVersion: 0\n")
        (facts / "entry_points.txt").write_text("[torch.backends]\nvramwise = vramwise.allocator.autoload:autoload\n")
        return f"{folder}:{ROOT / 'python'}"

    def test_the_environment_installs_it_at_the_end_of_import_torch(self):
        program = "import torch; print(torch.cuda.get_allocator_backend())"
        with tempfile.TemporaryDirectory() as folder:
            path = self.entry_point(folder)
            for value, backend in ((None, "native"), ("0", "native"), ("1", "vramwise")):
                with self.subTest(value):
                    done = self.run_program(program, PYTHONPATH=path, VRAMWISE_ALLOCATOR=value)
                    self.assertEqual((done.stdout, done.stderr), (f"{backend}\n", ""))
            # A program that asks for it too, before it imports torch itself.
            twice = "import vramwise; print(vramwise.install_allocator('limit:1GiB', required=True).settings[-1])"
            done = self.run_program(twice, PYTHONPATH=path, VRAMWISE_ALLOCATOR="1")
            self.assertIn("limit:1073741824", done.stdout.replace("1GiB", "1073741824"))
            wrong = self.run_program(program, PYTHONPATH=path, VRAMWISE_ALLOCATOR="nonsense=1")
            self.assertEqual(wrong.stdout, "native\n")
            self.assertIn("VRAMWISE_ALLOCATOR: ", wrong.stderr)

    def test_a_limit_that_is_set_replaces_the_environment_s_share_of_the_card(self):
        done = self.run_program("""
            import torch, vramwise
            vramwise.install_allocator("limit:1GiB", required=True)
            print(vramwise.allocator_status().settings[-1].split(",")[0])
            torch.empty(1 << 20, device="cuda")
            print(vramwise.allocator_status().settings[-1].split(",")[0])
            try:
                torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                print("out of memory")
            vramwise.set_settings("cuda", "per_process_memory_fraction:0.5,limit:none")
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        """, PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.5")
        self.assertEqual(done.stdout, "limit:1073741824\nlimit:1073741824\nout of memory\n")

    def test_what_holds_for_one_device_stands_above_what_holds_for_all(self):
        done = self.run_program("""
            import torch, vramwise
            status = vramwise.install_allocator({"cuda:0": "slack:5%", "cuda": "slack:2%"}, required=True)
            torch.empty(1, device="cuda")
            settings = vramwise.allocator_status().settings
            print(["slack:0.05" in settings[0], "slack:0.02" in settings[-1]])
        """)
        self.assertEqual(done.stdout, "[True, True]\n")

    def test_a_limit_that_pytorchs_call_set_is_told(self):
        done = self.run_program("""
            import torch, vramwise
            vramwise.install_allocator(required=True)
            print(sorted(vramwise.allocator_status().settings))
            torch.cuda.set_per_process_memory_fraction(0.25)
            settings = vramwise.allocator_status().settings
            print(settings[-1].split(",")[0], settings[0].split(",")[0] != "limit:none")
        """)
        self.assertEqual(done.stdout, "[-1]\nlimit:none True\n")

    def test_a_device_that_is_named_twice_is_refused(self):
        done = self.run_program("""
            import vramwise
            try:
                vramwise.install_allocator({0: "limit:1GiB", "cuda:0": "limit:2GiB"}, required=True)
            except ValueError as error:
                print(error)
        """)
        self.assertEqual(done.stdout, "settings name cuda:0 twice\n")

    def test_settings_that_were_refused_are_the_reason_and_print_as_they_are_read(self):
        done = self.run_program("""
            import torch, vramwise
            try:
                vramwise.install_allocator("foo:1")
            except vramwise.errors.SettingsError:
                print(vramwise.allocator_status().reason)
            vramwise.install_allocator(required=True)
            torch.empty(1, device="cuda")
            torch.cuda.set_per_process_memory_fraction(0.0)
            text = vramwise.allocator_status().settings[-1]
            vramwise.install_allocator({0: "slack:1%"})
            text = vramwise.allocator_status().settings[0]
            vramwise.set_settings(0, text)
            print(text.split(",")[0])
        """)
        refused, printed = done.stdout.splitlines()
        self.assertIn("`foo` at position 0 is no setting", refused)
        self.assertEqual(printed, "per_process_memory_fraction:0")

    def test_keys_that_pytorch_would_refuse_are_told(self):
        done = self.run_program(INSTALL, PYTORCH_CUDA_ALLOC_CONF="limit:1GiB,max_split_size_mb:64")
        self.assertIn("PYTORCH_CUDA_ALLOC_CONF: PyTorch refuses limit when it reads this variable", done.stderr)
        done = self.run_program(INSTALL + """
from vramwise.allocator import _install
print({key.partition(":")[0] for key in vramwise.allocator_status().settings[-1].split(",")} ^ set(_install._OWN_KEYS))
""")
        self.assertEqual(done.stdout, "set()\n", "the keys that the engine has")
        done = self.run_program(INSTALL, PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.5")
        self.assertEqual(done.stderr, "")

    def test_a_report_at_the_end_says_what_was_held(self):
        program = INSTALL + "x = torch.empty(3 << 20, dtype=torch.uint8, device='cuda')"
        done = self.run_program(program, VRAMWISE_ALLOCATOR_REPORT="1")
        self.assertRegex(done.stderr, r"^vramwise: cuda:0: peak held \S+ MiB \(\d+ bytes\), peak requested 3\.00 MiB "
                                      r"\(3145728 bytes\), ratio \d+\.\d{3}\n(vramwise: cuda:0: calls to the driver: \d+ .*\n)?$")
        self.assertEqual(self.run_program(INSTALL, VRAMWISE_ALLOCATOR_REPORT="1").stderr, "")


if __name__ == "__main__":
    unittest.main()
