"""Answers as objects: attributes named like JSON keys, columns for numpy and pandas, pictures for notebooks."""

from __future__ import annotations

import html
import json
import os
from array import array
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from . import _core

__all__ = ["Record", "Table", "Picture", "Timeline", "Result", "Plan", "Sweep", "Comparison"]


def _wrap(value: Any) -> Any:
    if isinstance(value, dict):
        return Record(value)
    if isinstance(value, list):
        return [_wrap(one) for one in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


class Record(Mapping[str, Any]):
    """A JSON object of an answer: `record.iteration.time_s` or `record["iteration"]["time_s"]`.

    Suffixes of keys give units: `_s` seconds, `_gib` GiB (2^30 bytes); fractions are between 0 and 1.
    """

    def __init__(self, data: Optional[Dict[str, Any]] = None, text: str = "", notes: str = "") -> None:
        self._data = data
        self._text = text
        self.notes: List[str] = [line for line in notes.splitlines() if line]

    def _loaded(self) -> Dict[str, Any]:
        if self._data is None:
            self._data = json.loads(self.json)
        return self._data

    @property
    def json(self) -> str:
        """The answer as text, identical to the program's output with --format json (without the last newline)."""
        if not self._text:
            self._text = json.dumps(self._data, indent=2)
        return self._text

    def to_dict(self) -> Dict[str, Any]:
        """A copy that consists of plain dicts, lists, numbers and strings."""
        loaded: Dict[str, Any] = json.loads(json.dumps(self._loaded()))
        return loaded

    def __getitem__(self, key: str) -> Any:
        return _wrap(self._loaded()[key])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{name} is not one of {', '.join(self._loaded())}") from None

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self._loaded()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record):
            return self._loaded() == other._loaded()
        return self._loaded() == other if isinstance(other, dict) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({json.dumps(self._loaded())[:200]})"

    def __reduce__(self) -> Any:
        return (type(self)._restored, (self.json, self.notes))

    @classmethod
    def _restored(cls, text: str, notes: List[str]) -> "Record":
        return cls(text=text, notes="\n".join(notes))


def _html_table(names: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    def cell(value: Any) -> str:
        text = f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
        side = "right" if isinstance(value, (int, float)) and not isinstance(value, bool) else "left"
        return f'<td style="text-align:{side}">{html.escape(text)}</td>'

    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(cell(value) for value in row) + "</tr>" for row in rows)
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Table(Mapping[str, Any]):
    """Columns of equal length by name.

    A column of numbers has a buffer, so `numpy.asarray(table["time_s"])` copies nothing; a column of text is a list.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = dict(columns)

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> "Table":
        """Builds a table from records with the same keys: numbers become float64 columns (NaN if missing)."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns: Dict[str, Any] = {}
        for name in names:
            values = [row.get(name) for row in rows]
            if all(value is None or isinstance(value, (int, float)) for value in values):
                columns[name] = array("d", [float("nan") if value is None else float(value) for value in values])
            else:
                columns[name] = values
        return cls(columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """The number of columns, as for a mapping; `rows` is the number of rows."""
        return len(self._columns)

    @property
    def rows(self) -> int:
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def row(self, index: int) -> Dict[str, Any]:
        return {name: column[index] for name, column in self._columns.items()}

    def to_dict(self) -> Dict[str, List[Any]]:
        return {name: list(column) for name, column in self._columns.items()}

    def to_numpy(self) -> Dict[str, Any]:
        """numpy arrays by column; arrays of numbers share the table's memory."""
        import numpy

        return {name: numpy.asarray(column) for name, column in self._columns.items()}

    def to_pandas(self) -> Any:
        import pandas

        return pandas.DataFrame(self.to_numpy())

    def __repr__(self) -> str:
        return f"Table({self.rows} rows: {', '.join(self._columns)})"

    def _repr_html_(self) -> str:
        most = 20
        shown = [list(self.row(index).values()) for index in range(min(self.rows, most))]
        caption = f"{most} of {self.rows} rows" if self.rows > most else ""
        return _html_table(list(self._columns), shown, caption)


class Picture:
    """An SVG that notebooks display."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg


class Timeline(Record):
    """Actions of every pipeline rank over time: flopcast.timeline/1, and its picture."""

    def __init__(
        self,
        data: Optional[Dict[str, Any]] = None,
        text: str = "",
        notes: str = "",
        draw: Optional[Callable[[], str]] = None,
    ) -> None:
        super().__init__(data, text, notes)
        self._draw = draw

    def svg(self) -> str:
        if self._draw is None:
            raise ValueError("this timeline was restored without its picture: compute it again")
        return self._draw()

    def _repr_svg_(self) -> str:
        return self.svg()

    def spans(self) -> Table:
        """One row per span: timeline (its number), rank, kind, action, stream, start, end (in the timeline's unit)."""
        rows: List[Dict[str, Any]] = []
        for number, timeline in enumerate(self._loaded()["timelines"]):
            for rank, spans in enumerate(timeline["ranks"]):
                for span in spans:
                    rows.append({"timeline": number, "rank": rank, **span})
        return Table.of_rows(rows)


class Result(Record):
    """Forecast of one training step: flopcast.result/1, with its memory, timeline and reports."""

    def __init__(
        self,
        data: Optional[Dict[str, Any]] = None,
        text: str = "",
        notes: str = "",
        step: Optional[_core.SimulatedStep] = None,
    ) -> None:
        super().__init__(data, text, notes)
        self._made = step
        if step is not None:
            self.notes = [f"warning: {warning}" for warning in step.warnings]

    @property
    def _step(self) -> _core.SimulatedStep:
        if self._made is None:
            self._made = _core.simulate(json.dumps(self._loaded()["job"]), [], [])
        return self._made

    @property
    def json(self) -> str:
        if not self._text:
            self._text = self._step.json()
        return self._text

    @property
    def time_s(self) -> float:
        """Step time in seconds."""
        return self._step.time_s if self._made is not None else float(self._loaded()["iteration"]["time_s"])

    @property
    def mfu(self) -> float:
        """Model FLOP/s (attention in full) over the devices' peak, 0 to 1."""
        return self._step.mfu if self._made is not None else float(self._loaded()["iteration"]["mfu"])

    @property
    def fits(self) -> bool:
        """True if the fullest rank fits its device."""
        return self._step.fits if self._made is not None else bool(self._loaded()["memory"]["fits"])

    @property
    def peak_memory_gib(self) -> float:
        """Tensors of the fullest rank, GiB."""
        return self._step.peak_memory_gib if self._made is not None else float(self._loaded()["memory"]["peak_gib"])

    def memory_of(self, view: str = "peak") -> Record:
        """flopcast.memory/1; `view` is peak, over-time or tensors."""
        return Record(text=self._step.memory_json(view))

    def timeline(self) -> Timeline:
        return Timeline(text=self._step.timeline_json(), draw=self._step.timeline_svg)

    def chrome_trace(self) -> str:
        """The timeline as a trace for ui.perfetto.dev and chrome://tracing."""
        return self._step.chrome_trace()

    def chakra(self, folder: str, ranks: Optional[Sequence[int]] = None) -> None:
        """Writes input for packet simulators: step.RANK.et for every device (MLCommons Chakra, protobuf), and groups.json
        and network.yml for ASTRA-sim. `ranks`: only these devices."""
        step = self._step
        os.makedirs(folder, exist_ok=True)
        for rank in range(step.devices) if ranks is None else ranks:
            with open(os.path.join(folder, f"step.{rank}.et"), "wb") as trace:
                trace.write(step.chakra_trace(rank))
        for name, text in (("groups.json", step.chakra_groups()), ("network.yml", step.chakra_network())):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def report(self) -> str:
        """The report as one self-contained HTML file."""
        return self._step.html()

    def tables(self, format: str = "table") -> str:
        """The tables that `flopcast simulate` prints; `format` is table, markdown, latex or csv."""
        return self._step.tables(format)

    def __str__(self) -> str:
        return self.tables()

    def _repr_html_(self) -> str:
        data = self._loaded()
        iteration, memory = data["iteration"], data["memory"]
        rows: List[List[Any]] = [
            ["step", iteration["time_s"], "s"],
            ["tokens per second per GPU", iteration["tokens_per_s_per_gpu"], ""],
            ["MFU", 100.0 * iteration["mfu"], "%"],
            ["bubble", 100.0 * data["bubble"]["fraction"], "%"],
            ["memory of the fullest rank", memory["peak_gib"], f"of {memory['capacity_gib']:.4g} GiB"],
            ["fits", "yes" if memory["fits"] else "no", ""],
        ]
        rows += [[name[:-2].replace("_", " "), value, "s"] for name, value in data["breakdown"].items() if value]
        if "run" in data:
            days, goodput = data["run"]["days"], data["run"]["goodput"]
            rows += [
                ["days with failures", days["p50"], f"{days['p5']:.4g} to {days['p95']:.4g}"],
                ["goodput", 100.0 * goodput["p50"], f"%, {100.0 * goodput['p5']:.3g} to {100.0 * goodput['p95']:.3g}"],
            ]
        return _html_table(["figure", "value", "unit"], rows)

    def _repr_svg_(self) -> str:
        return self._step.timeline_svg()


def _figures(result: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        "time_s": result["iteration"]["time_s"],
        "mfu": result["iteration"]["mfu"],
        "peak_gib": result["memory"]["peak_gib"],
        "fits": 1 if result["memory"]["fits"] else 0,
        "bubble": result["bubble"]["fraction"],
    }


class Plan(Record):
    """Layouts, ranked: flopcast.plan/1."""

    def table(self) -> Table:
        """One row per ranked layout: its keys, then time_s, mfu, peak_gib, fits, bubble."""
        rows = []
        for entry in self._loaded()["ranked"]:
            rows.append({**entry["layout"], **_figures(entry["result"])})
        return Table.of_rows(rows)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


class Sweep(Record):
    """A forecast for every combination of values: flopcast.sweep/1."""

    def table(self) -> Table:
        """One row per combination: the varied keys, then figures; for an invalid combination NaN, and the error."""
        data = self._loaded()
        rows = []
        for row in data["rows"]:
            values = row["values"]
            named = dict(values) if isinstance(values, dict) else dict(zip(data["keys"], values))
            result = row.get("result")
            figures = _figures(result) if result else {}
            rows.append({**named, **figures, "error": "" if result else json.dumps(row.get("error"))})
        return Table.of_rows(rows)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


class Comparison(Record):
    """Layouts side by side, with the difference term by term: flopcast.comparison/1."""

    def table(self) -> Table:
        return Table.of_rows(self._loaded()["terms"])

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
