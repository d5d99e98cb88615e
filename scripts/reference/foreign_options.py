"""The options of other Kinesis sources for Spark, and what ours makes of them."""

from __future__ import annotations

from scripts.reference.markdown import code, page, plain, table
from spark_job.options.foreign import FOREIGN_OPTIONS, SAME_NAMED


def foreign_options_page(system: str) -> str:
    """The options of one system that are taken, and those that are refused."""
    theirs = {name: one for name, one in FOREIGN_OPTIONS.items() if one.system == system}
    taken = [
        *((code(name), code(name), "") for name in SAME_NAMED.get(system, ())),
        *(
            (code(name), code(one.ours), one.values)
            for name, one in theirs.items()
            if one.ours is not None
        ),
    ]
    refused = [(code(name), plain(one.instead)) for name, one in theirs.items() if one.ours is None]
    return page(
        "### Options that are taken",
        table(("there", "here", "values"), taken),
        "### Options that are refused",
        table(("there", "instead"), refused),
    )
