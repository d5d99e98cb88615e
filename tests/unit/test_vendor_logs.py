"""Vendors' logs hold secrets at DEBUG, and a root logger of that level does not turn them on. Nor
does the package turn on lines of theirs that the root logger leaves out.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# A process of its own: levels are the process's.
SHOWN = """
import importlib, logging, sys
logging.basicConfig(level=sys.argv[4])
if sys.argv[3]:
    logging.getLogger(sys.argv[2]).setLevel(sys.argv[3])
importlib.import_module(sys.argv[1])
shown = logging.getLogger(sys.argv[2] + ".below").isEnabledFor
print(*(name for name in ("DEBUG", "INFO", "WARNING") if shown(getattr(logging, name))))
"""


@pytest.mark.parametrize(
    ("module", "vendor"),
    [
        ("kinesis_spout.service.botocore_session", "botocore"),
        ("spark_job.data_source", "py4j"),
    ],
)
@pytest.mark.parametrize(
    ("own_level", "root_level", "shown"),
    [
        ("", "DEBUG", "WARNING"),
        ("", "WARNING", "WARNING"),
        ("DEBUG", "DEBUG", "DEBUG INFO WARNING"),
    ],
)
def test_a_vendor_logs_requests_only_where_its_own_level_says_so(
    module: str, vendor: str, own_level: str, root_level: str, shown: str
) -> None:
    program = [sys.executable, "-W", "ignore", "-c", SHOWN, module, vendor, own_level, root_level]
    ended = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == shown
