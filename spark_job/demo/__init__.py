"""`kinesis-spout demo`: the main job on real input, killed, resumed and checked."""
