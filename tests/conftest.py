"""What every test shares: the processor as device, and examples drawn the same way on every run."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

# Set before JAX is first imported; the tests ask for no accelerator.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# As the driver compiles its programs (driver/compiled.py): half the time, and most of the suite is compilation.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"

# Python that a test starts finds what an earlier one compiled, also where the environment says not to keep it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parent.parent / ".pytest_cache" / "bytecode")

# No test asserts a time, so no example has a deadline. HYPOTHESIS_PROFILE=explore draws new examples each run.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
