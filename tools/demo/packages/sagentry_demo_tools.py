"""Two tools with an effect that must happen once: each writes a line into a file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sagentry.server.tools.function_tool import tool

FOLDER = Path(os.environ["DEMO_FOLDER"])


def _write(name: str, line: str) -> None:
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@tool(display_text="Booking a table")
async def book_table(restaurant: str, people: int) -> str:
    """Books a table.

    Args:
        restaurant: Where.
        people: For how many.
    """
    await asyncio.to_thread(_write, "bookings", f"{restaurant}, {people}")
    return f"A table for {people} at {restaurant} is booked."


@tool(display_text="Sending the invitation")
async def send_invitation(text: str) -> str:
    """Sends an invitation to everybody.

    Args:
        text: What it says.
    """
    await asyncio.to_thread(_write, "invitations", text)
    return "The invitation is sent."
