"""A whole plugin: the model reads each message in capitals, people see it as it was written."""

from __future__ import annotations

from sagentry.api.plugin.v1 import message_preprocessor_pb2 as pb
from sagentry.plugins.sdk import Call, MessagePreprocessor, serve


class Upper(MessagePreprocessor):
    """Shouts at the model."""

    def PreprocessMessage(  # noqa: N802  the contract's name
        self, request: pb.PreprocessMessageRequest, _call: Call
    ) -> pb.PreprocessMessageResponse:
        """Accepts every message that has something to read."""
        response = pb.PreprocessMessageResponse()
        if not any(part.text.text.strip() for part in request.message.parts):
            response.rejected.reason = "NOTHING_TO_READ"
            response.rejected.user_message = "Write something, please."
            return response
        response.accepted.llm_message.CopyFrom(request.message)
        for part in response.accepted.llm_message.parts:
            if part.HasField("text"):
                part.text.text = part.text.text.upper()
        return response


if __name__ == "__main__":
    serve(Upper(), name="com.example.upper", version="1.0.0")
