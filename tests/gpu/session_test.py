"""tests/gpu/session with programs that hang, run out of memory and abort, and its tables: python3 session_test.py."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import plan
import tables

# Replaces all four programs. FAULTS names runs or kernel processes and what happens to them.
STUB = r'''#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
faults = json.loads(os.environ.get("FAULTS", "{}"))

def after(flag):
    return words[words.index(flag) + 1] if flag in words else ""

def suffer(kind):
    if kind == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
    if kind == "memory":
        sys.exit("error: the GPU has less than 512 MiB free; use fewer layers, smaller microbatches or more ranks")
    if kind == "abort":
        os.kill(os.getpid(), signal.SIGABRT)
    if kind == "slow":
        time.sleep(2)

def result(seconds):
    return {"iteration": {"time_s": seconds}, "bubble": {"fraction": 0.25},
            "communication": {"fraction": 0, "pp": {"bytes_sent_per_rank": 512}},
            "breakdown": {f"{axis}_comm_s": 0 for axis in ("tp", "pp", "dp", "cp", "ep")}}

if name == "gpu_kernels_tests":
    tests = {"EmulatedKernels": "kernels", "EmulatedTraining": "losses", "EmulatedBench": "bench"}
    kind = tests[words[0].split("=")[1].split(".")[0]]
    with open(os.environ["FLOPCAST_TEST_RECORDS"], "a") as records:
        first = {"test": f"{kind}.First", "status": "passed", "seconds": 0.1, "error": "1e-7", "tolerance": "1e-05"}
        second = {"test": f"{kind}.Second", "status": "running"}
        for record in (first, second):
            print(json.dumps(record), file=records, flush=True)
        suffer(faults.get(kind))
        print(json.dumps({**second, "status": "passed", "seconds": 0.1}), file=records)
elif words[0] == "simulate":
    print(json.dumps(result(1.0)))
elif words[0] == "calibrate":
    pathlib.Path(after("-o")).write_text('{"device": {"name": "h200"}}')
    print("residuals: none")
else:
    place = pathlib.Path(after("-o"))
    with open(os.environ.get("CALLS", "/dev/null"), "a") as calls:
        print(place.stem, after("--partition"), os.environ.get("NCCL_DEBUG", ""), file=calls)
    document = {"samples": [{"dtype": "bf16"}],
                "run": {"complete": False, "failure": "killed, or still running", "steps": [], "conditions": ""}}
    place.write_text(json.dumps(document))
    kind = faults.get(f"{place.stem}:{after('--partition')}", faults.get(place.stem))
    if kind == "watchdog":
        document["run"]["failure"] = "rank 1 is stuck in 2F0: it has waited 15000 ms for 2F0 from rank 0"
        place.write_text(json.dumps(document))
        sys.exit(4)
    suffer(kind)
    document["run"].update(complete=True, failure="", steps=[{"loss": 4.0}, {"loss": 3.0}])
    document["comparison"] = {"forecast": result(1.0), "measured": result(1.04)}
    place.write_text(json.dumps(document))
'''


class Call:
    """A tree of links with stub programs, in which tests/gpu/session runs."""

    def __init__(self, folder):
        self.tree = pathlib.Path(folder) / "tree"
        (self.tree / "tests").mkdir(parents=True)
        shutil.copytree(HERE, self.tree / "tests/gpu")
        self.programs = self.tree / "build/gpu-pack"
        self.programs.mkdir(parents=True)
        for name in ("flopcast", "flopcast-run", "flopcast-measure", "gpu_kernels_tests"):
            (self.programs / name).write_text(STUB)
            (self.programs / name).chmod(0o755)
        self.out = pathlib.Path(folder) / "out"
        self.results = self.tree / "build/gpu-results-mock/nvidia-h200-mock"

    def words(self, call, *more):
        return [sys.executable, str(self.tree / "tests/gpu/session"), call, "--mock", "--output", str(self.out),
                "--run-seconds", "7", "--row-seconds", "7", *more]

    def run(self, call, *more, faults=None, **environment):
        answer = subprocess.run(self.words(call, *more), capture_output=True, text=True, check=False,
                                env={**os.environ, "FAULTS": json.dumps(faults or {}), **environment})
        if answer.stderr:
            print(answer.stderr, file=sys.stderr)
        return answer

    def status(self, name):
        return json.loads((self.results / f"runs/{name}.status.json").read_text())


class Faults(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.call = Call(self.scratch.name)

    def test_each_loses_its_own_run(self):
        began = time.monotonic()
        answer = self.call.run("1", "--only", "schedules-4,kernels", faults={
            "4-zb-h1": "hang", "4-interleaved": "memory", "4-gpipe": "abort", "4-bfs": "watchdog", "losses": "abort",
            "bench": "hang"})
        self.assertEqual(answer.returncode, 1, answer.stdout)
        told = {run.name: self.call.status(run.name) for run in plan.planned_runs(plan.MOCK, "h200")
                if run.step == "schedules-4"}
        lost = {name for name, status in told.items() if status["status"] != "measured"}
        self.assertEqual(lost, {"4-zb-h1", "4-interleaved", "4-gpipe", "4-bfs"})
        self.assertLessEqual(told["4-zb-h1"]["seconds"], 9)
        self.assertRegex(told["4-zb-h1"]["why"], r"^after \d+ s in an unknown action$")
        self.assertEqual(told["4-bfs"]["status"], "hung")
        self.assertRegex(told["4-bfs"]["why"], r"^after \d+ s in 2F0$")
        self.assertIn("less than 512 MiB free", told["4-interleaved"]["why"])
        self.assertEqual(told["4-gpipe"]["why"], "ended by signal 6")
        page = (self.call.out / "README.md").read_text()
        self.assertRegex(page, r"\| 4-zb-h1 .*\| hung after \d+ s in an unknown action \|")
        self.assertIn("| kernels.Second |", page)
        self.assertIn("| losses.First | 1e-7 | 1e-05 |", page)
        self.assertRegex(page, r"\| losses.Second .* did not end \|")
        self.assertRegex(page, r"- bench: did not end within \d+ s: in bench.Second")
        # Lost runs count as missed.
        self.assertIn("6 of 10 within 5 %", page)
        self.assertLess(time.monotonic() - began, 45)
        # Failed runs are repeated; measured ones are not.
        calls = pathlib.Path(self.scratch.name) / "calls"
        again = self.call.run("1", "--only", "schedules-4,kernels", CALLS=str(calls))
        self.assertEqual(again.returncode, 0, again.stdout)
        self.assertEqual({line.split()[0] for line in calls.read_text().splitlines()}, lost)

    def test_two_hangs_change_the_partition_and_then_end_the_kind(self):
        runs = {f"4-{name}:green": "watchdog" for name in ("1f1b", "zb-h1")}
        calls = pathlib.Path(self.scratch.name) / "calls"
        self.call.run("1", "--only", "schedules-4", faults=runs, CALLS=str(calls))
        lines = calls.read_text().splitlines()
        self.assertIn("4-gpipe streams INFO", lines)
        self.assertIn("4-zb-h1 green INFO", lines)
        self.assertEqual(self.call.status("4-gpipe")["status"], "measured")
        shutil.rmtree(self.call.results)
        everything = {run.name: "watchdog" for run in plan.planned_runs(plan.MOCK, "h200")}
        self.call.run("1", "--only", "schedules-4,schedules-8", "--again", faults=everything)
        self.assertEqual(self.call.status("4-bfs")["why"], "two runs of its kind hung")
        self.assertEqual(self.call.status("8-1f1b")["status"], "left out")

    def test_parts_without_green_contexts(self):
        self.call.run("1", "--only", "smoke", faults={"smoke-2-ranks:green": "abort"})
        self.assertEqual(self.call.status("smoke-2-ranks")["partition"], "streams")

    def test_a_killed_call_leaves_what_it_had(self):
        faults = {run.name: "slow" for run in plan.planned_runs(plan.MOCK, "h200")}
        process = subprocess.Popen(self.call.words("1", "--only", "smoke,nccl,schedules-4"), stdout=subprocess.DEVNULL,
                                   env={**os.environ, "FAULTS": json.dumps(faults)})
        deadline = time.monotonic() + 40
        while not (self.call.out / "results.tgz").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertLessEqual(len(list(self.call.out.iterdir())), 3)
        with tarfile.open(self.call.out / "results.tgz") as packed:
            names = packed.getnames()
        self.assertIn("nvidia-h200-mock/runs/smoke-lazy.status.json", names)
        self.assertIn("| smoke-lazy |", (self.call.out / "README.md").read_text())

    def test_older_results_do_not_replace_newer_ones(self):
        self.call.run("1", "--only", "smoke")
        carried = self.call.tree / "build/gpu-carried"
        carried.mkdir()
        shutil.copy(self.call.out / "results.tgz", carried / "results.tgz")
        status = self.call.results / "runs/smoke-lazy.status.json"
        newer = {**json.loads(status.read_text()), "conditions": "newer"}
        status.write_text(json.dumps(newer))
        (self.call.results / "runs/smoke-eager.status.json").unlink()
        cold = self.call.run("2", "--cold", "--only", "facts")
        self.assertIn("call 2 cold", cold.stdout)
        self.assertEqual(self.call.status("smoke-lazy")["conditions"], "newer")
        self.assertEqual(self.call.status("smoke-eager")["status"], "measured")

    def test_a_broken_archive_is_left_out(self):
        carried = self.call.tree / "build/gpu-carried"
        carried.mkdir(parents=True)
        (carried / "results.tgz").write_bytes(b"no archive")
        answer = self.call.run("1", "--only", "smoke")
        self.assertEqual(answer.returncode, 0, answer.stdout)

    def test_tables_that_cannot_be_made_lose_no_file(self):
        (self.call.results / "kernels").mkdir(parents=True)
        (self.call.results / "kernels/kernels.jsonl").write_text('{"test": "a record without a status"}\n')
        self.call.run("1", "--only", "smoke")
        self.assertIn("The tables could not be written: KeyError", (self.call.out / "README.md").read_text())
        with tarfile.open(self.call.out / "results.tgz") as packed:
            self.assertIn("nvidia-h200-mock/runs/smoke-eager.json", packed.getnames())

    def test_how_a_run_ended_is_not_overwritten_by_a_lack_of_time(self):
        self.call.run("1", "--only", "smoke")
        self.call.run("1", "--only", "smoke", "--again", "--seconds", "4")
        self.assertEqual(self.call.status("smoke-2-ranks")["status"], "measured")

    def test_the_second_call_knows_whether_the_machine_is_the_same(self):
        self.call.run("1", "--only", "facts")
        self.assertIn("call 2: ", self.call.run("2", "--only", "facts").stdout)
        shutil.rmtree(self.call.results)
        self.assertIn("call 2 cold: ", self.call.run("2", "--only", "facts").stdout)

    def test_a_row_of_pytorch_that_hangs_loses_itself(self):
        fake = pathlib.Path(self.scratch.name) / "fake"
        fake.mkdir()
        (fake / "torch.py").write_text("import sys, time\n"
                                       "import os, signal\n"
                                       "words = ' '.join(sys.argv)\n"
                                       "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                                       "if 'compiled' in words: time.sleep(1000)\n"
                                       "if 'fsdp' in words: os.abort()\n"
                                       "raise SystemExit(9)\n")
        self.call.run("1", "--only", "profile")
        (self.call.programs / "flopcast").write_text(STUB.replace(
            "print(json.dumps(result(1.0)))",
            'print(json.dumps({**result(1.0), "memory": {"peak_gib": 1, "reserved_gib": 1, "shown_gib": 1}}))'))
        self.call.run("2", "--only", "torch", PYTHONPATH=str(fake))
        rows = json.loads((self.call.results / "torch/rows.json").read_text())["left_out"]
        told = {row["id"]: row.get("failed", "") for row in rows}
        self.assertRegex(told["llama-2l-b2-s32-bf16-compiled"], r"^hung after \d+ s$")
        self.assertEqual(told["llama-2l-b2-s32-bf16-fsdp"], "its process ended with -6")
        self.assertEqual(told["llama-2l-b2-s32-fp8"], "its process ended with 9")
        self.assertEqual(len(told), 5)

    def test_wrong_usage(self):
        for words, problem in ((["1"], "--output DIR is required"), (["3"], "invalid choice: '3'"),
                               (["1", "--mock", "--only", "profil"], "\"profil\" is not a step"),
                               (["1", "--mock", "--seconds", "0"], "--seconds is 0")):
            answer = subprocess.run([sys.executable, str(HERE / "session"), *words], capture_output=True, text=True,
                                    check=False)
            self.assertEqual(answer.returncode, 2)
            self.assertIn(problem, answer.stderr)
        self.assertNotIn("%(", subprocess.run([sys.executable, str(HERE / "session"), "--help"], capture_output=True,
                                              text=True, check=False).stdout)


class Evaluation(unittest.TestCase):
    def test_names_of_hosts_and_paths_stay_out(self):
        with tempfile.TemporaryDirectory() as scratch:
            call = Call(scratch)
            call.run("1", "--only", "smoke,profile")
            host = os.uname().nodename
            (call.results / "facts.txt").write_text(
                f"Linux {host} 6.1\nSerial Number : 165\nGPU-01234567-89ab-cdef-0123-456789abcdef\n/opt/torch/lib/x.so\n"
                "NCCL NET/Socket: 172.17.0.3<0>\nCUDA 13.0.88.1\n")
            (call.results / "nccl/nccl-1f1b.7.log").write_text(f"{host}:7:7 [0] NCCL INFO /home/someone/libnccl.so.2\n")
            folder = pathlib.Path(scratch) / "docs"
            answer = subprocess.run([sys.executable, str(HERE / "evaluate"), str(call.tree / "build/gpu-results-mock"), "-o",
                                     str(folder)], capture_output=True, text=True, check=False)
            self.assertEqual(answer.returncode, 1, answer.stderr)  # most runs were not made
            self.assertIn("  4-1f1b: not run", answer.stdout)
            with tarfile.open(folder / "raw.tar.gz") as packed:
                facts = packed.extractfile("facts.txt").read().decode()
                log = packed.extractfile("nccl/nccl-1f1b.7.log").read().decode()
            for text in (facts, log, (folder / "README.md").read_text()):
                for secret in (host, "165", "01234567", "/opt", "/home", "172.17", scratch):
                    self.assertNotIn(secret, text)
            self.assertIn("…/x.so", facts)

    def test_a_file_of_something_else(self):
        with tempfile.TemporaryDirectory() as scratch:
            wrong = pathlib.Path(scratch) / "x.tgz"
            wrong.write_bytes(b"nothing")
            for path in (wrong, pathlib.Path(scratch), pathlib.Path(scratch) / "missing.tgz"):
                answer = subprocess.run([sys.executable, str(HERE / "evaluate"), str(path)], capture_output=True, text=True,
                                        check=False)
                self.assertEqual(answer.returncode, 2)
                self.assertIn("error: ", answer.stderr)


class Tables(unittest.TestCase):
    @staticmethod
    def document(seconds, sent, loss):
        def result(time_s, sent_bytes):
            return {"iteration": {"time_s": time_s}, "bubble": {"fraction": 0.25},
                    "communication": {"fraction": 0, "pp": {"bytes_sent_per_rank": sent_bytes}},
                    "breakdown": {"tp_comm_s": 0, "pp_comm_s": 0.5, "dp_comm_s": 0, "cp_comm_s": 0, "ep_comm_s": 0}}

        return {"samples": [{"dtype": "bf16"}],
                "run": {"complete": True, "failure": "", "steps": [{"loss": 4.0}, {"loss": loss}]},
                "comparison": {"forecast": result(1.0, 512), "measured": result(seconds, sent)}}

    def problems(self, seconds, sent, loss, **more):
        return tables.compare_run(self.document(seconds, sent, loss), self.document(2.0, 0, 3.0), **more)

    def test_forecast_bytes_and_losses_each_have_to_hold(self):
        cells, problems, error = self.problems(1.04, 512, 3.03, most=5)
        self.assertEqual(problems, [])
        self.assertAlmostEqual(error, -3.846, 3)
        self.assertEqual(cells, ["", "1.000000", "1.040000", "-3.8", "25.0 / 25.0", "0.500000 / 0.500000", "512 / 512",
                                 "3.03", "1.0e-02"])
        self.assertEqual(self.problems(1.06, 512, 3.03, most=5)[1], ["missed by more than 5 %"])
        self.assertEqual(self.problems(1.04, 512, 3.03, most=5, profiled=1.2)[1], ["missed by more than 5 %"])
        self.assertEqual(self.problems(1.0, 513, 3.03)[1], ["bytes differ"])
        self.assertEqual(self.problems(1.0, 512, 3.07)[1], ["losses differ by more than 2e-02"])
        self.assertEqual(self.problems(1.0, 512, None)[1], ["a loss is not a number"])

    def test_devices(self):
        for gpu, name in (("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA H200", "h200"),
                          ("NVIDIA GH200 480GB", None), ("NVIDIA A100-SXM4-80GB", "a100-80g"), ("NVIDIA L4", None)):
            self.assertEqual(tables.catalogue_name(gpu), name)

    def test_steps_fit_their_calls(self):
        for name, call in plan.CALLS.items():
            self.assertLessEqual(sum(step.expected for step in call.steps), 0.9 * call.limit, name)
        self.assertLessEqual(sum(plan.CALLS[name].limit for name in ("1", "2")) + 90 + 25, plan.DEVICE_SECONDS)
        names = [run.name for run in plan.planned_runs(plan.FULL, "h200")]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(len([name for name in names if name.startswith("4-")]), 10)


if __name__ == "__main__":
    unittest.main()
