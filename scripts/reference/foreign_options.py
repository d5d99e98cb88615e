"""The options of other Kinesis sources for Spark, and what ours makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.reference.markdown import code, page, plain, table

if TYPE_CHECKING:
    from spark_job.options import System


def foreign_options_page(system: System) -> str:
    """The options of one system that are taken, and those that are refused."""
    taken = [(code(name), code(one.ours), one.values) for name, one in system.taken.items()]
    refused = [(code(name), plain(instead)) for name, instead in system.refused.items()]
    return page(
        "### Options that are accepted",
        table((f"option of {system.name}", "option of kinesis-spout", "values"), taken),
        "### Options that are not accepted",
        table((f"option of {system.name}", "remedy"), refused),
    )
