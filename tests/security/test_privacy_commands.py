"""What of a command line goes into tables, which people pass on."""

from __future__ import annotations

import re
import time

import pytest

from adaptk.profile.secrets import shown_command

SECRET = "S3cretValue0123456789"


@pytest.mark.parametrize(
    "part",
    [
        "--api-key=" + SECRET,
        f"--hf_token {SECRET}",
        f'--hf-overrides {{"hf_token":"{SECRET}"}}',
        f'--model-loader-extra-config {{"aws_secret_access_key":"{SECRET}","n":1}}',
        f'--kv-transfer-config {{"a":{{"password":"{SECRET}\\"{SECRET}"}}}}',
        f'--x {{"Api_Key":{SECRET}}}',
        f"--model https://user:{SECRET}@host/model",
        f"--download-dir s3://{SECRET}@bucket/model",
        f"--otlp-traces-endpoint http://host/path?x=1&token={SECRET}&y=2",
        f"hf_{SECRET}",
        f"--model-path=sk-{SECRET}",
    ],
)
def test_no_secret_is_passed_on(part: str) -> None:
    """Neither as an option's value nor inside one."""
    shown = shown_command(["adaptk", "profile", *part.split(" ", 1), "--port", "1"])
    assert SECRET not in shown
    assert shown.endswith("--port 1")


def test_what_is_no_secret_stays() -> None:
    """Numbers of tokens above all."""
    config = '{"num_speculative_tokens": 7, "mask_token_id": 5, "model": "org/name"}'
    shown = shown_command(["adaptk", "profile", "org/model", "--speculative-config", config, "--max-tokens", "64"])
    assert config in shown
    assert "org/model" in shown
    assert shown.endswith("--max-tokens 64")


def test_long_arguments_are_shown_at_once() -> None:
    """No pattern runs away on what it nearly fits."""
    began = time.process_time()
    for part in ('"token' * 20_000, "://" * 30_000, "?a" * 40_000, "hf_" * 30_000, '"secret": "\\' * 8_000):
        shown_command([part])
    assert time.process_time() - began < 20.0
    assert re.search("token", shown_command(["token"]))
