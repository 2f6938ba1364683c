"""The server's face towards clients: gRPC in, domain terms inside."""
