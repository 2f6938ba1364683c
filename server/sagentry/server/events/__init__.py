"""The event streams of agents: a ring of encoded events per agent, and its readers."""
