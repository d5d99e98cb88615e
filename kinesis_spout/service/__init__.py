"""The calls to AWS. No other room imports botocore."""
