"""The Sagentry agent server: long-lived LLM chat agents behind gRPC."""
