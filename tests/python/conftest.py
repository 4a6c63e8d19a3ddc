"""Paths of the build, and test reports for ./check."""

import os
import pathlib
import subprocess
from xml.sax.saxutils import quoteattr

import pytest

PROGRAM = os.environ.get("FLOPCAST_PROGRAM", "flopcast")
SOURCE = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def program():
    """Runs the program and returns its output."""

    def run(*arguments, input=None, code=0):
        done = subprocess.run([PROGRAM, *arguments], input=input, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def source():
    """The project's folder."""
    return SOURCE


@pytest.fixture(scope="session")
def build():
    """The build's folder."""
    if "FLOPCAST_BUILD" not in os.environ:
        pytest.skip("FLOPCAST_BUILD does not name a build")
    return pathlib.Path(os.environ["FLOPCAST_BUILD"])


@pytest.fixture
def job():
    return {
        "model": "gpt3-175b",
        "cluster": {"name": "dgx-a100-80g", "nodes": 8},
        "layout": {"tp": 8, "pp": 8, "vpp": 3, "sequence_parallel": True, "schedule": "interleaved",
                   "micro_batch_size": 1, "global_batch_size": 64, "recompute": "selective"},
        "training": {"sequence_length": 2048, "precision": "bf16", "stack": "megatron-2022", "tokens": "300B"},
    }


# Test cases in Google Test's format, one line each, which tests/support/junit.awk counts.
_cases = {}


def pytest_runtest_logreport(report):
    module, _, name = report.nodeid.rpartition("::")
    case = _cases.setdefault(report.nodeid, {"class": pathlib.Path(module).stem, "name": name, "time": 0.0, "said": ""})
    case["time"] += report.duration
    if report.failed:
        case["said"] = f"<failure message={quoteattr(str(report.longreprtext)[-2000:])}/>"
    elif report.skipped:
        case["said"] = f"<skipped message={quoteattr(str(report.longrepr))}/>"


def pytest_sessionfinish():
    path = os.environ.get("FLOPCAST_RESULTS")
    if not path:
        return
    with open(path, "w", encoding="utf-8") as file:
        for case in _cases.values():
            file.write(f'<testcase name={quoteattr(case["name"])} status="run" time="{case["time"]:.3f}" '
                       f'classname={quoteattr(case["class"])}>\n')
            file.write(case["said"].replace("\n", "&#x0A;") + "\n" if case["said"] else "")
