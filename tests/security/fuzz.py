"""Damages files for as long as one likes: ``python -m tests.security.fuzz --minutes 10 [--reader NAME] [--seed N]``.

Each reader gets the same time. What a reader may not raise, and messages that may not be shown, are printed with the
seed that makes them again; the status is 1 then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

from tests.security.damage import damage
from tests.security.readers import READERS, Reader
from tests.security.test_parsers import check_words


def example(reader: Reader, path: Path, seed: int) -> str | None:
    """What is wrong with what a reader makes of the damage that a seed does; ``None``: nothing."""
    random = Random(seed)
    path.write_bytes(damage(random.choice(reader.valid()), random))
    try:
        reader.read(path)
    except reader.refuses as error:
        try:
            check_words(error, path)
        except AssertionError as wrong:
            return f"its message: {str(wrong)[:200]}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]!r} at {Path(place.filename).name}:{place.lineno}"
    return None


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--reader", choices=[reader.name for reader in READERS], action="append")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    chosen = [reader for reader in READERS if arguments.reader is None or reader.name in arguments.reader]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for reader in chosen:
            seed, slowest, found = arguments.seed, (0.0, 0), dict[str, int]()
            end = time.monotonic() + 60.0 * arguments.minutes / len(chosen)
            while time.monotonic() < end:
                began = time.process_time()
                fault = example(reader, Path(folder) / reader.file, seed)
                slowest = max(slowest, (time.process_time() - began, seed))
                if fault is not None:
                    found.setdefault(fault, seed)
                seed += 1
            print(f"{reader.name}: {seed - arguments.seed} files, the slowest {slowest[0]:.2f} s (seed {slowest[1]})")
            for fault, first in found.items():
                print(f"  seed {first}: {fault}")
            wrong += len(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
