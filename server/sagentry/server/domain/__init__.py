"""What the server is about, in values of the standard library only."""
