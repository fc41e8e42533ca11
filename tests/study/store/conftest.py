"""A store that may only be read."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from tests.study.store.test_store import new, save


@pytest.fixture
def guarded():
    """A store whose files and folders may only be read, by someone who is not root."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name) / "store"
        store, origin = new(folder)
        save(store, origin, 1, 1)
        Path(name).chmod(0o755)
        paths = [folder, *folder.rglob("*")]
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
            stack.callback(path.chmod, 0o755)
        if os.geteuid() == 0:
            os.seteuid(65534)
            stack.callback(os.seteuid, 0)
        yield folder
