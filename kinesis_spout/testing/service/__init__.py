"""The operations of FakeKinesis, with their requests and answers."""
