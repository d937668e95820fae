"""How many objects there are, by class."""

import gc
from collections import Counter
from collections.abc import Mapping


def objects_of(*modules: str) -> dict[str, int]:
    """Those whose classes stand in these modules, or in modules below them, and which the garbage collector knows."""
    gc.collect()
    kinds = Counter(type(one) for one in gc.get_objects())
    return {
        f"{kind.__module__}.{kind.__qualname__}": count
        for kind, count in kinds.items()
        if str(kind.__module__).startswith(modules)
    }


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Those that are more, with both numbers. Two more are no growth: what is being made at the moment comes and goes."""
    return {
        kind: (before.get(kind, 0), count) for kind, count in after.items() if count > before.get(kind, 0) + 2
    }
