"""``python -m adaptk`` is the command ``adaptk``."""

from adaptk.cli.main import main

raise SystemExit(main())
