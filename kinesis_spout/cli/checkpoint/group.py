"""`kinesis-spout checkpoint`: the group of its commands."""

from typing import Any

from kinesis_spout.cli.checkpoint.move import move, reset, rewind
from kinesis_spout.cli.checkpoint.show import history, show
from kinesis_spout.cli.checkpoint.skip import skip
from kinesis_spout.cli.checkpoint.transfer import export, import_export
from kinesis_spout.cli.shared_options import command_group

_COMMANDS: dict[str, Any] = {
    "show": show,
    "set": move,
    "skip": skip,
    "reset": reset,
    "export": export,
    "import": import_export,
    "history": history,
    "rewind": rewind,
}


@command_group(**_COMMANDS)
def checkpoint() -> None:
    """Show, move, save and restore an application's checkpoints."""
