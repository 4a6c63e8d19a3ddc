"""What flopcast complains about, as exceptions."""

from __future__ import annotations

from typing import Any, Optional

__all__ = ["FlopcastError", "ConfigError", "NegativeAnswer", "EnvironmentFailure", "InternalError"]


class FlopcastError(Exception):
    """Any complaint of flopcast.

    Attributes:
        field: dotted path of the job, or the flag that is wrong ("layout.tp", "--objective"); "" where it is neither.
        problem: one sentence that holds the offending value.
        where: "job.json:/layout/tp", "tp"; "" where there is no place to point at.
        help: the valid choices or the nearest valid values; "" where nothing helps.
        value: what the job says at `field`, None where it says nothing.
        answer: what was printed before the answer turned out to be no, else None.
    """

    def __init__(self, text: str, field: str = "", problem: str = "", where: str = "", help: str = "") -> None:
        super().__init__(text, field, problem, where, help)
        self.field = field
        self.problem = problem
        self.where = where
        self.help = help
        self.value: Any = None
        self.answer: Any = None

    @property
    def file(self) -> Optional[str]:
        """The file that `where` points into; None for a job that is no file."""
        name, colon, _ = self.where.partition(":")
        return name if colon and name != "-" else None

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigError(FlopcastError, ValueError):
    """The input is wrong: exit code 2 of the program."""


class NegativeAnswer(FlopcastError):
    """A valid question whose answer is no, such as a plan that finds nothing: exit code 3."""


class EnvironmentFailure(FlopcastError, OSError):
    """The machine failed, such as a full disk: exit code 4."""

    def __str__(self) -> str:
        return str(self.args[0])


class InternalError(FlopcastError, RuntimeError):
    """A bug of flopcast: please report it."""
