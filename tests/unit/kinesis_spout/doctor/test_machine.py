"""Python and packages: each finding in its failing form."""

from __future__ import annotations

from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.doctor.findings import Finding, Verdict
from kinesis_spout.doctor.machine import Machine, Requirement, our_requirements
from kinesis_spout.programs import how_to_install

if TYPE_CHECKING:
    from pathlib import Path

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
        ({}, 'version "1.8.0_392"', "Java", "of JAVA_HOME, /j, is version 8; install Java 17"),
        ({}, FileNotFoundError(), "Java", "of JAVA_HOME, /j, does not run (FileNotFoundError)"),
        ({}, TimeoutExpired("java", 8), "Java", "install Java 17 or newer"),
        ({"SPARK_HOME": "/gone"}, JAVA_21, "Spark", "SPARK_HOME, /gone, contains no Spark jars"),
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
