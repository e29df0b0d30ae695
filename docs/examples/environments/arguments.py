from enum import Enum
from typing import Annotated, Literal

from orsay import Environment, tool
from pydantic import BaseModel, Field


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    city: str = "Paris"


class Pizzeria(Environment):
    """Order what the task asks for."""

    splits = {"train": [{"order": "two large pizzas with olives"}]}

    def prompt(self) -> str:
        return f"Order {self.task['order']}."

    @tool
    def order(
        self,
        count: Annotated[int, Field(ge=1, le=20, description="How many pizzas.")],
        size: Size,
        toppings: list[str],
        address: Address,
        when: Literal["now", "tonight"] = "now",
        note: str | None = None,
    ) -> str:
        """Place an order.

        Args:
            toppings: What goes on top, such as olives.
            note: Anything the kitchen should know.
        """
        return f"{count} {size.value} with {', '.join(toppings)} to {address.street}, {when}."
