"""Tools: how they are made, found and run."""
