"""The mention preprocessor: `@Name` in a message adds the document of that name.

`python -m sagentry.plugins.mention --folder DOCS` serves it. `docs/plugins/mention.md` has the rules of
mentions and what users see.
"""

from __future__ import annotations

from sagentry.plugins.mention.folder import DocumentFolder, FolderError
from sagentry.plugins.mention.preprocessor import MentionPreprocessor

__all__ = ["DocumentFolder", "FolderError", "MentionPreprocessor"]
