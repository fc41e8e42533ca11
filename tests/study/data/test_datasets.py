"""Datasets: digits whole; the others as small stand-ins in every kind of file, whole and wrong."""

import dataclasses
import gzip
import hashlib
import io
import re
import struct
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from qneurons.study.data import ARRAYS, DATASETS, load_dataset
from qneurons.study.errors import StudyError

NAMES = ("x_train", "y_train", "x_test", "y_test")
IDX = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


def arrays(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """A stand-in: ten training and four test images, labels that count from the seed."""
    draw = np.random.default_rng(seed)
    shape = (32, 32, 3) if name == "cifar10" else (28, 28)
    return {
        "x_train": draw.integers(0, 256, (10, *shape), np.uint8),
        "y_train": ((np.arange(10) + seed) % 10).astype(np.uint8),
        "x_test": draw.integers(0, 256, (4, *shape), np.uint8),
        "y_test": ((np.arange(4) + seed) % 10).astype(np.uint8),
    }


def write_npz(folder, name, **changes):
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", **{**arrays(name), **changes})


def idx(array: np.ndarray) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_idx(folder, stand_in, suffix=""):
    folder.mkdir(exist_ok=True)
    for stem, array in zip(IDX, stand_in.values(), strict=True):
        content = gzip.compress(idx(array), mtime=0) if suffix else idx(array)
        (folder / f"{stem}{suffix}").write_bytes(content)


def cifar_batches(stand_in) -> list[bytes]:
    rows = [
        np.concatenate([y[:, None], x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1)
        for x, y in ((stand_in[f"x_{s}"], stand_in[f"y_{s}"]) for s in ("train", "test"))
    ]
    return [*(rows[0][i : i + 2].tobytes() for i in range(0, 10, 2)), rows[1].tobytes()]


def write_cifar_tar(path, batches):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in zip(BATCHES, batches, strict=True):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The table with the sizes of the stand-ins, without checksums, and without a network."""
    for seed, name in enumerate(("mnist", "fashion-mnist", "cifar10")):
        labels = ["".join(map(str, arrays(name, seed)[y])) for y in ("y_train", "y_test")]
        changes = {"num_train": 10, "num_test": 4, "first_labels": tuple(labels)}
        change(monkeypatch, name, checksums={}, urls=(), **changes)


def test_the_last_training_images_are_held_out(tmp_path):
    write_npz(tmp_path, "mnist")
    whole = load_dataset("mnist", tmp_path)
    assert whole.holding_out(0) is whole
    part = whole.holding_out(3)
    for test, train, both in [
        (part.x_test, part.x_train, whole.x_train),
        (part.y_test, part.y_train, whole.y_train),
    ]:
        assert torch.equal(torch.cat([train, test]), both)
        assert len(test) == 3
    assert part.fingerprint == whole.fingerprint  # it is that of the files


def change(monkeypatch, name, **changes):
    monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], **changes))


def check(dataset, stand_in):
    channels = 3 if dataset.name == "cifar10" else 1
    for name, array in stand_in.items():
        tensor = getattr(dataset, name)
        assert tensor.device.type == "cpu"
        assert tensor.is_contiguous()
        if name.startswith("x"):
            assert tensor.dtype == torch.uint8
            array = array.reshape(*array.shape[:3], channels).transpose(0, 3, 1, 2)
        else:
            assert tensor.dtype == torch.int64
        np.testing.assert_array_equal(tensor.numpy(), array)


def expect(message, name, folder):
    with pytest.raises(StudyError, match=re.escape(message)) as error:
        load_dataset(name, folder)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("sklearn")
    return load_dataset("digits")


class TestDigits:
    def test_shapes(self, digits):
        assert digits.x_train.shape == (1200, 1, 28, 28)
        assert digits.x_test.shape == (597, 1, 28, 28)
        assert digits.x_train.dtype == torch.uint8
        assert digits.y_train.dtype == digits.y_test.dtype == torch.int64
        assert int(digits.x_train.max()) == 255
        assert int(digits.x_train.min()) == 0

    def test_are_the_same_everywhere_and_for_good(self, digits):
        assert digits.fingerprint == "76682368729e81a3"

    def test_are_scikit_learns_scaled_and_each_in_one_part(self, digits):
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images = torch.from_numpy(bunch.images)[:, None]
        scaled = F.interpolate(images, size=28, mode="bilinear", align_corners=False) * 255 / 16
        ours = torch.cat([digits.x_train, digits.x_test]).flatten(1).double()
        labels = torch.cat([digits.y_train, digits.y_test])
        distance = torch.cdist(ours, scaled.flatten(1), p=torch.inf)
        nearest = distance.argmin(dim=1)
        assert distance.amin(dim=1).max() <= 0.5 + 1e-9  # rounding alone
        assert sorted(nearest.tolist()) == list(range(1797))
        assert labels.tolist() == bunch.target[nearest].tolist()

    def test_every_class_is_in_both_parts_about_alike(self, digits):
        assert (digits.y_train.bincount() - 120).abs().max() < 20
        assert (digits.y_test.bincount() - 60).abs().max() < 20

    def test_without_scikit_learn(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        expect("pip install 'qneurons[study]'", "digits", None)


class TestLocalFiles:
    @pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
    @pytest.mark.parametrize("place", ["", "own"])
    def test_npz(self, tmp_path, name, place):
        write_npz(tmp_path / (place and name), name)
        check(load_dataset(name, tmp_path), arrays(name))

    def test_npz_with_what_else_keras_gives(self, tmp_path):
        stand_in = arrays("cifar10")
        labels = {y: stand_in[y].reshape(-1, 1).astype(np.int64) for y in ("y_train", "y_test")}
        write_npz(tmp_path, "cifar10", **labels)
        check(load_dataset("cifar10", tmp_path), stand_in)
        write_npz(tmp_path, "mnist", x_train=arrays("mnist")["x_train"][..., None])
        check(load_dataset("mnist", tmp_path), arrays("mnist"))

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_idx(self, tmp_path, suffix):
        write_idx(tmp_path, arrays("mnist"), suffix)
        check(load_dataset("mnist", tmp_path), arrays("mnist"))

    def test_mnist_and_fashion_mnist_are_told_apart(self, tmp_path, monkeypatch):
        write_idx(tmp_path, arrays("mnist"))
        write_idx(tmp_path / "fashion-mnist", arrays("fashion-mnist", seed=1))
        check(load_dataset("mnist", tmp_path), arrays("mnist"))
        check(load_dataset("fashion-mnist", tmp_path), arrays("fashion-mnist", seed=1))

        write_idx(tmp_path / "fashion-mnist", arrays("mnist"))
        expect("0123456789, expected 1234567890 for fashion-mnist", "fashion-mnist", tmp_path)

    def test_the_other_datasets_files_are_passed_by(self, tmp_path, monkeypatch):
        write_idx(tmp_path, arrays("mnist"), ".gz")
        asked = []
        monkeypatch.setattr(
            "qneurons.study.data.datasets.download",
            lambda checksums, folder, **options: asked.append(folder) or stop(),
        )
        with pytest.raises(StopIteration):
            load_dataset("fashion-mnist", tmp_path)
        assert asked == [tmp_path / "fashion-mnist"]

    @pytest.mark.parametrize("place", ["", "cifar-10-batches-bin"])
    def test_cifar_unpacked(self, tmp_path, place):
        (tmp_path / place).mkdir(exist_ok=True)
        for file, batch in zip(BATCHES, cifar_batches(arrays("cifar10")), strict=True):
            (tmp_path / place / file).write_bytes(batch)
        check(load_dataset("cifar10", tmp_path), arrays("cifar10"))

    def test_cifar_archive(self, tmp_path):
        write_cifar_tar(tmp_path / "cifar-10-binary.tar.gz", cifar_batches(arrays("cifar10")))
        check(load_dataset("cifar10", tmp_path), arrays("cifar10"))
        assert len(list(tmp_path.iterdir())) == 1  # nothing was unpacked

    def test_the_fingerprint_is_of_the_content_not_of_the_file(self, tmp_path):
        write_npz(tmp_path / "a", "mnist")
        write_idx(tmp_path / "b", arrays("mnist"))
        changed = arrays("mnist")["x_test"].copy()
        changed[3, 27, 27] ^= 1
        write_npz(tmp_path / "c", "mnist", x_test=changed)
        a, b, c = (load_dataset("mnist", tmp_path / folder).fingerprint for folder in "abc")
        assert a == b != c
        assert re.fullmatch("[0-9a-f]{16}", a)

    def test_the_default_folder_is_in_the_users_cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        write_npz(tmp_path / "qneurons", "mnist")
        check(load_dataset("mnist"), arrays("mnist"))


def stop():
    raise StopIteration


class TestWrongFiles:
    def test_unknown_dataset(self):
        expect("dataset 'mnsit'; did you mean 'mnist'?", "mnsit", None)

    def test_folder_that_is_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        expect("file is a file; give a folder with --data-dir", "mnist", tmp_path / "file")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"x_train": np.zeros((9, 28, 28), np.uint8)}, "x_train: uint8 [9, 28, 28], expected"),
            ({"x_test": np.zeros((4, 32, 32), np.uint8)}, "expected uint8 [4, 28, 28]"),
            ({"x_train": np.zeros((10, 784), np.uint8)}, "x_train: uint8 [10, 784]"),
            ({"x_train": np.zeros((10, 28, 28), np.float32)}, "x_train: float32 [10, 28, 28]"),
            ({"y_train": np.zeros(10, np.float32)}, "y_train: float32 [10], expected integers"),
            ({"y_train": np.zeros((10, 10), np.uint8)}, "y_train: uint8 [10, 10], expected"),
            ({"y_test": np.zeros(5, np.uint8)}, "y_test: uint8 [5], expected integers [4]"),
            ({"y_test": np.array([0, 1, 2, 10])}, "y_test: labels from 0 to 10, expected 0 to 9"),
            ({"y_test": np.array([0, 1, 2, -1])}, "y_test: labels from -1 to 2, expected 0 to 9"),
        ],
    )
    def test_npz(self, tmp_path, changes, message):
        write_npz(tmp_path, "mnist", **changes)
        assert expect(message, "mnist", tmp_path).startswith(str(tmp_path / "mnist.npz"))

    def test_npz_truncated(self, tmp_path):
        write_npz(tmp_path, "mnist")
        path = tmp_path / "mnist.npz"
        path.write_bytes(path.read_bytes()[:-100])
        expect(f"cannot read {path}: ", "mnist", tmp_path)

    def test_npz_of_something_else(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "mnist.npz", "w") as archive:
            for name in ARRAYS:
                archive.writestr(f"{name}.npy", "hello")
        words = f"cannot read {tmp_path / 'mnist.npz'}: x_train in it is not an array"
        expect(words, "mnist", tmp_path)

    def test_idx_of_another_size(self, tmp_path):
        write_idx(tmp_path, {**arrays("mnist"), "x_test": np.zeros((3, 28, 28), np.uint8)})
        path = tmp_path / IDX[2]
        expect(f"{path}: uint8 [3, 28, 28], expected uint8 [4, 28, 28]", "mnist", tmp_path)

    def test_idx_checksum(self, tmp_path, monkeypatch):
        write_idx(tmp_path, arrays("mnist"), ".gz")
        files = {f"{stem}.gz": (tmp_path / f"{stem}.gz").read_bytes() for stem in IDX}
        sums = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in files.items()}
        change(monkeypatch, "mnist", checksums=sums)
        check(load_dataset("mnist", tmp_path), arrays("mnist"))
        path = tmp_path / f"{IDX[2]}.gz"
        path.write_bytes(gzip.compress(idx(arrays("mnist", seed=5)["x_test"])))
        message = expect(f"cannot read {path}: ", "mnist", tmp_path)
        assert f"expected the published {sums[path.name].removeprefix('md5:')}" in message

    def test_cifar_archive_checksum(self, tmp_path, monkeypatch):
        change(monkeypatch, "cifar10", checksums={"cifar-10-binary.tar.gz": f"md5:{'0' * 32}"})
        write_cifar_tar(tmp_path / "cifar-10-binary.tar.gz", cifar_batches(arrays("cifar10")))
        expect("expected the published 00000000", "cifar10", tmp_path)

    def test_cifar_truncated(self, tmp_path):
        batches = cifar_batches(arrays("cifar10"))
        batches[3] = batches[3][:-1]
        write_cifar_tar(tmp_path / "cifar-10-binary.tar.gz", batches)
        expect("data_batch_4.bin: 6145 bytes, expected 6146; replace", "cifar10", tmp_path)

    def test_cifar_labels(self, tmp_path):
        batches = cifar_batches(arrays("cifar10"))
        batches[-1] = b"\x0b" + batches[-1][1:]
        write_cifar_tar(tmp_path / "cifar-10-binary.tar.gz", batches)
        expect("test labels: labels from 1 to 11, expected 0 to 9", "cifar10", tmp_path)


class TestDownload:
    @pytest.fixture
    def offline(self, monkeypatch):
        """Addresses at a port of this machine where nobody listens."""
        pytest.importorskip("pooch")
        monkeypatch.setenv("no_proxy", "*")
        for name in ("mnist", "cifar10"):
            file = {"mnist": "mnist.npz", "cifar10": "cifar-10-binary.tar.gz"}[name]
            url = f"http://127.0.0.1:1/{file}"
            change(monkeypatch, name, urls=(url,), checksums={file: "md5:0", "other.gz": "md5:0"})

    @pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
    def test_is_asked_for_with_address_checksum_and_folder(self, tmp_path, monkeypatch, name):
        monkeypatch.undo()  # the table as it is
        calls = []

        def download(checksums, folder, *, progress, remedy):
            calls.append((checksums, folder, progress))
            assert f"put {name}.npz" in remedy
            stop()

        monkeypatch.setattr("qneurons.study.data.datasets.download", download)
        with pytest.raises(StopIteration):
            load_dataset(name, tmp_path, progress=True)
        ((checksums, folder, progress),) = calls
        assert (folder, progress) == (tmp_path / name, True)
        assert len(checksums) == {"fashion-mnist": 4}.get(name, 1)
        for url, checksum in checksums.items():
            assert re.fullmatch(r"https://[^/]+/.+\.(npz|gz)", url)
            assert re.fullmatch("sha256:[0-9a-f]{64}", checksum)

    @pytest.mark.parametrize(
        ("name", "write"),
        [
            ("mnist", lambda folder: write_npz(folder, "mnist")),
            ("fashion-mnist", lambda folder: write_idx(folder, arrays("mnist", seed=1), ".gz")),
            (
                "cifar10",
                lambda folder: write_cifar_tar(
                    folder / "cifar-10-binary.tar.gz", cifar_batches(arrays("cifar10"))
                ),
            ),
        ],
    )
    def test_what_is_downloaded_is_what_is_read(self, tmp_path, monkeypatch, name, write):
        def download(checksums, folder, **options):
            folder.mkdir()
            write(folder)

        monkeypatch.setattr("qneurons.study.data.datasets.download", download)
        check(load_dataset(name, tmp_path), arrays(name, seed=name == "fashion-mnist"))

    def test_offline_the_message_has_the_remedy(self, tmp_path, offline):
        message = expect("cannot download http://127.0.0.1:1/mnist.npz", "mnist", tmp_path)
        assert "Connection refused" in message
        for part in ("mnist.npz", "(x_train, y_train, x_test, y_test)", "(other.gz)", "--data-dir"):
            assert part in message
        assert f"into {tmp_path}" in message

    @pytest.mark.parametrize("place", ["cifar-10-batches-py", "cifar-10-python.tar.gz"])
    def test_the_pickles_of_cifar_are_not_read(self, tmp_path, offline, place):
        assert "holds pickles" not in expect("cannot download", "cifar10", tmp_path)
        (tmp_path / place).mkdir()
        expect("pickles, which are not read", "cifar10", tmp_path)
        assert "holds pickles" not in expect("cannot download", "mnist", tmp_path)
