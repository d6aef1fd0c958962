"""Looks at vLLM from inside a process of its own: is it fit, and what would it make of these arguments."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adaptk.doctor.facts import Facts, Installed, Options, Question
from adaptk.doctor.rehearsal import Lines, rehearse
from adaptk.settings import PREFIX, Settings, SettingsError

# Its lines are read here, and shown to nobody.
_LOGGING = {"VLLM_CONFIGURE_LOGGING": "1", "VLLM_LOGGING_LEVEL": "INFO"}


def look(question: Question, tell: Callable[[str], None]) -> Facts:
    """Import vLLM and, where there are arguments, let it make its configuration of them; no engine is started.

    It changes this process: its environment, vLLM's classes, its loggers.

    Parameters
    ----------
    question
        What to look at.
    tell
        Called with what is being done.
    """
    for name in [name for name in os.environ if name == "ADAPTK" or name.startswith(PREFIX)]:
        del os.environ[name]
    os.environ |= {**question.variables, **_LOGGING}
    os.environ.pop("VLLM_LOGGING_CONFIG_PATH", None)
    tell("importing vLLM")
    try:
        installed = _installed()
    except Exception as error:  # whatever a broken installation raises
        return Facts(broken=f"{type(error).__name__}: {words(error)}")
    if installed.unfit is not None or not question.arguments:
        return Facts(installed=installed)
    tell("letting vLLM read the model's configuration")
    with Lines() as lines:
        try:
            config, options = _configured(question.arguments)
        except (Exception, SystemExit) as error:  # vLLM's refusals are of many kinds, and a hub's, too
            return Facts(installed=installed, refused=words(error))
        try:
            engine = rehearse(config, lines, question.table)
        except Exception as error:
            return Facts(installed=installed, options=options, fault=f"{type(error).__name__}: {words(error)}")
    return Facts(installed=installed, options=options, engine=engine)


def words(error: BaseException) -> str:
    """What an error says, without the frame that vLLM's checked configurations put around it.

    Examples
    --------
    >>> words(KeyError()), words(ValueError(" no such model "))
    ('KeyError', 'no such model')
    """
    reasons = getattr(error, "errors", None)
    if callable(reasons):
        with contextlib.suppress(TypeError, KeyError):
            found = [str(reason["msg"]).removeprefix("Value error, ") for reason in reasons()]
            if found:
                return "; ".join(found)
    return str(error).strip() or type(error).__name__


def _installed() -> Installed:
    from importlib.metadata import PackageNotFoundError, version

    from adaptk.vllm_plugin import compat

    unfit = compat.unfit_reason()
    if unfit is not None:  # what else it has may stand elsewhere, too
        return Installed(version=compat.vllm_version(), unfit=unfit)
    from vllm.platforms import current_platform

    try:
        version("vllm")  # the name that its command looks up, whatever its distribution is called
        serves = True
    except PackageNotFoundError:
        serves = False
    return Installed(
        version=compat.vllm_version(),
        platform=str(getattr(current_platform, "device_name", "") or current_platform.device_type),
        device=compat.device_name(),
        serves=serves,
    )


def _configured(arguments: Sequence[str]) -> tuple[Any, Options]:
    """vLLM's own configuration of the arguments, and what they say of adaptk."""
    from vllm.usage.usage_lib import UsageContext

    from adaptk.vllm_plugin import asked, patches, serveargs

    patches.apply()
    engine_args = serveargs.engine_args(arguments)
    additional = getattr(engine_args, "additional_config", None)
    options = Options()
    if isinstance(additional, Mapping) and asked.ENTRY in additional:
        kept, options = checked(additional[asked.ENTRY])
        engine_args.additional_config = {**additional, asked.ENTRY: kept}
    # As vllm serve does; how many requests fit follows from it.
    return engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER), options


def checked(entry: Any) -> tuple[dict[str, Any], Options]:
    """The entry for adaptk of ``additional_config`` without what is wrong in it, and what was found in it.

    In what is kept the mode is never off: what would be if adaptk were on is looked at.

    Examples
    --------
    >>> kept, found = checked({"budgte": 2, "mode": "off"})
    >>> kept, found.mode, found.wrong
    ({'mode': 'on'}, 'off', ('additional_config adaptk.budgte is not a setting of adaptk: did you mean budget?',))
    """
    options = entry if isinstance(entry, Mapping) else {}
    wrong = {name: found for name, value in options.items() if (found := _wrong({name: value}))}
    kept = {name: value for name, value in options.items() if name not in wrong}
    mode = Settings.from_config(kept, {}).mode
    if mode == "off":
        kept["mode"] = "on"
    sentences = wrong.values() if options is entry else (_wrong(entry),)
    return kept, Options(mode=mode, wrong=tuple(sentences))


def _wrong(options: Any) -> str:
    try:
        Settings.from_config(options, {})
    except SettingsError as error:
        return str(error)
    return ""
