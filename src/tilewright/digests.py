"""SHA-256 for keys and checks.

`hashlib` loads OpenSSL and lists what it has, which takes longer than Python's own code takes for all that a first call
hashes.  Where a program has loaded it already, its functions are the faster ones.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or "hashlib" in sys.modules:
    from hashlib import sha256
else:
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # a Python that was built with OpenSSL's alone
        from hashlib import sha256

__all__ = ["sha256"]
