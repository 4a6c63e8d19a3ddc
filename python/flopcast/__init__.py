"""flopcast: forecasts distributed deep-learning training before the cluster is rented.

    >>> import flopcast
    >>> step = flopcast.simulate(model="gpt3-175b", cluster="8xdgx-a100-80g", tp=8, pp=8, gbs=64)
    >>> step.time_s, step.fits

A job is a dict with the contents of a job file, the path of a job file or of a file of another program (a launch script, a
config.json, a recipe), or only keys; keys override files. A key is a path ("layout.tp", through **{"layout.tp": 8}), the
last word of one (micro_batch_size), or a flag of the command line (gbs); sections may be dicts: layout={"tp": 8}. Other
keywords are flags of the command, with underscores for dashes: plan(job, objective="cost", max_gpus=512). If a name is
both a key and a flag, it is the flag.

Errors are exceptions with field, problem, where, help and value: see flopcast.errors. Functions release the GIL and
keep no state between calls.
"""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _core
from .errors import ConfigError, EnvironmentFailure, FlopcastError, InternalError, NegativeAnswer
from .results import Comparison, Picture, Plan, Record, Result, Sweep, Table, Timeline

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .keywords import (
        CompareKeys,
        ExplainKeys,
        JobKeys,
        MemoryKeys,
        PlanKeys,
        SimulateKeys,
        SweepKeys,
        TimelineKeys,
        ValidateKeys,
    )

__version__: str = _core.__version__

__all__ = [
    "Catalog",
    "Comparison",
    "ConfigError",
    "EnvironmentFailure",
    "FlopcastError",
    "InternalError",
    "NegativeAnswer",
    "Picture",
    "Plan",
    "Pricer",
    "Record",
    "Result",
    "Schedule",
    "Sweep",
    "Table",
    "Timeline",
    "Verdict",
    "__version__",
    "catalog",
    "command",
    "compare",
    "compare_schedules",
    "convert",
    "explain",
    "layouts",
    "memory",
    "network_flows",
    "plan",
    "prices",
    "schedule",
    "simulate",
    "sweep",
    "timeline",
    "validate",
]

Job = Union[None, str, "os.PathLike[str]", Mapping[str, Any]]
Keys = List[Tuple[str, str]]


# --- jobs and flags in the library's format ---


def _text(value: Any) -> str:
    """Formats a value as the text of a flag."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return json.dumps(_plain(value))
    if isinstance(value, (list, tuple)):
        if any(isinstance(one, (Mapping, list, tuple)) for one in value):
            return json.dumps(_plain(value))
        return ",".join(_text(one) for one in value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if hasattr(value, "item"):
        return _text(value.item())
    raise TypeError(f"{value!r} is not a value of a job: give text, a number, a bool, a list or a dict")


def _plain(value: Any) -> Any:
    """Converts a value for json.dumps, including numpy numbers."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "item") else value


def _keys(values: Mapping[str, Any]) -> Keys:
    """Keys of a job as text; of other inputs, False is omitted and lists are given element by element."""
    keys: Keys = []
    for name, value in values.items():
        of_job = _core.is_job_key(name)
        if value is None or (value is False and not of_job):
            continue
        several = isinstance(value, (list, tuple)) and not of_job
        keys += [(name, _text(one)) for one in (value if several else [value])]
    return keys


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Dict[str, Any]:
    """A job's dict overridden by another."""
    joined = dict(below)
    for name, value in above.items():
        known = joined.get(name)
        # A name becomes an object with that name, as with flags.
        if isinstance(known, str) and isinstance(value, Mapping) and name in ("model", "cluster") and "name" not in value:
            known = {"name": known}
        joined[name] = _over(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return joined


class _Question:
    """A job and the keys that override it."""

    def __init__(self, job: Job, files: Sequence[Any], values: Mapping[str, Any]) -> None:
        self.text = ""
        self.files = [os.fspath(file) for file in files]
        self._values = values
        # Sections given as dicts override a job that is a dict, and files.
        sections = {name: value for name, value in values.items() if isinstance(value, Mapping)}
        self.keys = _keys({name: value for name, value in values.items() if name not in sections})
        if isinstance(job, str) and job.lstrip().startswith("{"):
            self.text = job
            if not sections:
                return
            job = json.loads(job)
        if isinstance(job, Result):
            job = job.to_dict()["job"]
        if isinstance(job, Mapping) or sections:
            self.text = json.dumps(_plain(_over(job if isinstance(job, Mapping) else {}, sections)))
        if job is not None and not isinstance(job, Mapping):
            self.files.insert(0, os.fspath(job))

    def of_job(self) -> Tuple[str, List[str], Keys]:
        return self.text, self.files, self.keys

    def value_at(self, field: str) -> Any:
        """The value given for a dotted path or flag."""
        word = field.lstrip("-").replace("-", "_")
        for name in (field, word, word.rpartition(".")[2]):
            if name in self._values:
                return self._values[name]
        value: Any = None
        if self.text:
            try:
                value = json.loads(self.text)
            except ValueError:
                return None
        for part in field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def ask(self, name: str, more: Keys = [], rest: Sequence[str] = (), form: str = "json") -> Tuple[str, str]:
        """The answer of the question with that name, and its warnings."""
        return self.call(_answered, name, self.text, self.files, [*self.keys, *more], list(rest), form)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function, and adds the offending value to errors."""
        try:
            return function(*arguments)
        except FlopcastError as error:
            error.value = self.value_at(error.field)
            raise


def _printed(printed: str, notes: str, negative: str) -> Tuple[str, str]:
    if negative:
        error = NegativeAnswer(negative, "", negative)
        error.answer = printed
        raise error
    return printed.rstrip("\n"), notes


def _answered(
    name: str, text: str, files: List[str], keys: Keys, rest: Sequence[str] = (), form: str = "json"
) -> Tuple[str, str]:
    return _printed(*_core.answer_question(name, text, files, keys, list(rest), form))


# --- forecasts ---


def simulate(
    job: Job = None,
    *files: Any,
    own_schedule: Optional[Callable[[int, int, int], Sequence[Sequence[str]]]] = None,
    operator_time: Optional[Callable[[str, str, float], float]] = None,
    network_time: Optional[Callable[[str, float, int, int, float], float]] = None,
    **keys: Unpack[SimulateKeys],
) -> Result:
    """Forecasts one training step: time, MFU, bubble, communication, memory.

    Args:
        job: see the module; files: more files, later ones override earlier ones; a dict overrides files.
        own_schedule: (pipeline ranks, microbatches, chunks) -> cells of every rank ("0F0", "1B3"); replaces
            layout.schedule.
        operator_time: (operator, pass, flopcast's seconds) -> seconds for one microbatch on one device.
        network_time: (kind, bytes, ranks, nodes, flopcast's seconds) -> seconds for a collective or message.
        keys: keys of the job, or flags of `flopcast simulate` such as jitter="3%".

    Raises:
        ConfigError: the job is invalid. A job that does not fit is not an error: see Result.fits.
    """
    question = _Question(job, files, keys)
    laws = {
        name: law
        for name, law in (
            ("schedule", own_schedule),
            ("operator_time", operator_time),
            ("network_time", network_time),
        )
        if law is not None
    }
    if laws or all(_core.is_job_key(name) for name, _ in question.keys):
        return Result(step=question.call(_core.simulate, *question.of_job(), laws))
    text, notes = question.ask("simulate")
    return Result(text=text, notes=notes)


def plan(job: Job = None, *files: Any, **keys: Unpack[PlanKeys]) -> Plan:
    """Ranks every layout of a model on a cluster; layout keys set by the job stay fixed.

    Flags: objective ("time", "cost", "gpus", "energy"), deadline ("45d"), budget, max_gpus, min_gpus=True, schedules, top,
    headroom, threads, mtbf, ….

    Raises:
        NegativeAnswer: no layout fits, or none meets the limits; the text describes the closest one.
    """
    text, notes = _Question(job, files, keys).ask("plan")
    return Plan(text=text, notes=notes)


def memory(job: Job = None, *files: Any, view: str = "peak", check: bool = False, **keys: Unpack[MemoryKeys]) -> Record:
    """Memory of each pipeline rank in GiB: flopcast.memory/1.

    Args:
        view: "peak"; "over-time": every change during the step; "tensors": tensors of the fullest rank.
        check: raise NegativeAnswer if the job does not fit.
    """
    views: Dict[str, Keys] = {"peak": [], "over-time": [("over_time", "true")], "tensors": [("explain", "true")]}
    if view not in views:
        raise ConfigError(f'error: view: unknown value "{view}"', "view", f'unknown value "{view}"', "", f"valid: {', '.join(views)}")
    text, notes = _Question(job, files, {**keys, "check": check or None}).ask("memory", views[view])
    return Record(text=text, notes=notes)


def sweep(job: Job = None, *files: Any, vary: Mapping[str, Iterable[Any]], **keys: Unpack[SweepKeys]) -> Sweep:
    """Forecasts every combination of values: vary={"pp": [1, 2, 4], "mbs": [1, 2]}; the last key varies fastest.

    Invalid combinations become rows with an error. For more than thousands of layouts, see `prices`.
    """
    axes = []
    for name, values in vary.items():
        texts = [_text(value) for value in values]
        axes.append(f"{name}=" + (";" if any("," in text for text in texts) else ",").join(texts))
    text, notes = _Question(job, files, keys).ask("sweep", [("vary", axis) for axis in axes])
    return Sweep(text=text, notes=notes)


def compare(job: Job = None, *layouts: Union[str, Mapping[str, Any], Result], **keys: Unpack[CompareKeys]) -> Comparison:
    """Compares layouts side by side and splits the difference in step time term by term.

    Args:
        layouts: dicts of keys ({"tp": 4, "pp": 8}), texts ("tp=4,pp=8"), paths of job or result files, or results.
    """
    with tempfile.TemporaryDirectory() as folder:
        names: List[str] = []
        for number, layout in enumerate(layouts):
            if isinstance(layout, Result):
                names.append(os.path.join(folder, f"result-{number}.json"))
                with open(names[-1], "w", encoding="utf-8") as file:
                    file.write(layout.json)
            elif isinstance(layout, Mapping):
                names.append(",".join(f"{name}={_text(value)}" for name, value in layout.items()))
            else:
                names.append(os.fspath(layout))
        question = _Question(job, [], keys)
        if question.files and question.text:
            # Only one JOB is compared: the file with the sections overriding it.
            converted = convert(question.files[0]).to_dict()["job"]
            question.text, question.files = json.dumps(_over(converted, json.loads(question.text))), []
        question.files += ["-"] * bool(question.text) + names
        text, notes = question.ask("compare")
    return Comparison(text=text, notes=notes)


def timeline(job: Job = None, *files: Any, **keys: Unpack[TimelineKeys]) -> Timeline:
    """Actions of every pipeline rank over time: flopcast.timeline/1 with its picture.

    Without a job, it draws schedules: timeline(pp=4, microbatches=8, schedule="gpipe,1f1b").
    """
    question = _Question(job, files, keys)
    text, notes = question.ask("timeline")
    return Timeline(text=text, notes=notes, draw=lambda: _core.draw_question("timeline", *question.of_job()))


def validate(**flags: Unpack[ValidateKeys]) -> Record:
    """Forecasts measured training steps: the error table of `flopcast validate`.

    Flags: published (a folder or file), runs, source, max_error (raises NegativeAnswer above it), profile, ….
    """
    text, notes = _Question(None, [], flags).ask("validate")
    data = json.loads(text)
    return Record(data if isinstance(data, dict) else {"rows": data}, text=text, notes=notes)


def convert(file: Any, *arguments: str, env: Optional[Mapping[str, str]] = None, **keys: Any) -> Record:
    """Converts a file of another program to a job, and reports how each of its keys was used."""
    variables = [("env", f"{name}={value}") for name, value in (env or {}).items()]
    text, notes = _Question(None, [file], keys).ask("convert", variables, arguments)
    return Record(text=text, notes=notes)


def explain(term: str, job: Job = None, **keys: Unpack[ExplainKeys]) -> str:
    """Explains a term of the results with formula and source; with a job, also with its numbers."""
    question = _Question(job, [], keys)
    question.files.insert(0, term)
    return question.ask("explain", form="table")[0]


def network_flows(case: Union[Mapping[str, Any], str, "os.PathLike[str]"]) -> Record:
    """Finish times in seconds of flows on shared links; sim/files/flow_case.hpp describes the contents of a case."""
    is_case = isinstance(case, Mapping)
    text = json.dumps(_plain(case)) if is_case else ""
    file = "-" if is_case else os.fspath(case)  # type: ignore[arg-type]
    printed, notes = _answered("network flows", text, [file], [])
    return Record(text=printed, notes=notes)


def command(*arguments: str, input: str = "") -> str:
    """Returns the output of `flopcast ARGUMENTS…`, without starting a program; "-" as a file reads `input`.

    Raises:
        FlopcastError: if the program would exit with a code other than 0.
    """
    return _printed(*_core.answer_command(list(arguments), input))[0]


# --- prices of many layouts ---

_RECOMPUTE = ("none", "selective", "full")


def _column(name: str, values: Any) -> Any:
    if isinstance(values, str):
        values = [values]
    if name == "recompute" and not hasattr(values, "__array_interface__") and not isinstance(values, memoryview):
        try:
            values = [_RECOMPUTE.index(value) if isinstance(value, str) else int(value) for value in values]
        except ValueError:
            text = f"recompute: unknown value among {', '.join(map(str, values))}"
            raise ConfigError(text, "recompute", text, "", f"valid: {', '.join(_RECOMPUTE)}") from None
    if isinstance(values, (bool, int)):
        values = [int(values)]
    if isinstance(values, (list, tuple, range)):
        return array("q", [int(value) for value in values])
    return values


def prices(
    job: Job = None,
    columns: Optional[Mapping[str, Any]] = None,
    *,
    simulated: bool = True,
    threads: int = 0,
    **keys: Unpack[JobKeys],
) -> Table:
    """Step time and memory of many layouts of one job in one call.

    Args:
        job: model, cluster, training and layout.global_batch_size; other keys of its layout apply to every row.
        columns: by key, one value per layout (a list or anything with a buffer of whole numbers, such as numpy's arrays),
            or one for all: nodes, tp, pp, cp, ep, vpp, micro_batch_size, global_batch_size, zero, sequence_parallel,
            recompute ("none", "selective", "full" or 0, 1, 2), schedule (names, or indices into "schedules").
            The result of `layouts`, or a slice of it, is valid. Without columns, the job's layout is the only row.
        simulated: True: the step time as forecast by `simulate`; False: a lower bound for every order of the schedule's
            actions, which the planner uses and which is several times as fast to compute.
        threads: number of threads; 0: one per core.

    Returns:
        A table with time_s (seconds; NaN if a layout breaks a rule), memory_gib (of the fullest rank, as shown by
        nvidia-smi), fits (0 or 1), reason (an index into Table.reasons).
    """
    columns = dict(columns or {})
    schedules: List[str] = [_text(name) for name in columns.pop("schedules", [])]
    named = columns.get("schedule")
    if isinstance(named, str):
        named = [named]
    if isinstance(named, (list, tuple)) and any(isinstance(name, str) for name in named):
        schedules = list(dict.fromkeys(named))
        places = {name: place for place, name in enumerate(schedules)}
        columns["schedule"] = [places[name] for name in named]
    given = {name: _column(name, values) for name, values in columns.items()}
    question = _Question(job, [], keys)
    answer, reasons = question.call(_core.price_layouts, *question.of_job(), given, schedules, simulated, threads)
    table = Table(answer)
    table.reasons = reasons  # type: ignore[attr-defined]
    return table


class Layouts(Table):
    """Layouts as columns of whole numbers; the column schedule has indices into `schedules`."""

    def __init__(self, columns: Mapping[str, Any], schedules: List[str]) -> None:
        super().__init__(columns)
        self.schedules = schedules

    def keys_of(self, index: int) -> Dict[str, Any]:
        """A layout as keys of a job."""
        row = self.row(index)
        row["schedule"] = self.schedules[row["schedule"]]
        row["recompute"] = _RECOMPUTE[row["recompute"]]
        row["sequence_parallel"] = bool(row["sequence_parallel"])
        if row["vpp"] == 1:
            del row["vpp"]
        return row


def layouts(job: Job = None, **keys: Unpack[JobKeys]) -> Layouts:
    """Every layout that the planner enumerates for the job, with the keys fixed by its layout section."""
    question = _Question(job, [], keys)
    columns, schedules = question.call(_core.layouts, *question.of_job())
    return Layouts(columns, schedules)


class Pricer:
    """Prices single layouts of a job that is read once: pricer(tp=8, pp=4).time_s. Not thread-safe."""

    def __init__(self, job: Job = None, *, simulated: bool = True, **keys: Any) -> None:
        question = _Question(job, [], keys)
        self._pricer = question.call(_core.LayoutPricer, *question.of_job())
        self._simulated = simulated

    def __call__(self, *, schedule: str = "", recompute: Union[str, int] = -1, **layout: int) -> _core.Price:
        """Keys are the columns of `prices`. Raises ConfigError with the rule that the layout breaks."""
        if isinstance(recompute, str):
            recompute = int(_column("recompute", recompute)[0])
        if recompute >= 0:
            layout["recompute"] = recompute
        return self._pricer.price(layout, schedule, self._simulated)


# --- schedules without a job ---


class Verdict(Record):
    """Result of a check whether a schedule can be executed: valid, and if not, reason, rank, step, cell."""

    def __bool__(self) -> bool:
        return bool(self["valid"])


class Schedule:
    """The order in which every pipeline rank executes its actions; see `schedule`."""

    def __init__(self, rows: Sequence[Sequence[str]], name: str = "own", chains: str = "") -> None:
        self.rows: List[List[str]] = [[str(cell) for cell in row] for row in rows]
        self.name = name
        self._chains: Keys = [("chains", chains)] if chains else []

    @property
    def csv(self) -> str:
        """One line per rank, in the format that torch.distributed.pipelining loads and dumps."""
        return "".join(",".join(row) + "\n" for row in self.rows)

    def check(self, in_order_transfers: bool = False) -> Verdict:
        keys = self._chains + [("in_order_transfers", "true")] * in_order_transfers
        try:
            text, notes = _answered("schedule check", self.csv, ["-"], keys)
        except NegativeAnswer as error:
            if error.answer is None:
                raise
            text, notes = error.answer, str(error)
        return Verdict(text=text, notes=notes)

    def simulate(self, forward: Any = 1, backward: Any = None, **times: Any) -> Record:
        """Simulates the schedule with times in any unit: makespan, bubble_fraction, ranks.

        Args:
            forward, backward: one number, or one per stage; backward_input and backward_weight for a split backward pass;
                fused, p2p, p2p_link (["0:1:4:2"]) as for `flopcast schedule simulate`.
        """
        if backward is None and "backward_input" not in times:
            backward = 2
        keys = self._chains + _keys({"forward": forward, "backward": backward, **times})
        text, notes = _answered("schedule simulate", self.csv, ["-"], keys)
        return Record(text=text, notes=notes)

    def timeline(self, **times: Any) -> Timeline:
        keys = self._chains + _keys(times)
        text, notes = _answered("timeline", self.csv, ["-"], keys)
        return Timeline(text=text, notes=notes, draw=lambda: _core.draw_question("timeline", self.csv, ["-"], keys))

    def _repr_svg_(self) -> str:
        return self.timeline().svg()

    def __repr__(self) -> str:
        return f"Schedule({self.name}: {len(self.rows)} ranks, {sum(map(len, self.rows))} actions)"


def schedule(
    name: Union[str, Sequence[Sequence[str]]],
    pp: Optional[int] = None,
    microbatches: Optional[int] = None,
    vpp: Optional[int] = None,
    chains: str = "",
    **numbers: Any,
) -> Schedule:
    """A schedule of the catalogue, schedule("zbv", pp=4, microbatches=8), or a user-defined one from lists of cells.

    Args:
        name: a name such as "interleaved:2", the path of a .csv, or cells by rank: [["0F0", "0B0"], …].
        chains: "0-3,4-7", the stage ranges of a user-defined bidirectional schedule.
        numbers: group, accumulation, memory_limit, slices, … if the schedule uses them.

    Raises:
        ConfigError: an unknown name, or numbers that the schedule does not support.
    """
    if not isinstance(name, str):
        return Schedule(name, chains=chains)
    if name.endswith(".csv"):
        with open(name, encoding="utf-8") as file:
            return Schedule([line.split(",") for line in file.read().splitlines() if line], name, chains)
    keys = _keys({"schedule": name, "pp": pp, "microbatches": microbatches, "vpp": vpp, **numbers})
    shown = json.loads(_answered("schedule show", "", [], keys)[0])
    return Schedule(shown["ranks"], name)


def compare_schedules(names: Sequence[str], pp: int, microbatches: int, **flags: Any) -> Record:
    """Compares figures of schedules side by side: flopcast.schedule-comparison/1."""
    keys = _keys({"schedule": ",".join(names), "pp": pp, "microbatches": microbatches, **flags})
    text, notes = _answered("schedule compare", "", [], keys)
    data = json.loads(text)
    return Record(data if isinstance(data, dict) else {"schedules": data}, text=text, notes=notes)


# --- names of the catalogue ---


class Catalog:
    """Names that jobs may use: models, devices, clusters, schedules, stacks and profiles, every figure with its source."""

    KINDS = ("models", "devices", "clusters", "schedules", "stacks", "profiles")

    def table(self, kind: str) -> Table:
        """The list printed by `flopcast catalog KIND`."""
        return Table.of_rows(json.loads(_answered("catalog", "", [kind], [])[0]))

    def entry(self, kind: str, name: str) -> Table:
        """Every figure of an entry with its source."""
        return Table.of_rows(json.loads(_answered("catalog", "", [kind, name], [])[0]))

    def __getattr__(self, kind: str) -> List[str]:
        if kind not in self.KINDS:
            raise AttributeError(f"{kind} is not one of {', '.join(self.KINDS)}")
        return list(self.table(kind)["name"])

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self.KINDS]


catalog = Catalog()
