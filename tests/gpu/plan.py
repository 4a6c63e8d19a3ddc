"""The two calls of tests/gpu/session: their steps with expected and maximum seconds, and all their training runs.

A GPU is available for 900 s, including its start. Call 1 may take 500 s; call 2, while the machine is warm, 255 s; on a
freshly started machine, 150 s. Expected seconds of a call sum to at most 90 % of its limit.
"""

from dataclasses import dataclass, replace

DEVICE_SECONDS = 900


@dataclass(frozen=True)
class Step:
    """`most`: seconds after which the step ends, at the latest at the end of the call."""

    name: str
    expected: int
    most: int
    proves: str


REST = 10_000  # until the end of the call


@dataclass(frozen=True)
class Call:
    limit: int
    steps: tuple


CALLS = {
    "1": Call(500, (
        Step("facts", 10, 30, "which machine this is; libraries are read ahead in the background"),
        Step("smoke", 25, 60, "a rank trains at all; lazy against eager loading; green contexts or streams"),
        Step("nccl", 70, 110, "several ranks through NCCL: losses and bytes, or NCCL's own words"),
        Step("schedules-4", 115, 140, "ten schedules on four parts of the GPU next to one rank"),
        Step("kernels", 45, 75, "errors next to tolerances; losses of small trainings against the CPU"),
        Step("profile", 85, 110, "the device's profile with residuals"),
        Step("schedules-8", 75, REST, "four schedules on eight parts"),
    )),
    "2": Call(255, (
        Step("facts", 5, 30, "checks that it is the same machine"),
        Step("one-rank", 40, 70, "steps of one rank by the profile: fp32, tf32, bf16, fp8"),
        Step("torch", 110, 130, "PyTorch's block in five rows: time by catalogue and by profile, memory"),
        Step("schedules-2", 40, REST, "four schedules on two parts, then whatever is missing"),
        Step("memcheck", 25, 30, "kernels under compute-sanitizer"),
    )),
    "2 cold": Call(150, (
        Step("facts", 10, 30, "which machine this is"),
        Step("one-rank", 40, 55, "steps of one rank by the profile: fp32, tf32, bf16, fp8"),
        Step("torch", 60, 75, "PyTorch's block, up to five rows as time permits"),
        Step("memcheck", 25, REST, "kernels under compute-sanitizer"),
    )),
}
DROPPED = ("racecheck and synccheck; 15 of 20 PyTorch rows; eight ranks under gpipe, bfs, dualpipev and pipedream; "
           "six schedules on two ranks; in a cold second call also all schedules on two ranks")

# Maximum seconds, including the time from TERM to KILL: of a training run and of a process of kernel tests; of a
# PyTorch row.
RUN_SECONDS = 25
ROW_SECONDS = 60
KILL_AFTER = 4

# Allowed error of a forecast step in percent of the measured one.
MOST_ERROR = 5


@dataclass(frozen=True)
class Run:
    """`flopcast run` with these words. Its losses must equal those of the run `reference`, if given."""

    name: str
    step: str
    words: tuple
    reference: str = ""
    judged: bool = True     # the forecast's error is limited by MOST_ERROR
    profiled: bool = False  # forecast by the profile; otherwise by the run's own calibration
    repetitions: int = 3    # steps that are measured
    environment: tuple = ()

    @property
    def kind(self):
        """Runs of the same kind hang for the same reason."""
        if "nccl" in self.words:
            return "nccl"
        return "virtual" if "--pp" in self.words and self.words[self.words.index("--pp") + 1] != "1" else "one-rank"


def model(layers, hidden, heads, vocab, length):
    words = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocab": vocab,
             "sequence_length": length, "tied_embeddings": "false"}
    return tuple(text for key, value in words.items() for text in (f"--model.{key}", str(value)))


@dataclass(frozen=True)
class Sizes:
    alone: tuple     # one rank: matrix products take most of the step
    pipeline: tuple  # a pass takes milliseconds, a hop little; gpipe on eight ranks uses 75 GB
    small: tuple     # NCCL over loopback sockets takes milliseconds per message
    batch: int       # samples per microbatch of `pipeline` and `small`
    schedules: dict  # by the number of ranks; `:V` is the number of chunks per rank
    repetitions: int
    microbatches: int
    share: int = 1   # divisor of the number of ranks: a mock is slow


BF16 = ("--training.precision", "bf16")
ON_FOUR = ("1f1b", "zb-h1", "gpipe", "interleaved:2", "bfs:2", "zbv", "dualpipev", "pipedream", "pipedream-2bw", "naive")
ON_TWO = ("gpipe", "1f1b", "zb-h1", "pipedream-2bw")
FULL = Sizes(model(4, 4096, 32, 8192, 64) + ("--mbs", "32", "--gbs", "128"), model(16, 1024, 8, 4096, 1024) + BF16,
             model(8, 1024, 8, 4096, 512) + BF16, 4,
             {4: ON_FOUR, 8: ("1f1b", "interleaved:2", "zb-h1", "zbv"), 2: ON_TWO}, 3, 8)
# An emulated kernel takes a millisecond regardless of its size: few layers, half of the ranks.
MOCK = Sizes(model(1, 16, 2, 16, 16) + ("--mbs", "1", "--gbs", "2"), model(4, 8, 1, 16, 4) + BF16,
             model(2, 8, 1, 16, 4) + BF16, 1, {4: ON_FOUR, 8: ("1f1b",), 2: ("gpipe",)}, 1, 4, share=2)

ASYNCHRONOUS = ("pipedream", "pipedream-2bw")  # weights of different ages: losses differ from those of one rank


def one_rank(name, step, words, samples, **more):
    return Run(name, step, (*words, "--pp", "1", "--cluster", "one-gpu", "--gbs", str(samples), "--backend",
                            "virtual-gpus"), judged=False, **more)


def runs_of_schedules(sizes):
    planned = {}
    for many, schedules in sizes.schedules.items():
        step, ranks = f"schedules-{many}", max(2, many // sizes.share)
        # dualpipev needs a microbatch for each of its stages.
        samples = max(sizes.microbatches, 2 * ranks) * sizes.batch
        words = (*sizes.pipeline, "--mbs", str(sizes.batch))
        reference = f"one-rank-{samples}"
        planned.setdefault(reference, one_rank(reference, step, words, samples))
        for schedule in schedules:
            name, _, chunks = schedule.partition(":")
            flags = ("--schedule", name, "--pp", str(ranks), "--cluster", f"{ranks}xone-gpu", "--gbs", str(samples))
            flags += ("--vpp", chunks) if chunks else ()
            planned[f"{many}-{name}"] = Run(f"{many}-{name}", step, (*words, *flags, "--backend", "virtual-gpus"),
                                             "" if name in ASYNCHRONOUS else reference)
    return list(planned.values())


def planned_runs(sizes, device):
    """All runs, the most valuable first. `device`: name in the catalogue, for its fp8 rate."""
    samples = sizes.microbatches * sizes.batch
    small = (*sizes.small, "--mbs", str(sizes.batch))
    two = ("--schedule", "1f1b", "--pp", "2", "--cluster", "2xone-gpu", "--gbs", str(samples))
    through_nccl = ("--backend", "nccl", "--one-gpu", "2")
    runs = [
        # The first run reads uncached files, and so pays for more than loading.
        one_rank("smoke-eager", "smoke", small, samples, environment=(("CUDA_MODULE_LOADING", "EAGER"),)),
        one_rank("smoke-lazy", "smoke", small, samples, environment=(("CUDA_MODULE_LOADING", "LAZY"),)),
        Run("smoke-2-ranks", "smoke", (*small, *two, "--backend", "virtual-gpus"), "smoke-eager", judged=False),
        one_rank("small-one-rank", "nccl", small, samples),
        Run("virtual-1f1b", "nccl", (*small, *two, "--backend", "virtual-gpus"), "small-one-rank", judged=False),
    ]
    # Messages over loopback sockets: bytes and losses are judged, not time.
    for schedule in ("1f1b", "gpipe", "zb-h1"):
        runs.append(Run(f"nccl-{schedule}", "nccl", (*small, "--schedule", schedule, *two[2:], *through_nccl),
                        "small-one-rank", judged=False))
    runs.insert(6, Run("nccl-dp", "nccl", (*small, "--pp", "1", "--dp", "2", *two[4:], *through_nccl),
                       "small-one-rank", judged=False))
    runs += runs_of_schedules(sizes)
    for precision in ("bf16", "tf32", "fp8", "fp32"):
        words = (*sizes.alone, "--training.precision", precision, "--pp", "1", "--cluster", "one-gpu")
        if precision == "fp8":
            words += ("--cluster.device", device, "--training.fp8_recipe", "current")
        runs.append(Run(f"one-rank-{precision}", "one-rank", (*words, "--backend", "virtual-gpus"), profiled=True))
    return [replace(run, repetitions=sizes.repetitions) for run in runs]


# Google Test filters, each for a process with separate records.
KERNEL_TESTS = {
    "kernels": "OnGpu.*-OnGpu.Losses*:OnGpu.PartsOfTheirOwn*",
    "losses": "OnGpu.Losses*:OnGpu.PartsOfTheirOwn*",
    "bench": "BenchOnGpu.*",
}
MOCK_KERNEL_TESTS = {
    "kernels": "EmulatedKernels.LayerNorm:EmulatedKernels.RowSums:EmulatedKernels.Draws",
    "losses": "EmulatedTraining.LossesOfSplitBackwards",
    "bench": "EmulatedBench.CopiesCopy",
}
MEMCHECK_TESTS = ("OnGpu.Attention*:OnGpu.NumbersOf8Bits*:OnGpu.LayerNorm:OnGpu.CrossEntropy:OnGpu.RowSums:"
                  "OnGpu.Elementwise:OnGpu.Draws")
