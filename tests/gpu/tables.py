"""Rows of the tables of tests/gpu/validate, from the files that its programs leave.

    tables.py kernels TESTS.json              Markdown of what gtest wrote with --gtest_output=json
    tables.py run NAME RUN.json [options]     a row of runs: forecast beside measurement, losses beside one rank's

Two figures with a stroke between them are forecast and measurement. `run` leaves with 1 where the run is incomplete,
sends other bytes than forecast, or misses what it is asked.
"""

import argparse
import json
import math
import sys

# How far losses may be from one rank's, by the precision of products: as in gpu_kernels_test.cpp.
OF_LOSSES = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 2e-2, "fp8": 5e-2}


def row(cells):
    print(f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |")


def kernels(arguments):
    with open(arguments.tests, encoding="utf-8") as file:
        suites = json.load(file)["testsuites"]
    row(("test", "largest error", "allowed", "s", "status"))
    row(("---", "--:", "--:", "--:", "---"))
    for suite in suites:
        for test in suite["testsuite"]:
            status = "failed" if test.get("failures") else test.get("result", "").lower()
            row((f"{suite['name']}.{test['name']}", test.get("error", ""), test.get("tolerance", ""),
                 test.get("time", "").rstrip("s"), status))
    print()


def losses_of(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    return document["samples"][0]["dtype"], [step["loss"] for step in document["run"]["steps"]]


def exposed(result):
    return sum(result["breakdown"][f"{axis}_comm_s"] for axis in ("tp", "pp", "dp", "cp", "ep"))


def sent(result):
    return {axis: part["bytes_sent_per_rank"] for axis, part in result["communication"].items() if isinstance(part, dict)}


def run(arguments):
    with open(arguments.run, encoding="utf-8") as file:
        document = json.load(file)
    comparison = document["comparison"]
    told, seen = comparison["forecast"], comparison["measured"]
    calibrated, measured = told["iteration"]["time_s"], seen["iteration"]["time_s"]
    judged = arguments.profiled if arguments.profiled is not None else calibrated
    error = 100 * (judged / measured - 1)
    problems = []
    if not document["run"]["complete"]:
        problems.append(f"failed: {document['run']['failure']}")
    if arguments.most is not None and not abs(error) <= arguments.most:
        problems.append(f"missed by more than {arguments.most:g} %")
    forecast_bytes, measured_bytes = sum(sent(told).values()), sum(sent(seen).values())
    if sent(told) != sent(seen):
        problems.append("bytes differ")
    dtype, losses = losses_of(arguments.run)
    off = ""
    finite = all(isinstance(loss, (int, float)) and math.isfinite(loss) for loss in losses)
    if not finite:
        problems.append("a loss is no number")
    elif arguments.beside:
        farthest = max(abs(own / other - 1) for own, other in zip(losses, losses_of(arguments.beside)[1]))
        off = f"{farthest:.1e}"
        if not farthest <= OF_LOSSES[dtype]:
            problems.append(f"losses differ by more than {OF_LOSSES[dtype]:.0e}")
    sent_cell = f"{forecast_bytes:.0f} / {measured_bytes:.0f}"
    row((arguments.name, "" if arguments.profiled is None else f"{arguments.profiled:.6f}", f"{calibrated:.6f}",
         f"{measured:.6f}", f"{error:+.1f}",
         f"{100 * told['bubble']['fraction']:.1f} / {100 * seen['bubble']['fraction']:.1f}",
         f"{exposed(told):.6f} / {exposed(seen):.6f}", sent_cell, f"{losses[-1]:.6g}" if finite and losses else "", off,
         "; ".join(["measured"] + problems)))
    sys.exit(1 if problems else 0)


def run_or_say(arguments):
    """A file that tells no times is a row, too."""
    try:
        run(arguments)
    except (OSError, ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as error:
        row((arguments.name, *[""] * 9, f"failed: no comparison ({type(error).__name__}: {error})"))
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    of_kernels = commands.add_parser("kernels")
    of_kernels.add_argument("tests")
    of_kernels.set_defaults(command=kernels)
    of_run = commands.add_parser("run")
    of_run.add_argument("name")
    of_run.add_argument("run")
    of_run.add_argument("--profiled", type=float, help="seconds of a step by a device profile; judged instead")
    of_run.add_argument("--beside", help="a run of one rank with the same batches, whose losses these must be")
    of_run.add_argument("--most", type=float, help="percent that the forecast may miss by")
    of_run.set_defaults(command=run_or_say)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
