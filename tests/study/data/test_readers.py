"""Files of datasets, whole and damaged."""

import contextlib
import gzip
import hashlib
import io
import pickle
import random
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest

from qneurons.study.data import readers
from qneurons.study.data.readers import check_sum, one_line, read_idx, read_npz, read_tar, reading
from qneurons.study.errors import StudyError

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def idx(array: np.ndarray) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def expect(message, read, *arguments):
    with pytest.raises(StudyError) as error:
        read(*arguments)
    assert message in str(error.value)
    assert str(error.value).startswith(f"cannot read {arguments[0]}: ")
    assert "replace the file" in str(error.value)
    assert "\n" not in str(error.value)


class TestIdx:
    def test_plain_and_compressed(self, tmp_path):
        (tmp_path / "a").write_bytes(idx(ARRAY))
        (tmp_path / "a.gz").write_bytes(gzip.compress(idx(ARRAY)))
        for name in ("a", "a.gz"):
            np.testing.assert_array_equal(read_idx(tmp_path / name), ARRAY)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "expected 00 00 08"),
            (b"\0\0\x08", "index out of range"),
            (b"\x89PNG....", "89 50 4e 47, expected 00 00 08"),
            (b"\0\0\x0d\1\0\0\0\0", "00 00 0d 01"),  # floats
            (idx(ARRAY)[:-1], "39 bytes, expected 40"),
            (idx(ARRAY) + b"x", "41 bytes, expected 40"),
            (idx(ARRAY)[:9], "buffer is smaller than requested size"),
            (b"\0\0\x08\2" + b"\xff" * 8, "12 bytes, expected"),
        ],
    )
    def test_damaged(self, tmp_path, content, message):
        (tmp_path / "a").write_bytes(content)
        expect(message, read_idx, tmp_path / "a")

    def test_damaged_gz(self, tmp_path):
        path = tmp_path / "a.gz"
        whole = gzip.compress(idx(ARRAY))
        for content, message in (
            (whole[:-9], "ended before the end-of-stream marker"),
            (whole[:-5] + b"x" + whole[-4:], "CRC check failed"),
            (idx(ARRAY), "Not a gzipped file"),
        ):
            path.write_bytes(content)
            expect(message, read_idx, path)


def test_a_small_file_that_holds_too_much_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MOST_BYTES", 2**20)
    zeros = np.zeros(2**23, np.uint8)
    (tmp_path / "a").write_bytes(idx(zeros))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(zeros)))
    np.savez_compressed(tmp_path / "a.npz", a=zeros)
    tracemalloc.start()
    for read, name, *names in ((read_idx, "a"), (read_idx, "a.gz"), (read_npz, "a.npz", ["a"])):
        expect("holds more than 1,048,576 bytes", read, tmp_path / name, *names)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**23


class TestChecksum:
    def test_right_wrong_and_unknown(self, tmp_path):
        path = tmp_path / "a"
        path.write_bytes(idx(ARRAY))
        for algorithm in ("md5", "sha256"):
            right = hashlib.new(algorithm, idx(ARRAY)).hexdigest()
            check_sum(path, f"{algorithm}:{right}")
            wrong = "0" * len(right)
            message = f"{algorithm} is {right}, expected the published {wrong}"
            expect(message, read_idx, path, f"{algorithm}:{wrong}")
        check_sum(path, None)


class TestNpz:
    def test_the_named_arrays_in_order(self, tmp_path):
        np.savez(tmp_path / "a.npz", one=ARRAY, two=ARRAY + 1, three=ARRAY + 2)
        three, one = read_npz(tmp_path / "a.npz", ["three", "one"])
        np.testing.assert_array_equal(three, ARRAY + 2)
        np.testing.assert_array_equal(one, ARRAY)

    def test_a_size_that_no_computer_has(self, tmp_path):
        header = {"descr": "|u1", "fortran_order": False, "shape": (10**20,)}
        array = io.BytesIO()
        np.lib.format.write_array_header_1_0(array, header)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("a.npy", array.getvalue())
        expect("too large", read_npz, tmp_path / "a.npz", ["a"])

    def test_missing_arrays(self, tmp_path):
        np.savez(tmp_path / "a.npz", one=ARRAY)
        expect("one, expected one, two", read_npz, tmp_path / "a.npz", ["one", "two"])

    def test_a_pickle_is_refused_and_not_run(self, tmp_path):
        class Harm:
            def __reduce__(self):
                return (tmp_path / "harm").touch, ()

        np.savez(tmp_path / "a.npz", one=np.array([Harm()], dtype=object))
        expect("Object arrays cannot be loaded", read_npz, tmp_path / "a.npz", ["one"])
        (tmp_path / "b.npz").write_bytes(pickle.dumps(Harm()))
        expect("not a NumPy archive", read_npz, tmp_path / "b.npz", ["one"])
        assert not (tmp_path / "harm").exists()

    def test_not_an_archive(self, tmp_path):
        np.save(tmp_path / "a.npy", ARRAY)
        path = (tmp_path / "a.npy").rename(tmp_path / "a.npz")
        expect("not a NumPy archive", read_npz, path, ["one"])
        path.write_bytes(b"")
        expect("not a NumPy archive", read_npz, path, ["one"])

    def test_any_damage_is_one_error(self, tmp_path):
        path = tmp_path / "a.npz"
        np.savez_compressed(path, one=ARRAY, two=ARRAY)
        whole = path.read_bytes()
        draw = random.Random(0)
        seen = 0
        for _ in range(300):
            content = bytearray(whole)
            content[draw.randrange(len(content))] = draw.randrange(256)
            path.write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
            with contextlib.suppress(StudyError):
                assert all((array == ARRAY).all() for array in read_npz(path, ["one", "two"]))
                seen += 1
        assert 10 < seen < 200  # a byte of a time stamp does no harm


class TestTar:
    def write(self, path, files):
        with tarfile.open(path, "w:gz") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))

    def test_the_named_files_in_order(self, tmp_path):
        path = tmp_path / "a.tar.gz"
        self.write(path, {"d/one": b"1", "d/two": b"22", "../up": b"x"})
        assert read_tar(path, ["d/two", "d/one"]) == [b"22", b"1"]
        assert sorted(tmp_path.iterdir()) == [path]

    def test_damaged(self, tmp_path):
        path = tmp_path / "a.tar.gz"
        self.write(path, {"one": random.Random(0).randbytes(5000)})
        expect("filename 'two' not found", read_tar, path, ["one", "two"])
        expect("md5", read_tar, path, ["one"], "md5:0")
        whole = path.read_bytes()
        path.write_bytes(whole[:2000])
        expect("", read_tar, path, ["one"])
        path.write_bytes(whole[10:])
        expect("", read_tar, path, ["one"])


def test_the_innermost_error_on_one_line(tmp_path):
    assert one_line(EOFError()) == "EOFError"
    with pytest.raises(StudyError, match="No such file or directory"), reading(tmp_path):
        (tmp_path / "none").read_bytes()
    with pytest.raises(StudyError, match="cannot read there: the cause, in two lines;"):  # noqa: SIM117
        with reading("there"):
            raise ValueError("the wrapping") from OSError("the cause,\n in two lines")
    with pytest.raises(ZeroDivisionError), reading(tmp_path):  # a mistake of ours is no damage
        1 / 0  # noqa: B018
