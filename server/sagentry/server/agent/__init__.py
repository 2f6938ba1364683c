"""One agent: its actor, its run loop and what the model is shown."""
