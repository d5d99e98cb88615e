"""FakeKinesis over HTTP: the protocol, the framing of events, the server."""
