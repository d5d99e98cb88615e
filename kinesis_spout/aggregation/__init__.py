"""Aggregates of the Kinesis Producer Library: one Kinesis record that holds many user records."""
