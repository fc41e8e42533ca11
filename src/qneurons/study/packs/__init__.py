"""Packs: many runs trained as one network on one device."""

from qneurons.study.packs.memory import fitting_pack as fitting_pack, free_bytes as free_bytes
from qneurons.study.packs.pack import PRECISIONS as PRECISIONS, Pack as Pack, computing as computing
