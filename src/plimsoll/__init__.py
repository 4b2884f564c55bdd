"""Plimsoll: Kubernetes' node-level resource management, explained and enforced.

The rules as a library: `from plimsoll import explain, plan, qos_class, Quantity` (docs/library.md). Names are imported
on first use, so that the command line starts no slower.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plimsoll.errors import PlimsollError
    from plimsoll.library import explain, plan, qos_class
    from plimsoll.rules.explain.explanation import Explanation
    from plimsoll.rules.explain.plan import PodPlan
    from plimsoll.rules.quantity import Quantity

__version__ = "0.1.0"

__all__ = ["Explanation", "PlimsollError", "PodPlan", "Quantity", "__version__", "explain", "plan", "qos_class"]

_MODULES = {
    "Explanation": "plimsoll.rules.explain.explanation",
    "PlimsollError": "plimsoll.errors",
    "PodPlan": "plimsoll.rules.explain.plan",
    "Quantity": "plimsoll.rules.quantity",
    "explain": "plimsoll.library",
    "plan": "plimsoll.library",
    "qos_class": "plimsoll.library",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
