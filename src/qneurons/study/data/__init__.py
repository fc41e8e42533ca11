"""The datasets: read from a folder or downloaded, checked, as tensors."""

from qneurons.study.data.augmentation import (
    NUM_DRAWS as NUM_DRAWS,
    move as move,
    parse_augmentation as parse_augmentation,
)
from qneurons.study.data.datasets import (
    ARRAYS as ARRAYS,
    DATASETS as DATASETS,
    NUM_CLASSES as NUM_CLASSES,
    Dataset as Dataset,
    load_dataset as load_dataset,
)
