"""The `sagentry` command."""
