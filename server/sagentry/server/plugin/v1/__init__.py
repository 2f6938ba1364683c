"""Version 1 of the contract with plugins: each module makes a port of one service."""
