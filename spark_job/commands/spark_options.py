"""The options of the commands that start Spark."""

from pathlib import Path

from kinesis_spout.cli.shared_options import option

PANEL = "Spark"
MASTER = option(
    "Spark master (default: from Spark's configuration, otherwise local[*]).", panel=PANEL
)
CONF = option(
    "Set a property of Spark's configuration. Repeatable.", metavar="KEY=VALUE", panel=PANEL
)
LOG_FILE = option(
    "File to which Spark's log is written.", default=Path("kinesis-spout.log"), panel=PANEL
)
