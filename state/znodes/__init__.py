"""The layout of the stored state in znodes: what each node holds, and which writes it accepts."""
