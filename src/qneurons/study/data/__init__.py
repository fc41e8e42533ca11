"""The datasets: read from a folder or downloaded, checked, as tensors."""

from qneurons.study.data.datasets import ARRAYS, DATASETS, NUM_CLASSES, Dataset, load_dataset

__all__ = ["ARRAYS", "DATASETS", "NUM_CLASSES", "Dataset", "load_dataset"]
