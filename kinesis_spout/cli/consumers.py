"""`kinesis-spout consumers`: the consumers that are registered with a stream."""

from dataclasses import asdict

from kinesis_spout.cli.places import Operation, command, say
from kinesis_spout.cli.shared_options import argument, command_group
from kinesis_spout.inspection.wording import moment, visible
from kinesis_spout.service.consumers import ConsumerRegistry


@command("none", stream_is_argument=True, shows=True)
def list_(op: Operation) -> None:
    """List the consumers that are registered with a stream.

    AWS bills each registered consumer for every shard and hour, even if no job
    uses the consumer.
    """
    with op.patience():
        found = ConsumerRegistry(op.client).list()
    now_ms = op.clock.now_ms()
    lines = (
        f"{visible(consumer.name)}  {consumer.status}  since "
        f"{moment(consumer.created_ms, now_ms)}  {visible(consumer.arn)}"
        for consumer in found
    )
    none = [f"stream {op.client.stream.name} has no registered consumers"]
    op.show([asdict(consumer) for consumer in found], lines if found else none)


@command("none", stream_is_argument=True, writes=True)
def remove(op: Operation, name: str = argument("Name of the consumer.", "NAME")) -> None:
    """Remove a consumer from a stream.

    A job or spout that still uses the consumer polls the shards, or registers a
    new consumer with the same name. Checkpoints do not change.
    """
    registry = ConsumerRegistry(op.client)
    with op.patience():
        found = registry.find(name=name)
    say(f"consumer {found.name} of stream {op.client.stream.name} is {found.status}: {found.arn}")
    if op.confirmed("Remove this consumer?"):
        registry.deregister(found.arn)
        say("removed")


@command_group({"list": list_, "remove": remove})
def consumers() -> None:
    """List and remove the consumers for enhanced fan-out that are registered with a stream."""
