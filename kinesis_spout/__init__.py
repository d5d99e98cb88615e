"""kinesis-spout: reads Kinesis shards, tracks every record in flight, and checkpoints in
ZooKeeper.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

__version__ = "0.1.0"


def _refuse_hidden(package: str, module: str) -> None:
    """Raise ImportError when another module with a name as common as `state` precedes ours in
    sys.path.
    """
    try:
        found = find_spec(f"{package}.{module}")
    except ModuleNotFoundError:
        found = None
    if found is None:
        other = (
            getattr(import_module(package), "__file__", None) or "a directory without __init__.py"
        )
        raise ImportError(
            f"another module named {package} ({other}) hides the package {package} of "
            "kinesis-spout; rename the other module, or put kinesis-spout before the other "
            "module in sys.path"
        )


# Another Python may find these files, and not what they need.
if find_spec("msgspec") is None:
    raise ImportError(
        f"{sys.executable} imports kinesis-spout, but has no package msgspec; run the program "
        "with the Python in which kinesis-spout is installed; for spark-submit and Spark's "
        "workers, set PYSPARK_PYTHON to the path of that Python"
    )
_refuse_hidden("state", "sequence_number")
_refuse_hidden("scheme", "record_scheme")
