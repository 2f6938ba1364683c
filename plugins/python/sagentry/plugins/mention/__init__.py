"""A preprocessor: `@Name` in a message gives the model the document of that name."""
