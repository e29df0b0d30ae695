"""Environments for the console's tests: forms of every kind, an image, faults, and a call without end."""

from __future__ import annotations

import asyncio
import base64
import zlib
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

from orsay import Environment, ImageBlock, TextBlock, ToolOutput, terminal, tool
from pydantic import AwareDatetime, BaseModel, Field

__all__ = ["Kitchen", "Warehouse"]


class Size(Enum):
    """How much of it."""

    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    """Where it goes."""

    street: str = Field(min_length=3, description="Street and number.")
    floor: int | None = None


class Topping(BaseModel):
    """Something on top."""

    name: str
    grams: int = Field(20, ge=1, le=100)


class Cash(BaseModel):
    """Paid in coins."""

    kind: Literal["cash"] = "cash"
    coins: int = 3


class Card(BaseModel):
    """Paid by card."""

    kind: Literal["card"] = "card"
    number: str


class Order(BaseModel):
    """An order with everything a schema can say."""

    size: Size
    address: Address
    toppings: list[Topping] = Field(default_factory=list, max_length=3)
    note: str | None = Field(None, description="Anything else.")
    spice: Annotated[int, Field(ge=0, le=5)] = 2
    tip: float | None
    vegetarian: bool = False
    gift: Address | None = None
    payment: Annotated[Cash | Card, Field(discriminator="kind")] = Cash()
    extras: dict[str, Any] = Field(default_factory=dict)
    spot: tuple[int, int] = (0, 0)


class Shelf(BaseModel):
    """A shelf, which may hold shelves."""

    label: str
    inside: list[Shelf] = Field(default_factory=list)


class Stock(BaseModel):
    """What is less common in a schema."""

    kind: Literal["dry", "cold"] = "dry"
    level: Size | None = None
    counts: dict[str, int] = Field(default_factory=dict)
    shelf: Shelf = Shelf(label="top")
    code: int | str = Field(union_mode="left_to_right")
    bought: date | None = None
    sizes: list[Size] = Field(default_factory=list)
    grid: list[list[int]] = Field(default_factory=list)
    anything: Any = None
    lot: str = Field("A-1", pattern="^[A-Z]-[0-9]+$")
    share: float = Field(0.5, gt=0, lt=1)


class Visit(BaseModel):
    """Text of all kinds of formats."""

    day: date = Field(description="When to come.")
    at: AwareDatetime = datetime(2026, 5, 30, 9, 0, tzinfo=UTC)
    opens: time
    closes: time | None = None
    since: datetime = datetime(2026, 1, 2, 3, 4, 5)  # as authors write them
    others: list[date] = Field(default_factory=list)
    ticket: UUID | None = None
    mail: str = Field("a@example.org", json_schema_extra={"format": "email"})


class Kitchen(Environment):
    """Take orders, look at the oven, burn things."""

    splits = {"train": [{"dish": "pizza"}, {"dish": "soup"}], "test": [{"dish": "cake"}]}

    def prompt(self) -> list[TextBlock | ImageBlock]:
        return [TextBlock(text=f"Make a {self.task_spec['dish']}.\nThe oven:"), picture((220, 120, 40))]

    @tool
    def order(self, params: Order) -> ToolOutput:
        """Take an order, and repeat it word for word."""
        return ToolOutput(
            blocks=[TextBlock(text=params.model_dump_json())], metadata={"taken": True}, reward=0.25
        )

    @tool
    def look(self) -> ToolOutput:
        """Look into the oven."""
        return ToolOutput(blocks=[TextBlock(text="It glows."), picture((250, 60, 20))], reward=0.5)

    @tool
    def burn(self) -> str:
        """Forget it in the oven."""
        raise RuntimeError("the kitchen is on fire")

    @tool
    async def wait(self) -> str:
        """Wait until somebody loses patience."""
        await asyncio.sleep(600)
        return "done"

    @terminal
    @tool
    def serve(self, words: str) -> ToolOutput:
        """Say something nice, and serve."""
        return ToolOutput(blocks=[TextBlock(text=f"Served: {words}")], reward=1.0, finished=True)


class Warehouse(Environment):
    """More tools than fit beside each other."""

    splits = {"train": [{}]}

    def prompt(self) -> str:
        return "Keep the shelves full."

    @tool
    def stock(self, params: Stock) -> str:
        """Fill the shelves, and repeat with what."""
        return params.model_dump_json()

    @tool
    def count(self) -> str:
        """Count what is there."""
        return "Nothing."

    @tool
    def find(self, what: str, at_most: int = 3) -> str:
        """Look for something."""
        return f"No {what} in {at_most} shelves."

    @tool
    def plan(self, params: Visit) -> str:
        """Plan a visit, and repeat when it is."""
        return params.model_dump_json()

    @tool
    def open(self) -> str:
        """Open the gate."""
        return "Open."

    @tool
    def shut(self) -> str:
        """Shut the gate."""
        return "Shut."

    @tool
    def sweep(self) -> ToolOutput:
        """Clean up."""
        return ToolOutput(blocks=[], reward=0.0)


def picture(colour: tuple[int, int, int], width: int = 48, height: int = 32) -> ImageBlock:
    """A PNG of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    rows = (b"\0" + bytes(colour) * width) * height
    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return ImageBlock(data=base64.b64encode(png).decode(), mimeType="image/png")
