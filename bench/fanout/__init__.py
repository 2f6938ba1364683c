"""The servers and the clients that the fan-out benchmark runs as processes."""
