"""FakeKinesis over HTTP: the JSON protocol and its CBOR, the framing of events, the server."""
