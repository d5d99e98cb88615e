"""The operations of FakeKinesis, and what they take and answer."""
