"""The Python that adaptk runs in: is it the one that vLLM would find adaptk in, and what else is there."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec

from adaptk._version import __version__
from adaptk.doctor.finding import Finding

GROUP, NAME, ENTRY = "vllm.general_plugins", "adaptk", "adaptk.vllm_plugin.plugin:register"
# Packages of the extras, and what needs each.
_EXTRAS = {
    "rich": "colours, progress and adaptk top",
    "prometheus_client": "metrics",
    "matplotlib": "figures",
    "scipy": "adaptk profile, replay and report",
    "joblib": "adaptk replay",
    "numba": "adaptk replay",
}


def findings(env: Mapping[str, str]) -> Iterator[Finding]:
    """Versions, the entry point, and packages of extras."""
    yield Finding(
        "installation.python", "ok", f"adaptk {__version__}, Python {platform.python_version()}", sys.executable
    )
    yield from _entry_point()
    yield from _allowed(env.get("VLLM_PLUGINS"))
    yield from _stale()
    yield from _extras()


def _entry_point() -> Iterator[Finding]:
    found = [point.value for point in entry_points(group=GROUP) if point.name == NAME]
    if not found:
        yield Finding(
            "installation.entry_point",
            "fail",
            "vLLM would not find adaptk: it is no installed package of this Python",
            f"there is no entry point {NAME} of group {GROUP}",
            "pip install adaptk into the environment that vLLM runs in",
        )
    elif set(found) != {ENTRY}:
        others = ", ".join(sorted(set(found) - {ENTRY}))
        what = f"another package calls itself {NAME} among vLLM's plugins: {others}"
        yield Finding("installation.entry_point", "warn", what, "which of them vLLM takes is by chance", "uninstall it")
    else:
        yield Finding("installation.entry_point", "ok", "vLLM finds adaptk among its plugins")


def _allowed(plugins: str | None) -> Iterator[Finding]:
    """Whether ``VLLM_PLUGINS``, where it is set, lets adaptk in; vLLM takes its names to the letter."""
    if plugins is None or NAME in plugins.split(","):
        return
    names = ",".join(name.strip() for name in plugins.split(",") if name.strip() not in ("", NAME))
    yield Finding(
        "installation.vllm_plugins",
        "fail",
        f"VLLM_PLUGINS={plugins!r} keeps adaptk out",
        "where it is set, vLLM loads the plugins that it names, and no others",
        f"set VLLM_PLUGINS={f'{names},{NAME}' if names else NAME}, or unset it",
    )


def _stale() -> Iterator[Finding]:
    try:
        installed = version(NAME)
    except PackageNotFoundError:
        return
    if installed != __version__:
        what = f"adaptk {__version__} is imported, and {installed} is what is installed"
        yield Finding("installation.version", "warn", what, "a folder in front of the package, or an old install",
                      "install it anew")  # fmt: skip


def _extras() -> Iterator[Finding]:
    missing = [package for package in _EXTRAS if find_spec(package) is None]
    if not missing:
        yield Finding("installation.extras", "ok", "the packages that commands and metrics need are there")
        return
    uses = "; ".join(f"{package} is for {_EXTRAS[package]}" for package in missing)
    what = f"not installed: {', '.join(missing)}"
    yield Finding("installation.extras", "note", what, uses, "pip install 'adaptk[tools]'")
