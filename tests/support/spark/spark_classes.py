"""Spark's Java classes as a JVM has loaded them once, in a file that other JVMs map: they start in
half the time.

    python -m tests.support.spark.spark_classes

makes the file in about 20 s, unless there is one that fits.

Java calls it a dynamic archive of class data (JEP 350). A JVM of another version, or with other
jars, does without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ARCHIVE = ROOT / ".tools" / "spark-classes.jsa"
MADE_OF = ARCHIVE.with_suffix(".txt")
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for seconds: the second compiler and parallel collectors cost more than they
gain.
"""
_QUIET = "-Xlog:disable"  # a JVM that does not use the archive would report that on its stdout
_LOAD = """
import sys
from pyspark.sql import SparkSession, functions as F
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.log.level", "ERROR").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.sql.shuffle.partitions", "2")
spark = builder.config("spark.driver.extraJavaOptions", sys.argv[1]).getOrCreate()
rows = spark.range(1000).withColumn("twice", F.col("id") * 2)
rows = rows.groupBy((F.col("id") % 7).alias("rest")).agg(F.sum("twice"))
rows.join(spark.range(7).withColumnRenamed("id", "rest"), "rest").orderBy("rest").collect()
same = lambda batches: batches
def process(batch, number):
    batch.mapInArrow(same, batch.schema).write.mode("append").json(sys.argv[2] + "/json")
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
stream = stream.withColumn("data", F.to_json(F.struct("value")))
stream = stream.select("data", F.from_json("data", "value INT"))
writers = [stream.writeStream.foreachBatch(process), stream.writeStream.format("parquet")]
for number, writer in enumerate(writers):
    writer = writer.option("path", sys.argv[2] + "/parquet")
    writer = writer.option("checkpointLocation", f"{sys.argv[2]}/checkpoint{number}")
    query = writer.trigger(processingTime="0 seconds").start()
    while not query.recentProgress:
        query.awaitTermination(0.1)
    query.stop()
spark.read.parquet(sys.argv[2] + "/parquet").count()
spark.stop()
"""


def quick_jvm() -> str:
    """Options for a JVM that lives for seconds, with the archive if it was made."""
    return (
        f"{QUICK_JVM} -XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if ARCHIVE.exists() else QUICK_JVM
    )


def sources() -> str:
    """The Java and the jars that the archive depends on: names, sizes and times. It is used only if
    they are unchanged.
    """
    spec = find_spec("pyspark")
    jars = sorted(Path(str(spec and spec.origin)).parent.glob("jars/*.jar"))
    stats = ((jar, jar.stat()) for jar in jars)
    return "\n".join(
        [
            os.environ.get("JAVA_HOME", ""),
            *(f"{jar} {stat.st_size} {stat.st_mtime_ns}" for jar, stat in stats),
        ]
    )


def make_archive() -> None:
    """Run a small job and store the classes that it loaded. A failed run leaves nothing behind."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    made_of = sources()
    if ARCHIVE.exists() and MADE_OF.exists() and MADE_OF.read_text() == made_of:
        return
    ARCHIVE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as directory:
        made = Path(directory) / ARCHIVE.name
        program = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            _LOAD,
            f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made} {_QUIET}",
            directory,
        ]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        ran = subprocess.run(
            program, capture_output=True, text=True, env=environment, timeout=300, check=False
        )
        if ran.returncode or not made.exists():
            sys.stderr.write(
                "Spark's classes could not be stored, so the tests take longer: "
                f"{ran.stderr[-500:]}\n"
            )
            return
        made.replace(ARCHIVE)
        MADE_OF.write_text(made_of)


if __name__ == "__main__":
    make_archive()
