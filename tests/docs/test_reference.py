"""The generated reference is complete: every name of the code has its line, and every sentence that
was written by hand is of a name of the code.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields

import pytest

from kinesis_spout.options import SHARED
from kinesis_spout.prometheus_exporter import DEFINITIONS
from kinesis_spout.service.faults import meaning_of
from kinesis_spout.spout import SpoutConfig
from scripts.reference import api, aws, words
from scripts.reference.columns import columns_of
from scripts.reference.commands import commands
from scripts.reference.errors import error_classes, service_codes
from scripts.reference.failpoints import places
from scripts.reference.markdown import code
from scripts.reference.metrics import progress_keys, shown_name
from scripts.reference.options import BATCH_READ, GROUPS, WRITING
from scripts.reference.spout_config import documented
from scripts.reference.words import CALLS, ERRORS, FIELDS, NODES, NOT_ERRORS, POLICIES
from scripts.reference.write import PAGES, write_pages
from scripts.reference.znodes import members, paths, stored
from spark_job.batch_read.batch_settings import BATCH_OPTIONS
from spark_job.data_source import SCHEMA_DDL
from spark_job.options import OPTIONS
from spark_job.rows import ARROW_SCHEMA
from spark_job.sink.sink_settings import SINK_OPTIONS
from state.failpoint import NAMES


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The text of each generated page."""
    folder = tmp_path_factory.mktemp("generated")
    write_pages(folder)
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.md")}


def rows(text: str) -> list[list[str]]:
    """The cells of the tables' rows, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    heads = {index - 1 for index, row in enumerate(cells) if set(row) == {"---"}}
    return [row for index, row in enumerate(cells) if index not in heads and set(row) != {"---"}]


@pytest.mark.parametrize(
    ("described", "there"),
    [
        (list(words.COLUMNS), list(columns_of(SCHEMA_DDL))),
        (list(words.COLUMNS), ARROW_SCHEMA.names),
        (list(NODES), paths()),
        (
            {name: list(of) for name, of in FIELDS.items()},
            {name: [key for key, _, _ in members(kind)] for name, kind in stored().items()},
        ),
        (sorted(words.PROGRESS), sorted(progress_keys())),
        (set(CALLS), aws.operations()),
        (set(words.FAILPOINTS), NAMES),
        (NAMES, set(places())),
        (sorted([*ERRORS, *NOT_ERRORS]), sorted(error_classes())),
    ],
    ids=lambda _: "",
)
def test_every_name_is_described_and_no_other(described: object, there: object) -> None:
    """Columns, znodes and what they store, figures, calls of AWS, failpoints, errors: a new name
    without a sentence shows here, and a sentence whose name is gone.
    """
    assert described == there
    assert there


def test_every_option_has_its_line(written: dict[str, str]) -> None:
    assert {name for names in GROUPS.values() for name in names} <= set(OPTIONS)
    rest, _, writing = written["options"].partition(f"## {WRITING}")
    streaming, _, batch = rest.partition(f"## {BATCH_READ}")
    tables = ((streaming, OPTIONS), (batch, BATCH_OPTIONS), (writing, SINK_OPTIONS))
    for text, options in tables:
        first = [row[0].split()[0] for row in rows(text)]
        assert sorted(first) == sorted(code(option.name) for option in options.values())


def test_every_field_of_the_spout_has_a_meaning(written: dict[str, str]) -> None:
    """Its docstring's, or one of ours, or that of the option that it is."""
    names = {field.name for field in fields(SpoutConfig)}
    assert set(words.SPOUT_FIELDS) <= names
    left = names - set(documented()) - set(words.SPOUT_FIELDS)
    assert {name.removesuffix("_s") for name in left} <= set(SHARED)
    table_of_spout = rows(written["spout-config"].partition("## ")[0])
    assert [row[0] for row in table_of_spout] == [code(one.name) for one in fields(SpoutConfig)]
    assert [row for row in table_of_spout if not row[-1]] == []


def test_every_command_and_option_has_its_line(written: dict[str, str]) -> None:
    assert {"run", "consume", "peek", "checkpoint import"} <= set(commands())
    for name, command in commands().items():
        section = written["command-line"].split(f"## `kinesis-spout {name}`")[1].split("\n## ")[0]
        listed = rows(section)
        shown = [one for one in command.params if not one.hidden]
        assert len(listed) == len(shown), name
        assert [row for row in listed if not row[-1]] == [], name
        for parameter in shown:
            if parameter.param_type_name == "option":
                assert any(code(parameter.opts[0]) in row[0] for row in listed), parameter.name


def test_every_metric_has_a_meaning(written: dict[str, str]) -> None:
    shown = {row[0] for row in rows(written["metrics"])}
    names = {shown_name(one) for one in DEFINITIONS}
    assert {code(name) for name in names} <= shown
    assert "kinesis_spout_records_acked_total" in names
    assert [row for row in rows(written["metrics"]) if not row[-1]] == []


def test_a_help_has_no_line_that_a_terminal_of_80_columns_breaks() -> None:
    """The help keeps the lines of its docstring, so a longer one leaves its last words alone."""
    for name, command in commands().items():
        # The first line is a paragraph of its own, which the terminal wraps.
        lines = command.help.splitlines()[1:]
        assert lines[:1] in ([], [""]), name
        assert [line for line in lines if len(line) > 78] == [], name


def test_a_remedy_names_options_and_commands_that_exist() -> None:
    known = {option.name for option in OPTIONS.values()}
    linked = [
        name
        for one in ERRORS.values()
        for name in re.findall(r"\[`(\w+)`\]\(options\.md\)", one.help)
    ]
    assert linked
    assert set(linked) <= known
    named = [
        name for one in ERRORS.values() for name in re.findall(r"`kinesis-spout ([a-z]+)", one.help)
    ]
    assert named
    assert set(named) <= {name.split()[0] for name in commands()}


def test_the_codes_of_the_service_are_those_that_the_client_knows(written: dict[str, str]) -> None:
    assert len(service_codes()) > 30
    for name, (kind, advice) in service_codes().items():
        assert meaning_of(name, 400) == (kind, advice)
        assert code(name) in written["errors"]


def test_every_action_is_in_a_policy() -> None:
    """Assuming a role has a policy of its own."""
    in_policies = {name for policy in POLICIES for name in policy.operations}
    assert in_policies == set(CALLS) - {"assume_role"}
    for policy in POLICIES:
        actions = [
            action
            for statement in json.loads(aws.document_of(policy))["Statement"]
            for action in statement["Action"]
        ]
        names = sorted(policy.operations, key=lambda name: name in aws.ON_CONSUMERS)
        wanted = [CALLS[name].action for name in names]
        assert actions == [*wanted, *([policy.kms] if policy.kms else [])]


def test_the_policies_are_those_that_the_errors_ask_for() -> None:
    """The advice for AccessDenied names the same actions."""
    for policy in POLICIES:
        if policy.kms:
            operation = "PutRecords" if "put_records" in policy.operations else "GetRecords"
            _, advice = meaning_of("AccessDeniedException", 400, operation=operation)
            named = set(re.findall(r"\b(?:kinesis|kms):\w+", advice))
            needed = {CALLS[name].action for name in policy.operations} | {policy.kms}
            # The sink's other calls, at its start, have an advice of their own.
            looks = {CALLS[name].action for name in ("describe_stream_summary", "list_shards")}
            assert named == (needed - looks if operation == "PutRecords" else needed)


def test_every_public_name_is_on_a_page_of_the_api(written: dict[str, str]) -> None:
    for page, modules in api.PAGES.items():
        text = written[f"api-{page}"]
        for module in modules:
            for name in api.exported(module):
                assert re.search(rf":: (?:{module}\.)?{name}\b", text), f"{module}.{name}"
    shown_elsewhere = {name for names in api.ELSEWHERE.values() for name in names}
    letters = {name for module in api.PAGES["dead-letters"] for name in api.exported(module)}
    assert shown_elsewhere <= letters


def test_every_generated_page_is_included(written: dict[str, str]) -> None:
    """By a page with a title and an introduction."""
    root = aws.SERVICE.parents[1] / "docs"
    included = {
        name
        for path in root.rglob("*.md")
        for name in re.findall(
            r"\{include\} (?:\.\./(?:reference/)?)?_generated/([\w-]+)\.md", path.read_text("utf-8")
        )
    }
    assert included == set(PAGES) == set(written)
