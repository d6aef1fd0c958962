"""Every function of adaptk that the plugin may run, and an exception put into one of them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any

import adaptk
from adaptk import vllm_plugin
from adaptk.vllm_plugin import metrics


class InjectedError(Exception):
    """Raised by the tests."""


def modules() -> list[ModuleType]:
    """The core's modules and the plugin's."""
    found = []
    for package in (adaptk, vllm_plugin, metrics):
        names = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.ispkg]
        found += [importlib.import_module(f"{package.__name__}.{name}") for name in names if name != "__main__"]
    return found


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """Functions and methods written in ``module`` by their names, properties and nested classes included."""
    found: dict[str, FunctionType] = {}
    _collect(module, module.__name__.removeprefix("adaptk.") + ".", module, found)
    return found


def _collect(owner: Any, prefix: str, module: ModuleType, found: dict[str, FunctionType]) -> None:
    for name, value in vars(owner).items():
        if inspect.isclass(value) and value.__module__ == module.__name__ and value.__qualname__.endswith(name):
            if not prefix.endswith(f".{name}."):
                _collect(value, f"{prefix}{name}.", module, found)
            continue
        for part, function in _functions_of(value):
            code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
            if code is not None and code.co_filename == module.__file__ and code.co_name != "<lambda>":
                found[f"{prefix}{name}{part}"] = inspect.unwrap(function)


def _functions_of(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, property):
        return [(part, f) for part, f in (("", value.fget), (" (set)", value.fset)) if f is not None]
    if isinstance(value, cached_property):
        return [("", value.func)]
    if isinstance(value, (staticmethod, classmethod)):
        return [("", value.__func__)]
    return [("", value)] if callable(value) and not inspect.isclass(value) else []


class Fault:
    """Stands in a function's code and raises in its place; counts how often."""

    def __init__(self, make: Callable[[], BaseException] = lambda: InjectedError("injected")) -> None:
        self.make = make
        self.raised = 0

    def strike(self) -> None:
        self.raised += 1
        raise self.make()


def _template(*_: Any, **__: Any) -> Any:
    return "fault".strike()  # type: ignore[attr-defined]


@contextmanager
def injected(function: FunctionType, fault: Fault) -> Iterator[None]:
    """Within this, ``function`` raises, whoever holds it and under whatever name."""
    own = function.__code__
    constants = tuple(fault if constant == "fault" else constant for constant in _template.__code__.co_consts)
    function.__code__ = _template.__code__.replace(co_consts=constants, co_freevars=own.co_freevars)
    try:
        yield
    finally:
        function.__code__ = own


@contextmanager
def watched(see: Callable[[CodeType], None]) -> Iterator[None]:
    """Tell ``see`` of every call of a function of ours within this, in any thread started within this."""

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "adaptk" in frame.f_code.co_filename:
            see(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
        sys.setprofile(before)
