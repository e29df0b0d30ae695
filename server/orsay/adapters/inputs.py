"""Tools whose input is given as a JSON schema, not as a Python signature."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from ..authoring.results import ToolOutput
from ..authoring.tools import tool

__all__ = ["schema_tool"]


class _AnyInput(BaseModel):
    """Model that accepts what ``orsay_schema`` allows, and has it as its JSON schema."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())
    orsay_schema: ClassVar[Mapping[str, Any]]
    orsay_check: ClassVar[tuple[Callable[[Any], None]]]

    @model_validator(mode="before")
    @classmethod
    def _follows_the_schema(cls, value: Any) -> Any:
        cls.orsay_check[0](value)
        return value

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return dict(cls.orsay_schema)


def schema_tool(
    description: str,
    schema: Mapping[str, Any],
    run: Callable[[Any, dict[str, Any]], Awaitable[ToolOutput]],
) -> Any:
    """A method for the body of an environment class, marked as a tool: ``run(environment, input)``.

    An input that does not follow ``schema`` is refused before ``run`` sees it.
    """
    model: Any = type(
        "Input",
        (_AnyInput,),
        {"__module__": __name__, "orsay_schema": schema, "orsay_check": (_checker(schema),)},
    )

    async def call(self: Any, input: Any) -> ToolOutput:
        return await run(self, dict(input.model_extra or {}))

    call.__annotations__ = {"input": model, "return": ToolOutput}
    call.__doc__ = description
    return tool(call)


def _checker(schema: Mapping[str, Any]) -> Callable[[Any], None]:
    jsonschema: Any = importlib.import_module(
        "jsonschema"
    )  # installed with the packages that describe tools by schema

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema)

    def check(value: Any) -> None:
        problem = jsonschema.exceptions.best_match(validator.iter_errors(value))
        if problem is not None:
            path = ".".join(str(part) for part in problem.absolute_path)
            raise ValueError(f"{path}: {problem.message}" if path else problem.message)

    return check
