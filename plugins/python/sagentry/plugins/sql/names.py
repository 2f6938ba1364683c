"""Names of enum values as they stand in the tables: short, readable, and open for later values."""

from __future__ import annotations

from google.protobuf.descriptor import EnumDescriptor

from sagentry.api.plugin.v1 import agent_persistence_pb2 as agent_pb
from sagentry.api.type.v1 import display_pb2


class EnumNames:
    """Translates the numbers of one enum: `DISPLAY_MESSAGE_TYPE_USER` is `user`.

    A number that this version does not know is kept as decimal text, so that nothing is lost and a
    later version, which knows it, still reads it.

    Args:
        descriptor: The enum.
        prefix: What all its values begin with.
    """

    def __init__(self, descriptor: EnumDescriptor, prefix: str) -> None:
        self._name = {
            value.number: value.name.removeprefix(prefix).lower() for value in descriptor.values
        }
        self._number = {name: number for number, name in self._name.items()}

    def name(self, number: int) -> str:
        """Returns the name of a number."""
        return self._name.get(number) or str(number)

    def number(self, name: str) -> int:
        """Returns the number of a name.

        Raises:
            ValueError: if it is none.
        """
        number = self._number.get(name)
        return int(name) if number is None else number


TYPES = EnumNames(
    display_pb2.DESCRIPTOR.enum_types_by_name["DisplayMessageType"], "DISPLAY_MESSAGE_TYPE_"
)
TOOL_STATUSES = EnumNames(display_pb2.DESCRIPTOR.enum_types_by_name["ToolStatus"], "TOOL_STATUS_")
LIFECYCLES = EnumNames(agent_pb.DESCRIPTOR.enum_types_by_name["Lifecycle"], "LIFECYCLE_")
