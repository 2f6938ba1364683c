"""Finds the tools that are installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from sagentry.server.model_ports import Tool
from sagentry.server.tools.function_tool import FunctionTool, ToolDefinitionError

GROUP = "sagentry.tools"
"""Entry point group of tools. A value is a function or a tool; the name is for the configuration."""


class ToolRegistry:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Registers tools.

        Raises:
            ToolDefinitionError: Two have one name.
        """
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    @classmethod
    def installed(cls) -> ToolRegistry:
        """Loads every installed tool.

        Raises:
            ToolDefinitionError: One cannot be loaded or two have one name; names the package.
        """
        return cls.of_entry_points(entry_points(group=GROUP))

    @classmethod
    def of_entry_points(cls, points: Iterable[EntryPoint]) -> ToolRegistry:
        """Loads the tools of these entry points; see `installed`."""
        return cls(_load(point) for point in sorted(points, key=lambda point: point.name))

    def register(self, tool: Tool) -> None:
        """Adds a tool.

        Raises:
            ToolDefinitionError: Another one has its name.
        """
        name = tool.spec.name
        if name in self._tools:
            problem = f"tool {name}: there are two of that name"
            raise ToolDefinitionError(problem)
        self._tools[name] = tool

    def get(self, name: str) -> Tool | None:
        """Returns the tool of that name, or None."""
        return self._tools.get(name)

    def select(self, names: Iterable[str]) -> Mapping[str, Tool]:
        """Returns the tools that a profile names.

        Raises:
            ToolDefinitionError: One is not installed; names the ones that are.
        """
        selected: dict[str, Tool] = {}
        for name in names:
            tool = self._tools.get(name)
            if tool is None:
                known = ", ".join(sorted(self._tools)) or "(none)"
                problem = f"tool {name}: is not installed; installed are {known}"
                raise ToolDefinitionError(problem)
            selected[name] = tool
        return selected

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def _load(point: EntryPoint) -> Tool:
    source = f"tool {point.name} ({point.value})"
    try:
        loaded = point.load()
    except Exception as error:
        # Whatever a foreign module raises while it is imported, the operator needs to know whose it is.
        problem = f"{source}: cannot be loaded: {type(error).__name__}: {error}"
        raise ToolDefinitionError(problem) from error
    if hasattr(loaded, "spec") and hasattr(loaded, "run"):
        found: Tool = loaded
        return found
    if callable(loaded):
        return FunctionTool(loaded, name=point.name)
    problem = f"{source}: is neither a function nor a tool"
    raise ToolDefinitionError(problem)
