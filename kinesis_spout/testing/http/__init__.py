"""FakeKinesis over HTTP: the JSON protocol, the framing of events, the server."""
