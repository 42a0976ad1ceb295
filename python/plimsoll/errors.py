"""Errors of the planner. Their texts are those of the command line."""

from __future__ import annotations


class Error(Exception):
    """Whatever the planner refuses or cannot do."""


class UsageError(Error, ValueError):
    """An argument is wrong: an unknown choice, or a number outside its range."""


class InputError(Error, ValueError):
    """A file, or a dictionary in its place, says something that is not allowed."""

    file: str  #: name of the file, or of the argument that was a dictionary
    pointer: str  #: place in it, as a JSON pointer


class Infeasible(Error):
    """No strategy is legal, or the one that was asked for is not."""


class DoesNotFit(Infeasible):
    """Every legal strategy takes more memory than a device has."""

    changes: list[str]  #: each says a change with which something fits


class StoppedEarly(Error):
    """The time limit passed before any plan that fits was found."""


class MachineError(Error, OSError):
    """This machine cannot do the work."""
