"""What `doctor` finds: checks within their limits, Python and packages, and executors."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from inspect import getsource
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.cli.doctor import exit_code_for
from kinesis_spout.doctor.examination import SeenExecutor, executor_findings
from kinesis_spout.doctor.findings import (
    Check,
    Finding,
    Verdict,
    failed,
    not_tried,
    ok,
    run,
    warning,
)
from kinesis_spout.doctor.machine import Machine, Requirement, our_requirements
from kinesis_spout.errors import AccessDeniedError, ServiceUnavailableError
from kinesis_spout.programs import how_to_install
from spark_job.commands.doctor_job import probe
from state.errors import StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_spout.doctor.findings import Finding


def row(name: str, finding: Finding | Exception, needs: str = "") -> Check[None]:
    """`needs`: a letter for each check."""

    def look(_: None) -> Finding:
        if isinstance(finding, Exception):
            raise finding
        return finding

    return Check(name, look, list(needs))


def test_a_failed_check_stops_only_those_that_need_it() -> None:
    """Also those that need one that was not run. A warning stops nothing."""
    table = (
        row("a", failed("broken")),
        row("b", ok(""), "a"),
        row("c", ok(""), "b"),
        row("d", warning("")),
        row("e", ok("", "of e"), "d"),
    )
    assert list(run(table, None)) == [
        failed("broken", "a"),
        not_tried("the a check did not pass", "b"),
        not_tried("the b check did not pass", "c"),
        warning("", "d"),
        ok("", "of e"),
    ]


def test_a_check_that_hangs_has_failed_after_its_limit() -> None:
    """The others run."""
    hanging = threading.Event()
    hangs: Check[None] = Check("a", lambda _: ok(str(hanging.wait())), limit_s=0.05)
    try:
        late, other = run((hangs, row("b", ok(""))), None)
    finally:
        hanging.set()
    assert late.verdict is Verdict.FAILED
    assert late.unreachable
    assert "0.05 s" in late.sentence
    assert other == ok("", "b")


@pytest.mark.parametrize(
    ("error", "unreachable"),
    [
        (ServiceUnavailableError("no answer; wait"), True),
        (StoreUnavailableError("no answer; wait"), True),
        (AccessDeniedError("denied; allow it"), False),
    ],
)
def test_an_error_of_ours_is_a_failure_with_its_sentence(
    error: Exception, *, unreachable: bool
) -> None:
    assert list(run([row("a", error)], None)) == [failed(str(error), "a", unreachable)]


def test_an_error_of_another_package_is_named_and_not_quoted() -> None:
    """Its text may hold a secret."""
    (found,) = run([row("a", RuntimeError("key is hunter2"))], None)
    assert found.verdict is Verdict.FAILED
    assert "RuntimeError" in found.sentence
    assert "hunter2" not in found.sentence


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([ok(""), warning(""), not_tried("")], 0),
        ([failed("", unreachable=True), not_tried("")], 3),
        ([failed("", unreachable=True), failed("")], 1),
    ],
)
def test_the_exit_code_is_3_where_all_that_failed_is_an_answer(
    findings: list[Finding], code: int
) -> None:
    assert exit_code_for(findings) == code


JAVA_21 = 'openjdk version "21.0.2" 2024-01-16'
OF_SPARK = [Requirement("pyspark", "4.2", "spark"), Requirement("pandas", "2.2", "spark")]


def spark_home(tmp_path: Path, version: str) -> Path:
    (tmp_path / "jars").mkdir(parents=True)
    (tmp_path / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return tmp_path


def test_this_installation_does() -> None:
    """Of Python, of each package that is required, and of those that must be imported."""
    found = [Machine().check_python(), *Machine().check_packages()]
    assert [one.verdict for one in found] == [Verdict.OK] * 2
    assert {"Python", "boto3", "pyarrow", "numpy", "protobuf"} <= {
        one.name for one in our_requirements()
    }


def test_an_older_python_is_a_failure() -> None:
    machine = Machine(python="3.9.1", required=[Requirement("Python", "3.11")])
    assert machine.check_python().verdict is Verdict.FAILED
    assert "install Python 3.11 or newer" in machine.check_python().sentence


OLD = "pyarrow 17.0.0 is older than 18; run pip install 'pyarrow>=18'"
MISSING = "is not installed; run pip install"


@pytest.mark.parametrize(
    ("there", "required", "sentences"),
    [
        ({"pyarrow": "17.0.0"}, [Requirement("pyarrow", "18")], [OLD]),
        ({"numpy": "2"}, [Requirement("numpy", "2.0.0")], []),
        ({}, [Requirement("kazoo", "2.10")], [f"kazoo {MISSING} 'kazoo>=2.10'"]),
        ({}, OF_SPARK, []),  # else a spout without Spark would be asked for pandas
        ({"pyspark": "4.3"}, OF_SPARK, [f"pandas {MISSING} 'pandas>=2.2'"]),
    ],
)
def test_each_package_below_its_bound_is_a_failure(
    there: dict[str, str], required: list[Requirement], sentences: list[str]
) -> None:
    """Those of an extra, where it is there."""
    machine = Machine(required=required, version_of=there.get)
    found = [one for one in machine.check_packages() if one.verdict is not Verdict.OK]
    assert [one.sentence for one in found] == sentences
    assert {one.verdict for one in found} <= {Verdict.FAILED}


OTHER_SPARK = "unset SPARK_HOME, or run pip install pyspark==3.5.1"


def machine(java: str | Exception, home: Path | None, **environment: str) -> dict[str, Finding]:
    def java_says(_: str) -> str:
        if isinstance(java, Exception):
            raise java
        return java

    version_of = {"pyspark": "4.3.0"}.get
    looked = Machine(
        environment=environment, java_says=java_says, version_of=version_of, pyspark_home=home
    )
    return {"Java": looked.check_java(), "Spark": looked.check_spark()}


@pytest.mark.parametrize(
    ("environment", "java", "about", "sentence"),
    [
        ({"PATH": ""}, "", "Java", "no java is on the PATH, and JAVA_HOME is not set"),
        ({}, 'version "1.8.0_392"', "Java", "JAVA_HOME (/j) is version 8; install Java 17"),
        ({}, FileNotFoundError(), "Java", "JAVA_HOME (/j) does not run (FileNotFoundError)"),
        ({}, TimeoutExpired("java", 8), "Java", "install Java 17 or newer"),
        ({"SPARK_HOME": "/gone"}, JAVA_21, "Spark", "SPARK_HOME (/gone) contains no Spark jars"),
        ({"SPARK_HOME": "<3.5.1>"}, JAVA_21, "Spark", f"is 3.5.1; {OTHER_SPARK}"),
    ],
)
def test_a_java_or_a_spark_that_does_not_do_is_a_failure(
    tmp_path: Path, environment: dict[str, str], java: str | Exception, about: str, sentence: str
) -> None:
    """SPARK_HOME decides which JVM is started."""
    home = str(spark_home(tmp_path / "spark", "3.5.1"))
    given = {name: value.replace("<3.5.1>", home) for name, value in environment.items()}
    found = machine(java, tmp_path, **(given if "PATH" in given else {"JAVA_HOME": "/j"} | given))
    assert found[about].verdict is Verdict.FAILED
    assert sentence in found[about].sentence


def test_java_and_spark_that_fit_are_ok_and_without_pyspark_neither_is_tried(
    tmp_path: Path,
) -> None:
    """The spout needs none of it."""
    fit = machine(JAVA_21, spark_home(tmp_path, "4.3.0"), JAVA_HOME="/java")
    assert fit["Java"].sentence == "21 (/java/bin/java)"
    assert {one.verdict for one in fit.values()} == {Verdict.OK}
    none = machine(JAVA_21, None)
    assert {one.verdict for one in none.values()} == {Verdict.NOT_TRIED}
    assert how_to_install("spark") in none["Spark"].sentence


def seen(host: str = "a", *findings: Finding, **changes: Any) -> SeenExecutor:
    given: dict[str, Any] = {"host": host, "worker": 1, "python": "3.11.7", "version": "0.1.0"}
    return SeenExecutor(**(given | {"findings": findings} | changes))


def found(*all_seen: SeenExecutor) -> list[Finding]:
    return list(executor_findings(all_seen, python="3.11.2", version="0.1.0"))


def test_another_python_is_a_failure() -> None:
    first = found(seen("a"), seen("b", python="3.9.1"))[0]
    assert first.verdict is Verdict.FAILED
    assert "b has Python 3.9.1, but this process has 3.11.2; set PYSPARK_PYTHON" in first.sentence


def test_a_missing_or_another_package_is_a_failure() -> None:
    error = "ModuleNotFoundError: No module named 'kinesis_spout'"
    one, other = found(seen("a", version=None, error=error), seen("b", version="0.0.9"))[1:]
    assert one.verdict is other.verdict is Verdict.FAILED
    assert "cannot be imported on a (ModuleNotFoundError" in one.sentence
    assert "version 0.0.9 on b, but 0.1.0 on this" in other.sentence


def test_what_is_wrong_somewhere_is_said_with_its_hosts() -> None:
    """Once for all hosts that say the same."""
    wrong = failed("no answer; open the firewall", "endpoint", unreachable=True)
    right = ok("answers", "endpoint")
    assert found(seen("a", right), seen("b", wrong), seen("c", wrong))[2:] == [
        failed("on b, c: no answer; open the firewall", "endpoint", unreachable=True)
    ]
    assert found(seen("a", right), seen("b", right))[2:] == [right]


def test_the_probe_runs_where_our_package_is_missing(tmp_path: Path) -> None:
    """It is sent to executors by value, so it must import nothing of ours to begin with."""
    header = "from __future__ import annotations\nimport json, os, platform, socket\n"
    program = f"{header}{getsource(probe)}print(json.dumps(probe(None)))\n"
    isolated = [sys.executable, "-I", "-S", "-c", program]  # neither PYTHONPATH nor site-packages
    said = subprocess.run(isolated, cwd=tmp_path, capture_output=True, text=True, check=True)
    answer = json.loads(said.stdout)
    assert answer["error"] == "ModuleNotFoundError: No module named 'kinesis_spout'"
    assert "version" not in answer
