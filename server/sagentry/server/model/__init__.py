"""Models behind the `ChatModel` port. The only package that imports langchain."""
