"""The reader options, from the table that the source itself goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.options import CONNECTION, SECURITY
from scripts.reference.markdown import REQUIRED, code, page, plain, table
from spark_job.batch_read.batch_settings import BATCH_OPTIONS
from spark_job.options import OPTIONS
from spark_job.sink.sink_settings import SINK_OPTIONS

if TYPE_CHECKING:
    from kinesis_spout.options import Option

GROUPS = {
    "Stream and state": ("stream", "stream_arn", "application", "zookeeper", "starting_position"),
    "AWS connection": tuple(CONNECTION),
    "Security of ZooKeeper": tuple(SECURITY),
}
ONE_OF = ("stream", "stream_arn")  # the source itself checks that one is given
REST = "Reading and limits"
BATCH_READ = "Batch read"
WRITING = "Writing"


def options_page() -> str:
    """All options, by group. An option that no group names is in the last one."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, REST: tuple(name for name in OPTIONS if name not in grouped)}
    return page(
        *(
            f"## {title}\n\n{_table([_row(field, OPTIONS[field]) for field in names])}"
            for title, names in groups.items()
        ),
        f"## {BATCH_READ}\n\n{_table([_row('', option) for option in BATCH_OPTIONS.values()])}",
        f"## {WRITING}\n\n{_table([_row('', option) for option in SINK_OPTIONS.values()])}",
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    return table(("option and field", "default", "values", "meaning"), rows)


def _row(field: str, option: Option) -> tuple[str, ...]:
    default = REQUIRED if option.required else code(option.default or "")
    if field in ONE_OF:
        other = next(name for name in ONE_OF if name != field)
        default = f"{REQUIRED} without {code(OPTIONS[other].name)}"
    secret = " (secret)" if option.secret else ""
    names = " ".join(dict.fromkeys(code(name) for name in (option.name, field) if name))
    return names, default, option.bounds or "", plain(option.meaning) + secret
