"""The faults that FakeKinesis can be told to have."""
