"""flopcast's errors as exceptions."""

from __future__ import annotations

from typing import Any, Optional

__all__ = ["FlopcastError", "ConfigError", "NegativeAnswer", "EnvironmentFailure", "InternalError"]


class FlopcastError(Exception):
    """Base class of all errors of flopcast.

    Attributes:
        field: dotted path of the job key, or the flag, that is wrong ("layout.tp", "--objective"); "" if neither.
        problem: one sentence with the offending value.
        where: "job.json:/layout/tp", "tp"; "" if there is no place.
        help: the valid choices or the nearest valid values; "" if none.
        value: the job's value of `field`, None if it has none.
        answer: the text printed before a negative answer, otherwise None.
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
        """The file that `where` refers to; None for a job that is not a file."""
        name, colon, _ = self.where.partition(":")
        return name if colon and name != "-" else None

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigError(FlopcastError, ValueError):
    """The input is invalid: exit code 2 of the program."""


class NegativeAnswer(FlopcastError):
    """A valid question with a negative answer, such as a plan that finds nothing: exit code 3."""


class EnvironmentFailure(FlopcastError, OSError):
    """The machine failed, such as a full disk: exit code 4."""

    def __str__(self) -> str:
        return str(self.args[0])


class InternalError(FlopcastError, RuntimeError):
    """A bug of flopcast: please report it."""
