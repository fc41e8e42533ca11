"""The datasets: found in a folder or downloaded, checked, handed over as tensors."""

from qneurons.study.data.datasets import ARRAYS, DATASETS, NUM_CLASSES, Dataset, load_dataset

__all__ = ["ARRAYS", "DATASETS", "NUM_CLASSES", "Dataset", "load_dataset"]
