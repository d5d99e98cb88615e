"""Sets up a machine that has Python, make and git, so that the project runs on it.

    python3 -m scripts.set_up [--no-java] [--localstack] [--lowest | --pyspark 4.2] [--docs]

Packages go into a virtual environment in the checkout. Java (and for the tests Node, Chromium and
promtool) are found, or installed with apt if the user may. A run with nothing to do takes well
under a second. Concurrent runs wait for each other.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import debian_packages
from scripts.runtimes import (
    find_browser,
    find_java,
    find_node,
    find_promtool,
    promtool_folder,
)
from scripts.steps import SetUpError, say
from scripts.virtual_environment import Environment, find_pip, has_ensurepip

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str]) -> int:
    """Run the set-up. Returns 1 after one sentence when it fails, 130 when it is interrupted."""
    parser = argparse.ArgumentParser(prog="set_up", description="Set up this checkout.")
    parser.add_argument(
        "--no-java", action="store_true", help="the Python packages alone, which unit tests need"
    )
    parser.add_argument(
        "--localstack",
        action="store_true",
        help="also what all tests need: LocalStack's pip runtime, Node for its Kinesis emulator, "
        "Chromium and promtool",
    )
    parser.add_argument(
        "--lowest",
        action="store_true",
        help="install the oldest supported packages, in .venv-lowest",
    )
    parser.add_argument(
        "--pyspark",
        metavar="VERSION",
        help="the locked packages with this PySpark, in .venv-pyspark-VERSION",
    )
    parser.add_argument(
        "--docs", action="store_true", help="also what builds the documentation, 75 MB, in .venv"
    )
    options = parser.parse_args(arguments)
    name = "lowest" if options.lowest else "lock"
    folder = (
        f".venv-pyspark-{options.pyspark}"
        if options.pyspark
        else ".venv-lowest"
        if options.lowest
        else ".venv"
    )
    environment = Environment(
        root=ROOT,
        folder=ROOT / folder,
        lock=ROOT / "requirements" / f"{name}.txt",
        log=ROOT / "set-up.log",
        added_lock=ROOT / "requirements" / "docs.txt" if options.docs else None,
        instead=(f"pyspark=={options.pyspark}.*",) if options.pyspark else (),
    )
    try:
        with_lock(
            environment,
            localstack=localstack_environment(ROOT) if options.localstack else None,
            with_java=not options.no_java,
        )
    except SetUpError as error:
        sys.stderr.write(f"set-up: {error}.\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("set-up: interrupted; run make again to continue.\n")
        return 130
    return 0


def localstack_environment(root: Path) -> Environment:
    """LocalStack's packages, separate from the project's because it pins an older boto3."""
    return Environment(
        root=root,
        folder=root / ".tools" / "localstack" / "venv",
        lock=root / "requirements" / "localstack.txt",
        log=root / "set-up.log",
        with_project=False,
        size="200 MB for LocalStack",
    )


def with_lock(
    environment: Environment, *, localstack: Environment | None = None, with_java: bool = True
) -> None:
    """Set up while holding a lock on the checkout.

    A second run waits, and then finds everything done.
    """
    folder = os.open(environment.root, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        set_up(environment, localstack=localstack, with_java=with_java)
    finally:
        os.close(folder)


def set_up(
    environment: Environment, *, localstack: Environment | None = None, with_java: bool = True
) -> None:
    """Install all missing parts, and nothing else."""
    started_s = time.monotonic()
    with_node = localstack is not None
    needs = missing(environment, with_node=with_node, with_java=with_java)
    not_ready = [one for one in (environment, localstack) if one is not None and not one.is_ready()]
    if needs or not_ready:
        environment.log.write_bytes(b"")
    if needs:
        debian_packages.install(needs, log=environment.log)
        if still := missing(environment, with_node=with_node, with_java=with_java):
            raise SetUpError(
                f"apt-get installed no {' and no '.join(need.what for need in still)}; install it "
                "by hand and run make again"
            )
    for one in not_ready:
        one.make()
    environment.take_pyspark_from_its_folder()
    if with_node:
        tools_of_some_tests(environment)
    if not_ready:
        say(f"done in {time.monotonic() - started_s:.0f} s")
    java = find_java(os.environ) if with_java else None
    if java is not None:
        # make sets JAVA_HOME from this file, because Spark uses the JAVA_HOME of its environment
        # even if it is too old.
        (environment.folder / "java-home").write_text(f"{java.home}\n")


def tools_of_some_tests(environment: Environment) -> None:
    """Chromium, and promtool without the server that its package would start.

    A machine where they cannot be installed skips the tests that need them, and says so.
    """
    if find_browser(os.environ) is None and debian_packages.privilege_prefix() is not None:
        debian_packages.install([debian_packages.CHROMIUM], log=environment.log)
    if find_promtool(os.environ, environment.root) is None:
        debian_packages.unpack("prometheus", promtool_folder(environment.root), log=environment.log)


def missing(
    environment: Environment, *, with_node: bool, with_java: bool = True
) -> list[debian_packages.Need]:
    """The needs that apt must install before the packages can be installed and used."""
    needs = []
    if environment.needs_new_packages() and not has_ensurepip() and find_pip() is None:
        needs.append(debian_packages.PIP)
    if with_java and find_java(os.environ) is None:
        needs.append(debian_packages.JAVA)
    if with_node and find_node(os.environ) is None:
        needs.append(debian_packages.NODE)
    return needs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
