"""The datasets: where they come from, their checks, and their tensors."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qneurons.study.data.download import download
from qneurons.study.data.readers import Array, read_idx, read_npz, read_tar, reading
from qneurons.study.errors import StudyError, install, unknown

NUM_CLASSES = 10
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_IDX = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
_CIFAR = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
_CIFAR_FOLDER, _CIFAR_ARCHIVE = "cifar-10-batches-bin", "cifar-10-binary.tar.gz"

Found = list[tuple[str, Array]]  # the four ARRAYS as Keras has them, each with its file's name


@dataclass(frozen=True)
class Dataset:
    """Images as uint8 N × channels × H × W and labels as int64, on the CPU."""

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    fingerprint: str  # a hash of the four arrays; the same whichever files they came from

    def holding_out(self, num: int) -> "Dataset":
        """Without the test set: the last ``num`` training images take its place, unless 0."""
        if not num:
            return self
        split = len(self.y_train) - num
        (x_train, x_test), (y_train, y_test) = (
            (values[:split], values[split:]) for values in (self.x_train, self.y_train)
        )
        return dataclasses.replace(
            self, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test
        )


@dataclass(frozen=True)
class DatasetInfo:
    """The size of a dataset, the functions that read it from a folder, and its URLs."""

    readers: tuple[Callable[[str, Path], Found | None], ...]  # None: not in this folder
    num_train: int
    num_test: int
    shape: tuple[int, int, int] = (1, 28, 28)  # channels, height, width
    urls: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)  # published ones, by file name
    first_labels: tuple[str, str] = ("", "")  # of training and test: MNIST or Fashion-MNIST?


def load_dataset(name: str, data_dir: Path | None = None, *, progress: bool = False) -> Dataset:
    """Reads a dataset from ``data_dir`` or its subfolder ``name``, or downloads it to the latter.

    By default ``data_dir`` is ``qneurons`` in the user's cache folder. With ``progress`` a download
    draws a bar on stderr.
    """
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    folder = Path(data_dir or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "qneurons"))
    folder = folder.expanduser()
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"the data folder {folder} is a file", "give a folder with --data-dir")
    found = _search(name, folder)
    if found is None:
        _download(name, folder, progress=progress)
        found = _search(name, folder)
        assert found is not None, f"no reader of {name} reads the file that was downloaded"
    info = DATASETS[name]
    x_train, y_train, x_test, y_test = found
    tensors = (
        _images(*x_train, info.num_train, info.shape),
        _labels(*y_train, info.num_train),
        _images(*x_test, info.num_test, info.shape),
        _labels(*y_test, info.num_test),
    )
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(tensor.numpy().data)
    return Dataset(name, *tensors, fingerprint=digest.hexdigest()[:16])


def _search(name: str, folder: Path) -> Found | None:
    # The dataset's own subfolder first: the files of MNIST and Fashion-MNIST have equal names.
    places = (folder / name, folder)
    tries = (read(name, place) for read in DATASETS[name].readers for place in places)
    return next((found for found in tries if found is not None), None)


def _download(name: str, folder: Path, *, progress: bool) -> None:
    info = DATASETS[name]
    originals = ", ".join(file for file in info.checksums if not file.endswith(".npz"))
    remedy = (
        f"put {name}.npz as Keras has it ({', '.join(ARRAYS)}) or the original files "
        f"({originals}) into {folder}, or give the folder that has them with --data-dir"
    )
    pickles = ("cifar-10-python.tar.gz", "cifar-10-batches-py")
    if name == "cifar10" and any((folder / file).exists() for file in pickles):
        remedy += "; the Python version in that folder holds pickles, which are not read"
    checksums = {url: info.checksums[url.rpartition("/")[2]] for url in info.urls}
    download(checksums, folder / name, progress=progress, remedy=remedy)


def _images(where: str, array: Array, count: int, shape: tuple[int, int, int]) -> Tensor:
    channels, *size = shape
    allowed = [(count, *size, channels)] if channels > 1 else [(count, *size), (count, *size, 1)]
    right = array.dtype == np.uint8 and array.shape in allowed
    _expect(right, where, f"{array.dtype} {list(array.shape)}", f"uint8 {list(allowed[0])}")
    images = np.moveaxis(array.reshape(count, *size, channels), -1, 1)
    return torch.from_numpy(np.array(images, order="C"))


def _labels(where: str, array: Array, count: int) -> Tensor:
    right = array.dtype.kind in "iu" and array.shape in ((count,), (count, 1))
    _expect(right, where, f"{array.dtype} {list(array.shape)}", f"integers [{count}]")
    low, high = array.min(), array.max()
    right = 0 <= low <= high < NUM_CLASSES
    _expect(right, where, f"labels from {low} to {high}", f"0 to {NUM_CLASSES - 1}")
    return torch.from_numpy(array.reshape(count).astype(np.int64))


def _expect(right: bool, where: object, found: str, expected: str) -> None:
    if not right:
        raise StudyError(f"{where}: {found}, expected {expected}", "replace the file")


def _read_digits(name: str, place: Path) -> Found:
    """scikit-learn's 8×8 images, scaled to 28×28 and split in the same way everywhere."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise StudyError(
            "the dataset digits comes with scikit-learn, which is not installed",
            install(),
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    # Bilinear from 8 to 28 pixels: the new centres are at (4 i - 5) / 14 old pixels. In integers,
    # because exact halves are common here and floats may round them either way.
    centres = (4 * np.arange(28) - 5).clip(0, 7 * 14)
    weights = (14 - abs(centres[:, None] - 14 * np.arange(8))).clip(0)
    whole = 16 * 14 * 14  # 16 is white
    scaled = weights @ pixels.reshape(-1, 8, 8).astype(np.int64) @ weights.T
    images = ((scaled * 255 + whole // 2) // whole).astype(np.uint8)

    # Ordered by a hash: no random generator promises the same permutation in every version.
    order = sorted(range(len(labels)), key=lambda i: hashlib.sha256(b"%d" % i).digest())
    split = DATASETS[name].num_train
    train, test = order[:split], order[split:]
    arrays = (images[train], labels[train], images[test], labels[test])
    return [(f"{name}, {array}", values) for array, values in zip(ARRAYS, arrays, strict=True)]


def _read_npz(name: str, place: Path) -> Found | None:
    path = place / f"{name}.npz"
    if not path.exists():
        return None
    arrays = read_npz(path, ARRAYS)
    return [(f"{path}, {array}", values) for array, values in zip(ARRAYS, arrays, strict=True)]


def _read_idx(name: str, place: Path) -> Found | None:
    suffixes = [".gz" if (place / f"{stem}.gz").exists() else "" for stem in _IDX]
    paths = [place / f"{stem}{suffix}" for stem, suffix in zip(_IDX, suffixes, strict=True)]
    if not all(path.exists() for path in paths):
        return None
    info = DATASETS[name]
    for path, first in zip(paths[1::2], info.first_labels, strict=True):
        begin = "".join(str(label) for label in read_idx(path).flat[: len(first)])
        if begin != first and place.name != name:
            return None  # files of the other dataset with these names
        _expect(begin == first, path, f"the first labels are {begin}", f"{first} for {name}")
    arrays = [read_idx(path, info.checksums.get(path.name)) for path in paths]
    return [(str(path), array) for path, array in zip(paths, arrays, strict=True)]


def _read_cifar(name: str, place: Path) -> Found | None:
    """The binary version, unpacked or in its archive."""
    info = DATASETS[name]
    archive = place / _CIFAR_ARCHIVE
    for where in (place / _CIFAR_FOLDER, place):
        if all((where / file).exists() for file in _CIFAR):
            with reading(where):
                batches = [(where / file).read_bytes() for file in _CIFAR]
            break
    else:
        if not archive.exists():
            return None
        where, members = archive, [f"{_CIFAR_FOLDER}/{file}" for file in _CIFAR]
        batches = read_tar(archive, members, info.checksums.get(archive.name))

    width = 1 + math.prod(info.shape)  # a label, then the red, green and blue pixels
    counts = [info.num_train // 5] * 5 + [info.num_test]
    for file, batch, count in zip(_CIFAR, batches, counts, strict=True):
        size = count * width
        _expect(len(batch) == size, f"{where}, {file}", f"{len(batch)} bytes", str(size))
    found = []
    for split, parts in (("train", batches[:-1]), ("test", batches[-1:])):
        rows = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, width)
        images = np.moveaxis(rows[:, 1:].reshape(-1, *info.shape), 1, -1)
        found += [(f"{where}, {split} images", images), (f"{where}, {split} labels", rows[:, 0])]
    return found


def _idx_sums(*sums: str) -> dict[str, str]:
    return {f"{stem}.gz": f"sha256:{sum}" for stem, sum in zip(_IDX, sums, strict=True)}


_KERAS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_FASHION = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"
_CIFAR_SUM = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo((_read_digits,), 1_200, 597),
    "mnist": DatasetInfo(
        (_read_npz, _read_idx),
        *(60_000, 10_000),
        urls=(f"{_KERAS}mnist.npz",),
        checksums={
            "mnist.npz": "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
            **_idx_sums(
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        },
        first_labels=("5041921314", "7210414959"),
    ),
    "fashion-mnist": DatasetInfo(
        (_read_npz, _read_idx),
        *(60_000, 10_000),
        urls=tuple(f"{_FASHION}{stem}.gz" for stem in _IDX),
        checksums=_idx_sums(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        first_labels=("9003027255", "9211614657"),
    ),
    "cifar10": DatasetInfo(
        (_read_npz, _read_cifar),
        *(50_000, 10_000),
        shape=(3, 32, 32),
        urls=(f"https://www.cs.toronto.edu/~kriz/{_CIFAR_ARCHIVE}",),
        checksums={_CIFAR_ARCHIVE: f"sha256:{_CIFAR_SUM}"},
    ),
}
