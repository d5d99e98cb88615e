"""How the bytes of a Kinesis record become fields. A leaf package: it imports nothing of ours."""
