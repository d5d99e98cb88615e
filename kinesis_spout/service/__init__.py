"""Everything that talks to AWS. Nothing else imports botocore."""
