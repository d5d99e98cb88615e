"""Faults that FakeKinesis can be made to have."""
