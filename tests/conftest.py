"""Settings of the test process that must be made before torch is imported anywhere."""

from __future__ import annotations

import os

# Threads that spin while they wait cost a factor of ten where several processes share few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
