"""The server's own disk record of what is accepted and not yet acknowledged by a plugin."""
