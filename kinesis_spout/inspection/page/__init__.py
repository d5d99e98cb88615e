"""The page of `kinesis-spout ui`: looks at an application as HTML. Pure.

`application_page` is the page of all shards, `shard_page` that of one. Both are functions of a
`View`: a look, and what was remembered of earlier ones.
"""
