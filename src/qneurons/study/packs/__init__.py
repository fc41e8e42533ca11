"""Packs: many runs trained as one network on one device."""

from qneurons.study.packs.memory import fitting_pack, free_bytes
from qneurons.study.packs.pack import PRECISIONS, Pack, computing

__all__ = ["PRECISIONS", "Pack", "computing", "fitting_pack", "free_bytes"]
