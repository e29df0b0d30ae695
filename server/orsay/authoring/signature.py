"""The parameters of a tool: input schema, descriptions, and how an input becomes arguments.

Two spellings. Full: one parameter annotated with a pydantic model, whose schema is the input schema. Short:
typed parameters, from which a model is made; descriptions come from the docstring unless a Field gives one.
"""

from __future__ import annotations

import builtins
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import docstring_parser
from docstring_parser.common import DocstringExample, DocstringParam, DocstringRaises, DocstringReturns
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..errors import ToolDefinitionError

__all__ = ["Bind", "Signature", "Unresolved", "annotations_of", "capture_scope", "read_signature"]

Bind: TypeAlias = Callable[[dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
Parameters: TypeAlias = list[inspect.Parameter]

_SCOPE = "_orsay_scope"
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


class Unresolved(Exception):
    """An annotation refers to a name that is not defined yet."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters of a tool as the wire needs them. ``input_schema`` is None for a tool without any.

    ``fields`` are the argument names on the wire, in order.
    """

    description: str
    input_schema: dict[str, Any] | None
    fields: tuple[str, ...]
    bind: Bind


class _ShortInput(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), arbitrary_types_allowed=False)


def read_signature(function: Any, namespace: Mapping[str, Any], *, where: str, bound: bool) -> Signature:
    """Read a tool's function. ``where`` names the tool in errors; ``bound`` says that it takes no ``self``.

    ``namespace`` is where the names of string annotations are looked up last: the tool's class.
    Raises ToolDefinitionError for a function that cannot be a tool, Unresolved while annotations are
    undefined.
    """
    real = inspect.unwrap(function)
    documentation = inspect.getdoc(function) or ""
    parameters = _parameters(real, where=where, bound=bound)
    if not parameters:
        return Signature((function.__doc__ or "").strip(), None, (), _bind_nothing)
    annotations = _resolve(real, parameters, namespace, where)
    only = parameters[0]
    model = annotations[only.name]
    if len(parameters) == 1 and inspect.isclass(model) and issubclass(model, BaseModel):
        schema = _schema(model, where)
        bind = _bind_model(model, only.name if only.kind is only.KEYWORD_ONLY else None)
        return Signature((function.__doc__ or "").strip(), schema, _wire_names(model), bind)
    text = _read_docstring(documentation)
    model, names = _short_model(real.__name__, parameters, annotations, text.parameters, where)
    schema = _schema(model, where)
    return Signature(text.description, schema, _wire_names(model), _bind_fields(model, names))


def annotations_of(real: Any) -> Mapping[str, Any]:
    """Unevaluated annotations; empty if Python 3.14 cannot provide them yet."""
    try:
        return getattr(real, "__annotations__", {})
    except NameError:
        return {}


def capture_scope(function: Any) -> None:
    """Keep the locals of enclosing functions that string annotations of ``function`` name, while these run.

    Called while the class body runs; reads only the frames that enclose ``function`` by its qualified name.
    """
    real = inspect.unwrap(function)
    annotations = [text for text in annotations_of(real).values() if isinstance(text, str)]
    qualname = getattr(real, "__qualname__", "").split(".")
    if not annotations or "<locals>" not in qualname:
        return
    wanted = {name for text in annotations for name in _IDENTIFIER.findall(text)}
    found: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        if frame.f_globals is real.__globals__ and frame.f_code.co_name in qualname:
            for name in wanted.intersection(frame.f_locals):
                found.setdefault(name, frame.f_locals[name])
        frame = frame.f_back
    setattr(real, _SCOPE, found)


def _parameters(real: Any, *, where: str, bound: bool) -> Parameters:
    try:
        found = list(inspect.signature(real).parameters.values())
    except NameError as exc:
        raise Unresolved(str(exc)) from exc
    if not bound:
        if not found or found[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise ToolDefinitionError(
                f"{where} takes no self; make it a method: def {real.__name__}(self, ...)"
            )
        found = found[1:]
    return found


def _resolve(real: Any, parameters: Parameters, namespace: Mapping[str, Any], where: str) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.VAR_KEYWORD:
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise ToolDefinitionError(
                f"{where} takes {stars}{parameter.name}, which has no schema; "
                "name each parameter and annotate it with a type"
            )
        if parameter.annotation is parameter.empty:
            raise ToolDefinitionError(
                f"{where} has no annotation for parameter {parameter.name!r}; "
                f"write for example {parameter.name}: str"
            )
        raw[parameter.name] = parameter.annotation

    def holder() -> None: ...

    holder.__annotations__ = raw
    known = _Names(real, namespace)
    try:
        return typing.get_type_hints(holder, real.__globals__, known.of(raw), include_extras=True)
    except (NameError, AttributeError) as exc:
        raise Unresolved(f"an annotation of {where} cannot be resolved: {exc}") from exc
    except (SyntaxError, TypeError) as exc:
        raise ToolDefinitionError(f"{where} has an annotation that is no type: {exc}") from exc


class _Names:
    """Namespace for string annotations, in the compiler's order: class body, functions, module."""

    def __init__(self, real: Any, namespace: Mapping[str, Any]) -> None:
        scope: dict[str, Any] = dict(getattr(real, _SCOPE, {}))
        for name, cell in zip(real.__code__.co_freevars, real.__closure__ or (), strict=True):
            try:
                scope.setdefault(name, cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        self._scope = scope
        self._namespace = namespace
        self._module = real.__globals__

    def of(self, annotations: Mapping[str, Any]) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for annotation in annotations.values():
            for name in _IDENTIFIER.findall(annotation if isinstance(annotation, str) else repr(annotation)):
                if inspect.isclass(self._namespace.get(name)):
                    names[name] = self._namespace[name]
                elif name in self._scope:
                    names[name] = self._scope[name]
                elif name not in self._module and not hasattr(builtins, name) and name in self._namespace:
                    names[name] = self._namespace[name]
        return names


@dataclass(frozen=True, slots=True)
class _Docstring:
    """Description of a tool, and of its parameters by name."""

    description: str
    parameters: dict[str, str]


def _read_docstring(text: str) -> _Docstring:
    """Split the sections on parameters, results and errors off the description, in any common style."""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return _Docstring(text, {})
    if not any(isinstance(item, DocstringParam | DocstringReturns | DocstringRaises) for item in parsed.meta):
        return _Docstring(text, {})
    parts = [parsed.short_description or ""]
    if parsed.long_description:
        parts.append(("\n" if parsed.blank_after_short_description else "") + parsed.long_description)
    parts.extend(
        f"\nExample:\n{item.description}"
        for item in parsed.meta
        if isinstance(item, DocstringExample) and item.description
    )
    parameters = {item.arg_name: item.description for item in parsed.params if item.description}
    return _Docstring("\n".join(parts).strip(), parameters)


def _short_model(
    tool: str,
    parameters: Parameters,
    annotations: Mapping[str, Any],
    descriptions: Mapping[str, str],
    where: str,
) -> tuple[type[BaseModel], dict[str, str]]:
    """The input model of the short spelling, and which field holds which parameter."""
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in parameters:
        name = parameter.name
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolDefinitionError(
                f"{where} takes {name!r} by position only, but arguments come by name; remove the '/'"
            )
        annotation = annotations[name]
        given = [item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, FieldInfo)]
        if isinstance(parameter.default, FieldInfo):
            given.append(parameter.default)
        extra: dict[str, Any] = {"description": descriptions[name]} if name in descriptions else {}
        default = _default(parameter, annotation, given, where)
        field = name
        if name.startswith(("_", "model_")) or hasattr(BaseModel, name):
            field = _free_name(name, annotations)
            if not any(item.alias or item.validation_alias for item in given):
                extra["alias"] = name
        if extra:
            annotation = _with_field_first(annotation, Field(**extra))
        names[name] = field
        fields[field] = (annotation, default)
    try:
        return create_model(_camel(tool) + "Input", __base__=_ShortInput, **fields), names
    except PydanticUndefinedAnnotation as exc:
        raise Unresolved(str(exc)) from exc
    except (PydanticUserError, TypeError, ValueError, NameError) as exc:
        raise ToolDefinitionError(f"{where} has a parameter without a JSON form: {_first_line(exc)}") from exc


def _default(parameter: inspect.Parameter, annotation: Any, given: list[FieldInfo], where: str) -> Any:
    if isinstance(parameter.default, FieldInfo):
        return parameter.default
    if parameter.default is parameter.empty:
        has_default = any(
            item.default is not PydanticUndefined or item.default_factory is not None for item in given
        )
        return Field() if has_default else ...
    try:
        TypeAdapter(annotation).validate_python(parameter.default)
    except ValidationError as exc:
        hint = "annotate it with '| None'" if parameter.default is None else "change one of the two"
        raise ToolDefinitionError(
            f"{where} has the default {parameter.default!r} for parameter {parameter.name!r}, "
            f"which does not fit its annotation ({exc.errors()[0]['msg']}); {hint}"
        ) from exc
    except (PydanticUserError, NameError, TypeError):
        pass  # the model, made from the same annotation, reports it with the parameter's name
    return parameter.default


def _with_field_first(annotation: Any, field: Any) -> Any:
    """Add a Field with defaults; the author's own Field has priority."""
    metadata = getattr(annotation, "__metadata__", ())
    inner = annotation.__origin__ if metadata else annotation
    return Annotated[(inner, field, *metadata)]


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    field = "arg_" + name.lstrip("_")
    while field in taken:
        field += "_"
    return field


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _schema(model: type[BaseModel], where: str) -> dict[str, Any]:
    try:
        return model.model_json_schema()
    except PydanticUndefinedAnnotation as exc:
        raise Unresolved(str(exc)) from exc
    except PydanticUserError as exc:
        if exc.code == "class-not-fully-defined":
            raise Unresolved(_first_line(exc)) from exc
        raise ToolDefinitionError(f"{where} has an input without a JSON form: {_first_line(exc)}") from exc


def _wire_names(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(
        field.validation_alias if isinstance(field.validation_alias, str) else name
        for name, field in model.model_fields.items()
    )


def _first_line(exc: Exception) -> str:
    lines = str(exc).splitlines()
    return lines[0] if lines else type(exc).__name__


def _bind_nothing(input: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (), {}


def _bind_model(model: type[BaseModel], keyword: str | None) -> Bind:
    validate = model.__pydantic_validator__.validate_python

    def bind(input: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (validate(input),), {}

    def bind_keyword(input: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {keyword or "": validate(input)}

    return bind if keyword is None else bind_keyword


def _bind_fields(model: type[BaseModel], names: Mapping[str, str]) -> Bind:
    validate = model.__pydantic_validator__.validate_python
    pairs = tuple(names.items())

    def bind(input: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), validate(input).__dict__

    def bind_renamed(input: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = validate(input).__dict__
        return (), {name: values[field] for name, field in pairs}

    return bind if all(name == field for name, field in pairs) else bind_renamed
