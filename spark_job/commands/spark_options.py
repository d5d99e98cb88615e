"""The options of the commands that start Spark."""

from pathlib import Path

from kinesis_spout.cli.shared_options import option

PANEL = "Spark"
MASTER = option(
    "Spark master (default: from Spark's configuration, otherwise local[*]).", panel=PANEL
)
CONF = option("Set a Spark configuration property. Repeatable.", metavar="KEY=VALUE", panel=PANEL)
LOG_FILE = option("File to write Spark's log to.", default=Path("kinesis-spout.log"), panel=PANEL)
