"""Tables of the measurements of tests/gpu/session: forecast next to measurement, errors next to tolerances.

Two figures separated by a slash are forecast / measured. Limits are committed before the run.
"""

import json
import math
import re
from dataclasses import dataclass, field

import plan

# Allowed distance of losses from one rank's, by the precision of products; as in gpu_kernels_test.cpp.
LOSS_TOLERANCE = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 2e-2, "fp8": 5e-2}
# Exit codes of torch_block.py.
TORCH_STATUS = {0: "ok", 78: "missed", 77: "left out: no PyTorch here", 4: "FAILED: PyTorch sees no GPU", 3: "FAILED: no time for all rows",
                1: "FAILED: a row failed", 124: "FAILED: the time was up", 137: "FAILED: the time was up"}
# Commands that describe the machine, each limited to 10 s.
FACTS = [
    "uname -srm; nproc; head -n 2 /proc/meminfo; cat /etc/os-release | head -n 2",
    "nvidia-smi",
    "nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit,compute_mode,"
    "mig.mode.current --format=csv",
    "nvidia-smi -q -d CLOCK,PERFORMANCE,POWER | head -n 80",
    "for name in nvcc compute-sanitizer nvidia-cuda-mps-control cmake gcc; do command -v $name; done",
    "cat build/gpu-pack/commit",
    "ldconfig -p | grep -E 'libcuda\\.so|cublasLt|nccl|libstdc'",
    "ls /usr/local/nvidia/lib64 | head -n 20",
    "python3 --version",
]


def catalogue_name(gpu):
    """The device in the catalogue for a GPU's name from nvidia-smi; None if the name is ambiguous."""
    if "GH200" in gpu:  # another chip, whose name contains this one's
        return None
    for pattern, name in (("H200", "h200"), ("H100.*PCIe", "h100-pcie"), ("H100", "h100"), ("A100.*80GB", "a100-80g"),
                          ("B200", "b200")):
        if re.search(pattern, gpu):
            return name
    return None


def step_holds(status):
    """A step that lacks its program on this machine does not fail a call."""
    return status == "ok" or (status.startswith("left out: ") and status != "left out: no time")


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def read_records(path):
    """The last record of each test."""
    records = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    for line in lines:
        try:
            record = json.loads(line)
            records[record["test"]] = record
        except (ValueError, KeyError):
            continue  # half a line of a killed process
    return records


def markdown(header, rows, left=1):
    def line(cells):
        return f"| {' | '.join(str(cell).replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"

    rule = ["---" if index < left or index == len(header) - 1 else "--:" for index in range(len(header))]
    return "\n".join([line(header), line(rule), *map(line, rows)]) + "\n"


# --- training runs ---


@dataclass
class Row:
    name: str
    cells: list
    status: str
    measured: bool = False
    error: float = None  # percent, if the forecast is judged
    problems: list = field(default_factory=list)


RUN_HEADER = ("run", "by profile (s)", "by calibration (s)", "measured (s)", "error %", "bubble %", "exposed (s)",
              "sent by a rank (B)", "last loss", "off one rank", "status")


def losses_of(document):
    return document["samples"][0]["dtype"], [step["loss"] for step in document["run"]["steps"]]


def exposed(result):
    return sum(result["breakdown"][f"{axis}_comm_s"] for axis in ("tp", "pp", "dp", "cp", "ep"))


def sent(result):
    return {axis: part["bytes_sent_per_rank"] for axis, part in result["communication"].items() if isinstance(part, dict)}


def compare_run(document, reference=None, profiled=None, most=None):
    """Cells and problems of a run's file; `reference` is the single-rank run whose losses it must match."""
    comparison = document["comparison"]
    forecast, measured = comparison["forecast"], comparison["measured"]
    calibrated, seconds = forecast["iteration"]["time_s"], measured["iteration"]["time_s"]
    error = 100 * ((profiled if profiled is not None else calibrated) / seconds - 1)
    problems = []
    if not document["run"]["complete"]:
        problems.append(f"failed: {document['run']['failure']}")
    if most is not None and not abs(error) <= most:
        problems.append(f"missed by more than {most:g} %")
    if sent(forecast) != sent(measured):
        problems.append("bytes differ")
    dtype, losses = losses_of(document)
    finite = all(isinstance(loss, (int, float)) and math.isfinite(loss) for loss in losses)
    off = ""
    if not finite:
        problems.append("a loss is not a number")
    elif reference is not None:
        farthest = max(abs(own / other - 1) for own, other in zip(losses, losses_of(reference)[1]))
        off = f"{farthest:.1e}"
        if not farthest <= LOSS_TOLERANCE[dtype]:
            problems.append(f"losses differ by more than {LOSS_TOLERANCE[dtype]:.0e}")
    cells = ["" if profiled is None else f"{profiled:.6f}", f"{calibrated:.6f}", f"{seconds:.6f}", f"{error:+.1f}",
             f"{100 * forecast['bubble']['fraction']:.1f} / {100 * measured['bubble']['fraction']:.1f}",
             f"{exposed(forecast):.6f} / {exposed(measured):.6f}",
             f"{sum(sent(forecast).values()):.0f} / {sum(sent(measured).values()):.0f}",
             f"{losses[-1]:.6g}" if finite and losses else "", off]
    return cells, problems, error


def run_row(results, run):
    status = read_json(results / "runs" / f"{run.name}.status.json")
    if status.get("status") != "measured":
        words = f"{status['status']}: {status['why']}" if status else "not run"
        if status.get("status") == "hung":
            words = f"hung {status['why']}"
        return Row(run.name, [""] * 9, words)
    reference = read_json(results / "runs" / f"{run.reference}.json") if run.reference else None
    try:
        cells, problems, error = compare_run(
            read_json(results / "runs" / f"{run.name}.json"), reference if reference else None,
            status.get("profiled_s") if run.profiled else None, plan.MOST_ERROR if run.judged else None)
    except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as reason:
        return Row(run.name, [""] * 9, f"failed: cannot be compared ({type(reason).__name__}: {reason})")
    if run.reference and not reference:
        problems.append(f"{run.reference}, whose losses it should match, was not measured")
    if run.profiled and status.get("profiled_s") is None:
        problems.append("no time by the profile")
    return Row(run.name, cells, "; ".join(["measured", *problems]), True, error if run.judged else None, problems)


def schedule_tables(results, runs):
    text = []
    for step in dict.fromkeys(run.step for run in runs):
        rows = [run_row(results, run) for run in runs if run.step == step]
        text.append(f"### {step}\n\n" + markdown(RUN_HEADER, [[row.name, *row.cells, row.status] for row in rows]))
        judged = [row for row in rows if row.error is not None]
        planned = sum(1 for run in runs if run.step == step and run.judged)
        within = sum(1 for row in judged if not row.problems)
        if planned:
            text.append(f"{within} of {planned} within {plan.MOST_ERROR} %, with the expected bytes and losses; "
                        f"{planned - len(judged)} not measured, which count as missed.\n")
        conditions = {read_json(results / "runs" / f"{row.name}.status.json").get("conditions", "") for row in rows}
        text += [f"- {condition}\n" for condition in sorted(conditions) if condition]
    return "\n".join(text)


# --- kernels, profile, PyTorch ---


def kernel_table(results):
    rows = []
    notes = []
    for name in (*plan.KERNEL_TESTS, "memcheck"):
        status = read_json(results / f"kernels/{name}.status.json").get("status", "")
        if status and status != "ok":
            notes.append(f"- {name}: {status}\n")
        for test, record in read_records(results / f"kernels/{name}.jsonl").items():
            how = record["status"] if record["status"] != "running" else "did not end"
            message = (record.get("message", "").strip().splitlines() or [""])[0][:200]
            rows.append((f"{test}{' (memcheck)' if name == 'memcheck' else ''}", record.get("error", ""),
                         record.get("tolerance", ""), f"{record.get('seconds', 0):.2f}",
                         f"{how}: {message}" if message else how))
    if not rows and not notes:
        return ""
    return markdown(("test", "largest error", "allowed", "s", "status"), rows) + "".join(["\n", *notes])


def block(path):
    """Preformatted text."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return f"```\n{text}\n```\n" if text else ""


def plain(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def losses(results):
    status = read_json(results / "torch/losses.status.json").get("status", "")
    text = plain(results / "torch/losses.md")
    return f"{status}\n\n{text}" if status not in ("", "ok") else text


# --- the page ---


def page(results, mock):
    machine = read_json(results / "machine.json")
    steps = read_json(results / "steps.json")
    sizes = plan.MOCK if mock else plan.FULL
    runs = plan.planned_runs(sizes, catalogue_name(machine.get("gpu", "")) or "h200")
    parts = [f"# Forecasts and runs on one GPU: {machine.get('gpu', 'unknown')}\n",
             "Written by `tests/gpu/session`. Ranks share one GPU: links between GPUs are not measured. "
             "Figures separated by a slash: forecast / measured.\n"]
    if mock:
        parts.append("**A mock of a GPU: all figures are meaningless.**\n")
    if steps:
        parts.append(markdown(("step", "call", "s", "status"),
                              [(name, step["call"], step["seconds"], step["status"]) for name, step in steps.items()]))
    parts.append("## Training runs\n\n" + schedule_tables(results, runs))
    for title, text in (("Kernels", kernel_table(results)), ("Profile", block(results / "profile/profile.txt")),
                        ("PyTorch", plain(results / "torch/rows.md")),
                        ("PyTorch's losses", losses(results)),
                        ("Machine", block(results / "facts.txt"))):
        if text:
            parts.append(f"## {title}\n\n{text}")
    return "\n".join(parts)
