"""The reader options, from the table that the source itself goes by."""

from __future__ import annotations

from scripts.reference.markdown import code, page, plain, table
from spark_job.options import OPTIONS, Option

GROUPS = {
    "Stream and state": ("stream", "stream_arn", "application", "zookeeper", "starting_position"),
    "AWS connection": (
        "region",
        "endpoint_url",
        "profile",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "role_arn",
        "role_external_id",
        "role_session_name",
    ),
}
REST = "Reading and limits"


def options_page() -> str:
    """All options, by group. An option that no group names is in the last one."""
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, REST: tuple(name for name in OPTIONS if name not in grouped)}
    return page(*(f"## {title}\n\n{_table(names)}" for title, names in groups.items()))


def _table(names: tuple[str, ...]) -> str:
    return table(
        ("option and field", "default", "meaning"),
        [_row(field, OPTIONS[field]) for field in names],
    )


def _row(field: str, option: Option) -> tuple[str, ...]:
    default = "" if option.default is None else code(option.default)
    secret = " (secret)" if option.secret else ""
    names = " ".join(dict.fromkeys((code(option.name), code(field))))
    return names, default, plain(option.meaning) + secret
