"""The Dockerfile and the manifests of `docs/deploy` name what is in the checkout."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from tests.docs.test_shell_blocks import options_of
from tests.support.shell.pages import ROOT, pages

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


def spout() -> dict[str, Any]:
    (deployment,) = [one for one in manifests() if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def test_what_the_dockerfile_copies_is_there() -> None:
    assert copied("COPY a b c/\nCOPY --from=build /x /x\n") == ["a", "b"]
    sources = copied(DOCKERFILE)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) | {"pyproject.toml", "README.md", "LICENSE"} <= set(sources)


def test_the_image_does_not_run_as_root() -> None:
    """Nor does the spout's container."""
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)[-1] == "185"
    assert spout()["securityContext"]["runAsUser"] == 185


def test_versions_are_those_of_the_project() -> None:
    """Of the image in all texts, of the wheel, and of Spark in the lock."""
    texts = [DOCKERFILE, (DEPLOY / "kubernetes.yaml").read_text("utf-8")]
    texts += [page.text for page in pages() if page.name.startswith("docs/deploy/")]
    named = {
        found
        for text in texts
        for found in re.findall(r"kinesis[-_]spout[:-](\d+\.\d+\.\d+)", text)
    }
    assert named == {version()}
    spark = re.findall(
        r"^pyspark==(\S+)", (ROOT / "requirements" / "deploy.txt").read_text(), re.MULTILINE
    )
    assert re.findall(r"apache/spark:([\d.]+)", DOCKERFILE) == spark


def test_the_spout_of_the_manifest_has_options_that_exist() -> None:
    program, name, _ = spout()["command"]
    assert program == "kinesis-spout"
    assert {one.partition("=")[0] for one in spout()["args"]} <= options_of(name)


def test_the_service_account_of_the_manifests_is_the_one_that_they_make() -> None:
    made = {one["metadata"]["name"] for one in manifests() if one["kind"] == "ServiceAccount"}
    used = [one["spec"]["template"]["spec"] for one in manifests() if one["kind"] == "Deployment"]
    assert {one["serviceAccountName"] for one in used} == made
