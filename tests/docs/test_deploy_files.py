"""The Dockerfile and the manifests of `docs/deploy` name what is in the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import yaml

from tests.docs.test_pages import options_of
from tests.support.shell.pages import ROOT, pages

if TYPE_CHECKING:
    from pathlib import Path

DEPLOY = ROOT / "docs" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")


def version() -> str:
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return found


def copied(dockerfile: str) -> list[str]:
    """What the Dockerfile copies from the checkout."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))


def deployment() -> dict[str, Any]:
    (found,) = [one["spec"] for one in manifests() if one["kind"] == "Deployment"]
    return dict(found)


def pod() -> dict[str, Any]:
    return dict(deployment()["template"]["spec"])


def spout() -> dict[str, Any]:
    (container,) = pod()["containers"]
    return dict(container)


def test_what_the_dockerfile_copies_is_there() -> None:
    assert copied("COPY a b c/\nCOPY --from=build /x /x\n") == ["a", "b"]
    sources = copied(DOCKERFILE)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) | {"pyproject.toml", "README.md", "LICENSE"} <= set(sources)


def test_versions_are_those_of_the_project() -> None:
    """Of the image in all texts, and of the wheel."""
    texts = [DOCKERFILE, (DEPLOY / "kubernetes.yaml").read_text("utf-8")]
    texts += [page.text for page in pages() if page.name.startswith("docs/deploy/")]
    named = {
        found
        for text in texts
        for found in re.findall(r"kinesis[-_]spout[:-](\d+\.\d+\.\d+)", text)
    }
    assert named == {version()}


def test_the_spout_of_the_manifest_runs_as_the_image_wants() -> None:
    """With options that exist, and not as root. It is started by the image's entrypoint: a
    `command` would make the spout process 1, which ignores signals while it starts. A new pod
    starts when the old one has ended: two would wait for each other's ownership.
    """
    program, name, _, *options = spout()["args"]
    assert program == "kinesis-spout"
    assert {one.partition("=")[0] for one in options} <= options_of(name)
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)[-1] == "185"
    assert pod()["securityContext"]["runAsUser"] == 185
    assert "command" not in spout()
    assert re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE) == ['["/opt/entrypoint.sh"]']
    assert (deployment()["replicas"], deployment()["strategy"]) == (1, {"type": "Recreate"})


def test_the_service_accounts_of_the_manifests_are_those_that_they_make() -> None:
    made = {one["metadata"]["name"] for one in manifests() if one["kind"] == "ServiceAccount"}
    granted = {
        subject["name"]
        for one in manifests()
        if one["kind"] == "RoleBinding"
        for subject in one["subjects"]
    }
    assert granted | {pod()["serviceAccountName"]} == made
    assert pod()["serviceAccountName"] not in granted, "a spout starts no pods"


def started(folder: Path, *arguments: str, **env: str) -> list[str]:
    """The words of the process that the entrypoint becomes, with a tini that prints them."""
    tini = folder / "tini"
    tini.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    tini.chmod(0o755)
    ended = subprocess.run(
        [DEPLOY / "entrypoint.sh", *arguments],
        env={"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SPARK_HOME": "/opt/spark"} | env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, *words = ended.stdout.splitlines()
    assert (first, second) == ("-s", "--")
    return words


def test_the_entrypoint_starts_a_command_as_it_is(tmp_path: Path) -> None:
    assert started(tmp_path, "kinesis-spout", "consume", "a b") == [
        "kinesis-spout",
        "consume",
        "a b",
    ]


def test_the_entrypoint_starts_a_driver_as_spark_asks(tmp_path: Path) -> None:
    asked = ("--properties-file", "/opt/spark/conf/spark.properties", "local:///job.py")
    words = started(tmp_path, "driver", *asked, SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert words[0] == "/opt/spark/bin/spark-submit"
    assert tuple(words[-3:]) == asked
    assert {"spark.driver.bindAddress=10.0.0.1", "client"} <= set(words)


def test_the_entrypoint_starts_an_executor_as_spark_asks(tmp_path: Path) -> None:
    """With the options of its Java, in which there may be spaces."""
    asked = {
        "JAVA_HOME": "/java",
        "SPARK_JAVA_OPT_0": "-Dspark.a=b c",
        "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "orders-exec-1",
    }
    words = started(tmp_path, "executor", **asked)
    assert words[:4] == ["/java/bin/java", "-Dspark.a=b c", "-Xms1024m", "-Xmx1024m"]
    assert "/opt/spark/jars/*" in words[words.index("-cp") + 1]
    options = words[words.index("--driver-url") :]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert set(asked.values()) - set(given.values()) == {"/java", "-Dspark.a=b c", "1024m"}
