"""A CPU device of our own, whose programs run in the thread that calls them.

JAX hands every program but the shortest to another thread, and to wake that one up takes as long as a small solve. Whether it
does is settled when a client (a device with its threads) is made. The one that all others use is not ours to settle, so
solves have their own; whatever comes out of them is NumPy's.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import jax
from jaxlib import xla_client
from jaxlib.version import __version_info__

# How a client is made is no public matter: only releases it was tried with are asked.
_TRIED = {(0, 10)}
_elsewhere = contextlib.nullcontext()


def in_this_thread() -> contextlib.AbstractContextManager[Any]:
    """A context in which programs run where they are called; one that does nothing where devices were chosen or are many."""
    device = _device()
    if device is None or jax.default_device.value is not None:
        return _elsewhere
    return jax.default_device(device)


@cache
def _device() -> Any:
    """The device, made when it is first asked for; None where everything else runs on something larger than one CPU."""
    if __version_info__[:2] not in _TRIED or jax.default_backend() != "cpu" or jax.device_count() > 1:
        return None
    return xla_client.make_cpu_client(asynchronous=False).local_devices()[0]
