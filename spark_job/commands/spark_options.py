"""The options of the commands that start Spark."""

from pathlib import Path

from kinesis_spout.cli.shared_options import option

PANEL = "Spark"
MASTER = option(
    "Spark master (default: from Spark's configuration, otherwise local[*]).", panel=PANEL
)
CONF = option("Spark configuration. Repeatable.", metavar="KEY=VALUE", panel=PANEL)
LOG_FILE = option("File for Spark's log.", default=Path("kinesis-spout.log"), panel=PANEL)
