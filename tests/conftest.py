"""Fixtures live in tests/support, one file per service."""

import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# How many examples a property has, and half as many histories: a few while a developer
# waits, many in the drills (`--hypothesis-profile=many`), and no end of them in `make fuzz`.
EXAMPLES = {"few": 150, "many": 1000, "endless": 10**9}
for size, examples in EXAMPLES.items():
    # No example is too slow: the first one with text makes a table of all characters, and the
    # machine may be busy elsewhere.
    settings.register_profile(
        size,
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
# The same few examples for each mutant, and no search for the shortest one that fails.
settings.register_profile(
    "mutants",
    settings.get_profile("few"),
    max_examples=25,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    print_blob=False,
)
settings.load_profile("few")

# A job in a shell's background ignores Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = (
    "tests.support.shell.tools",
    "tests.support.state.zookeeper",
    "tests.support.state.secure_zookeeper",
    "tests.support.kinesis.services",
    "tests.support.kinesis.stub_kinesis",
    "tests.support.spark.session",
    "tests.support.spark.source",
    "tests.support.simulated.simulated_job",
    "tests.support.shell.operators_shell",
    "tests.support.shell.wheel",
    "tests.support.outcomes.tracked",
)

TAKE_MINUTES = ("test_product_drills.py", "test_kill_at_failpoints.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share", default="1/1", metavar="K/N", help="the Kth of N equal shares of the tests"
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"share: {config.getoption('share')}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The drills of minutes run first; the order is random otherwise. One that starts last would
    keep one core busy while the others idle.

    Tests of single cases measure the coverage. For a property's thousands of examples, counting
    lines takes half as long as running them, and adds nothing.
    """
    number, shares = map(int, config.getoption("share").split("/"))
    chosen = set(sorted(item.nodeid for item in items)[number - 1 :: shares])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
    items.sort(key=lambda item: item.path.name not in TAKE_MINUTES)
    for item in items:
        if "property" in item.path.parts:
            item.add_marker(pytest.mark.no_cover)
