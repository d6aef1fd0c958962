"""How NumPy reckons in adaptk, whatever the process around it has asked for."""

from __future__ import annotations

import numpy as np

# A chance too small for a number is 0, also where ``numpy.seterr`` would have that raise. A decorator for what draws or
# updates a belief.
vanishing_is_zero = np.errstate(under="ignore")
