"""`kinesis-spout demo`: the main job on real input, killed, resumed and checked."""

import pyspark  # noqa: F401  # without it, the error comes before anything is started
