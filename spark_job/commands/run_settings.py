"""What `kinesis-spout run` makes of its options."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kinesis_spout.cli.errors import CliError
from spark_job.kinesis_source import KinesisSource
from spark_job.settings import texts_from_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def source_of(named: Mapping[str, str | None], options: Mapping[str, str]) -> KinesisSource:
    """The source from the command's own options (by field) and from reader options (`--option`),
    which win.

    Raises `ConfigError` naming the option.
    """
    fields = {name: text for name, text in named.items() if text is not None} | texts_from_options(
        options
    )
    return KinesisSource(**fields)


def load_process(text: str) -> Callable[[Any], Any]:
    """The function that `module:function` names, the current directory being importable. Raises
    `CliError`.
    """
    module_name, colon, function_name = text.partition(":")
    if not colon or not module_name or not function_name:
        raise typer.BadParameter(f"{text!r} is not module:function", param_hint="--process")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as exc:
        raise CliError(
            f"--process {text}: the module cannot be imported ({type(exc).__name__}: {exc})"
        ) from exc
    function = getattr(module, function_name, None)
    if not callable(function):
        raise CliError(
            f"--process {text}: {module_name} has no function {function_name} (it is "
            f"{module.__file__})"
        )
    return function  # type: ignore[no-any-return]  # whatever it is, it is called with a frame and its result is checked
