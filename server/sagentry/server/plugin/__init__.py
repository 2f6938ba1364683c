"""The server's side of plugins: attachments, calls, and the ports that plugins implement."""
