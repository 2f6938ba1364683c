"""The agent: one conversation, its run, its writes. Knows ports, never transports or providers."""
