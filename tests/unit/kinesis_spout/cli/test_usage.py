"""Wrong usage and errors end a command with one sentence and an exit code; signals with the code of
a shell. Help, version, and packages that are missing.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer
from rich.console import Console

from kinesis_spout import __version__
from kinesis_spout.cli.exit_codes import (
    OPERATORS_CODES,
    SAME_SIGNAL_S,
    CliError,
    one_sentence,
)
from kinesis_spout.cli.main import OWN_COMMANDS
from kinesis_spout.errors import (
    ConfigError,
    CredentialsError,
    DataLossError,
    ServiceUnavailableError,
    StillThrottledError,
    StreamNotFoundError,
)
from kinesis_spout.programs import how_to_install
from state.errors import OwnedByAnotherError, StateError, StoreUnavailableError
from tests.support.shell.command_line import call_cli, environment, hide, path_with, run_cli
from tests.support.shell.consuming import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> ServedFake:
    fake_kinesis.model.create("orders", shards=2)
    return fake_kinesis


PLACE = "--application a --stream s --zookeeper 127.0.0.1:1"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"rum {PLACE}", "rum"),
        ("consume", "STREAM"),
        ("consume orders --application a", "--zookeeper"),
        ("consume orders --raw --exec cat", "--raw"),
        ("consume orders --max-records 0", "--max-records"),
        ("consume orders --option nonsense", "--option"),
        ("consume orders --scheme jsn", "scheme 'jsn' is not known; use text, raw, cloudwatch-lo"),
        ("consume orders --scheme json:id", "found the end where a type"),
        ("consume orders --scheme gzip+nothing", "scheme 'nothing' is not known"),
        (
            "consume orders --scheme no.such:Scheme",
            "scheme no.such:Scheme cannot be loaded (ModuleNotFoundError",
        ),
        ("consume orders --scheme decimal:Decimal", "decimal:Decimal is not a scheme"),
        ("produce orders --key a --key-from b", "--key-from"),
        ("produce orders --json --key a", "--json"),
        ("shards orders --application a", "--application"),
        ("shards orders --zookeeper 127.0.0.1:1", "--application"),
        ("local --port 0 --stream orders:0", "--stream"),
        ("local --port 0 --stream 'no spaces'", "--stream"),
        ("local --port 0 --region 'us east'", "--region"),
        ("shards orders --application '' --zookeeper 127.0.0.1:1", "--application: the name is em"),
        ("doctor --stream '' --zookeeper ''", "--stream, --zookeeper: the name is empty"),
        ("status --application '' --zookeeper 127.0.0.1:1", "--application: the name is empty"),
        ("local --port 0 --host ''", "--host: the address is empty"),
        (f"ui {PLACE} --port 0 --host ''", "--host: the address is empty"),
        ("reset --stream s --zookeeper 127.0.0.1:1", "--application"),
        ("reset --application a --stream s --zookeeper 'no server'", "no server"),
        (f"pause {PLACE} --timeout long", "long"),
        (f"pause {PLACE} --timeout 9999999999h", "'9999999999h' is too large; pass a smaller"),
        (f"ui {PLACE} --window 99999999999999h", "is too large; pass a smaller value"),
        (f"checkpoint history {PLACE} --since -999999999d", "-999999999d"),
        ("redrive dead --yes --since LATEST", "is not a time"),
        ("redrive dead --yes --limit 0", "--limit"),
        ("redrive dead --yes --format csv", "--format"),
        ("redrive dead --yes --stream 'or ders'", "is not a valid Kinesis stream name"),
        ("doctor --zookeeper a:b:c", "is not a ZooKeeper connect string"),
        ("doctor --zookeeper etl:hush@a:1", "must not contain a user name or a password"),
        ("doctor --zookeeper zk://etl:hush@a/b", "must not contain a user name or a password"),
        ("doctor --stream 'or ders'", "is not a valid Kinesis stream name"),
        ("shards -s orders", "the stream's name without an option: shards orders"),
        ("doctor --conf spark.a=b", "--master"),
        ("doctor --option awsSecretAccessKey=hush", "awsAccessKeyId"),
        ("doctor --option awsAccesKeyId=hush", "did you mean awsAccessKeyId?"),
        ("doctor --option session_token=hush", "option session_token is not a connection option"),
        (
            "doctor --stream orders --region us-east-1 --read-mode efo",
            "--consumer-name: --read-mode efo requires either",
        ),
        ("drill", "pass the name of a drill"),
        ("drill kill-driver --json no/such/verdict.json", "cannot write to no/such/verdict.json"),
        ("drill kill-driver --html .", "cannot write to .;"),
        ("drill kill-drivr", "did you mean kill-driver"),
        ("drill kill-driver --spout --process m:f", "need a Spark job"),
        ("drill kill-driver --region eu-west-1", "--stream-prefix"),
        ("drill kill-driver --process nocolon", "module:function"),
        ("drill kill-driver --payload no_such_module:f", "no_such_module"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    orders: ServedFake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(orders, *shlex.split(line))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in " ".join(ended.stderr.replace("│", " ").split())
    assert "hush" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--from", "yesterday"), "option --from: 'yesterday' is not a position"),
        (("--until", "soon"), "option --until: 'soon' is not a time"),
        (
            ("--shard", "shardId-00000000001"),
            (
                "option --shard names shard 'shardId-00000000001', which the stream does not list; "
                "did you mean shardId-000000000001?"
            ),
        ),
        (("--message-timeout", "long"), "option --message-timeout: 'long' is not a duration"),
        (
            ("--dead-letter", "/no/such/folder/dead"),
            "option --dead-letter: '/no/such/folder/dead' cannot be written",
        ),
        (("--exec", ""), "option --exec: '' is empty"),
        (("--task-index", "1"), "option --task-index: 1 must be from 0 to --total-tasks - 1\n"),
        (("--exec", "python 'quote"), 'option --exec: "python \'quote" is not a valid'),
        (("--read-mode", "efo"), "option --consumer-name: "),
    ],
)
def test_a_bad_value_is_one_sentence(
    orders: ServedFake, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = run(orders, "consume", "orders", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: {sentence}")
    assert ended.stderr.count("\n") == 1


def ended_with(error: BaseException, *, log_file: Path | None = None) -> tuple[int, str]:
    """The exit code and the output of a command that raises `error`."""
    shown = io.StringIO()
    with (
        pytest.raises(typer.Exit) as caught,
        one_sentence(Console(file=shown, width=60), log_file=log_file),
    ):
        raise error
    return caught.value.exit_code, shown.getvalue()


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (CliError("the file [a] is missing; make it"), "the file [a] is missing; make it"),
        (CliError(r"\[/bold] of a"), r"\[/bold] of a"),
        (CliError("a\\"), "a\\"),
        (CliError("shard \x1b[2Ja"), "shard \\x1b[2Ja"),
        (OSError("first\nsecond\n\nmore"), "OSError: first second"),
        (KeyError(), "KeyError: KeyError"),
    ],
)
def test_an_error_is_one_sentence_and_neither_markup_nor_a_command(
    error: Exception, shown: str
) -> None:
    """Its text may be from a file or a service. Errors of other packages are named."""
    assert ended_with(error) == (1, f"error: {shown}\n")


def test_the_traceback_goes_to_the_log_file_and_the_sentence_names_it(tmp_path: Path) -> None:
    log_file = tmp_path / "a.log"
    code, shown = ended_with(CliError("it broke", log_file=log_file))
    assert (code, shown) == (1, f"error: it broke\ndetails in {log_file}\n")
    assert "Traceback" in log_file.read_text()


@pytest.mark.parametrize(
    ("pause_s", "shown"),
    [(SAME_SIGNAL_S + 0.1, "first\n"), (0.0, "first\nclosed\n")],
    ids=["later", "at-once"],
)
def test_a_second_signal_ends_the_process_unless_it_is_the_first_one_again(
    pause_s: float, shown: str
) -> None:
    """`timeout` sends each signal twice: to its child, and to the group of the child."""
    script = (
        "import os, signal, time\n"
        "from kinesis_spout.cli.exit_codes import Interrupted, StopSignals\n"
        "try:\n"
        "    with StopSignals() as stop, stop.deferred():\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('first', flush=True)\n"
        f"        time.sleep({pause_s})\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('closed')\n"
        "except Interrupted as exc:\n"
        "    raise SystemExit(exc.exit_code)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, shown, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_ends_a_question_closes_what_the_command_has_opened(
    number: signal.Signals,
) -> None:
    """Otherwise the application stays owned until the ZooKeeper session expires."""
    script = (
        "import typer\n"
        "from kinesis_spout.cli.places import Operation, command\n"
        "app = typer.Typer(add_completion=False)\n"
        "@app.command()\n"
        "@command('free', writes=True)\n"
        "def move(op: Operation):\n"
        "    op.stack.callback(print, 'released', flush=True)\n"
        "    op.confirmed('Move these shards?')\n"
        "app()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(len("Move")) == b"Move"
        process.send_signal(number)
        shown, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + number, b"")
    assert shown.endswith(b"released\n")


@pytest.mark.parametrize(
    ("error", "code", "operators_code"),
    [
        (CliError("no"), 1, 1),
        (ValueError("no"), 1, 1),
        (StateError("no"), 1, 1),
        (DataLossError("no"), 1, 1),
        (ConfigError("no"), 1, 2),
        (StreamNotFoundError("no"), 1, 2),
        (StillThrottledError("no"), 1, 3),
        (CredentialsError("no"), 1, 3),
        (StoreUnavailableError("no"), 3, 3),
        (ServiceUnavailableError("no"), 3, 3),
        (OwnedByAnotherError("no"), 4, 4),
    ],
)
def test_scripts_can_tell_what_is_worth_another_try(
    error: Exception, code: int, operators_code: int
) -> None:
    """A service that cannot be reached, and an application that runs, have codes of their own. An
    operator's command tells more by its code.
    """
    assert ended_with(error)[0] == code
    with (
        pytest.raises(typer.Exit) as ended,
        one_sentence(Console(file=io.StringIO()), codes=OPERATORS_CODES),
    ):
        raise error
    assert ended.value.exit_code == operators_code


def test_a_sentence_that_adds_to_an_error_keeps_its_code() -> None:
    """As of `produce`, which says what was put before the service did not answer."""
    error = CliError("no answer; 3 records were put")
    error.__cause__ = ServiceUnavailableError("no answer")
    assert ended_with(error)[0] == 3


ALL_COMMANDS = ("demo", "redrive", "run", *OWN_COMMANDS)


def test_version_is_printed_alone(tmp_path: Path) -> None:
    ended = run_cli("--version", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"kinesis-spout {__version__}\n")


def test_a_misspelt_command_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    ended = run_cli("statu", cwd=tmp_path)
    assert ended.returncode == 2
    assert "Did you mean 'status'?" in flowing(ended.stderr)


def test_a_shell_completes_the_names_of_commands_and_options(tmp_path: Path) -> None:
    def completed(line: str) -> list[str]:
        return run_cli(
            cwd=tmp_path,
            COMP_WORDS=line,
            COMP_CWORD=str(len(line.split()) - 1),
            _KINESIS_SPOUT_COMPLETE="complete_bash",
        ).stdout.split()

    assert completed("kinesis-spout st") == ["status"]
    assert "--zookeeper-root" in completed("kinesis-spout status --zoo")


COMMANDS_BELOW = {
    "checkpoint": ("show", "set", "skip", "reset", "export", "import", "history", "rewind"),
    "consumers": ("list", "remove"),
}


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_the_help_is_whole_in_80_columns(tmp_path: Path, name: str) -> None:
    """Nobody can type the name of an option that is cut."""
    for words in ((), *((below,) for below in COMMANDS_BELOW.get(name, ()))):
        shown = call_cli(name, *words, "--help", cwd=tmp_path, COLUMNS="80")
        assert shown.returncode == 0
        assert "--help" in shown.stdout
        assert "…" not in shown.stdout


def test_a_completion_that_cannot_be_installed_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    ended = run_cli(
        "--install-completion",
        "bash",
        cwd=tmp_path,
        HOME=str(tmp_path / "home"),
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: cannot write to {tmp_path}/home")
    assert ended.stderr.count("\n") == 1


def test_ctrl_c_while_modules_are_imported_ends_without_a_stack_trace(tmp_path: Path) -> None:
    """The import of botocore sends the signal here, as a user who mistyped would."""
    (tmp_path / "botocore.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    ended = run_cli("consume", "orders", cwd=tmp_path, PYTHONPATH=path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("module", "needed_by", "extras", "commands"),
    [
        ("pyspark", "PySpark", ("spark",), (("run", "--stream", "s"), ("demo", "--json"))),
        ("psutil", "psutil", ("spark", "local"), (("demo", "--json"),)),
    ],
)
def test_without_packages_the_help_is_whole_and_a_command_says_what_to_install(
    tmp_path: Path,
    module: str,
    needed_by: str,
    extras: tuple[str, ...],
    commands: tuple[tuple[str, ...], ...],
) -> None:
    hide(module, tmp_path)
    shown = run_cli("--help", cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
    assert shown.returncode == 0
    assert listed_names(shown.stdout) == list(ALL_COMMANDS)
    assert (
        f"Kill a Spark job that reads real flights from a local Kinesis: no record is lost. "
        f"(needs {needed_by})"
    ) in flowing(shown.stdout)
    helped = run_cli("demo", "--help", cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
    assert f"{needed_by} is not installed; {how_to_install(*extras)}" in flowing(helped.stdout)
    for words in commands:
        ended = run_cli(*words, cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
        assert how_to_install(*extras) in ended.stderr


def listed_names(help_text: str) -> list[str]:
    """The first column of the list of commands."""
    _, _, listed = help_text.partition("─ Commands ─")
    lines = [line.removeprefix("│ ") for line in listed.splitlines() if line.startswith("│")]
    return [line.split()[0] for line in lines if not line.startswith(" ")]


def flowing(help_text: str) -> str:
    """The help without its frames and the breaks of its lines."""
    return " ".join(help_text.replace("│", " ").split())


def test_a_kinesis_that_does_not_answer_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens on port 1."""
    monkeypatch.setattr("kinesis_spout.drills.stream._FIRST_ANSWER_S", 0.1)
    arguments = ("kill-driver", "--spout", "--localstack", "--endpoint-url", "http://127.0.0.1:1")
    ended = call_cli("drill", *arguments, cwd=tmp_path)
    assert ended.returncode == 3
    assert "http://127.0.0.1:1" in ended.stderr
