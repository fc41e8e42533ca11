"""Downloads files, with checksums, a progress bar and clear errors."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from qneurons.study.data.readers import one_line
from qneurons.study.errors import StudyError


def download(checksums: Mapping[str, str], folder: Path, *, progress: bool, remedy: str) -> None:
    """Downloads the files that the folder lacks.

    A file gets its name only when it is complete and its checksum is right.

    Args:
        checksums: such as ``"md5:..."``, by URL.
        folder: made if it is missing; a file has the last part of its URL as name.
        progress: whether to draw a progress bar on stderr.
        remedy: what else the user can do, for the error message.
    """
    try:
        import pooch  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise StudyError(
            f"to download {', '.join(checksums)}, install pooch: pip install 'qneurons[study]'; "
            f"or {remedy}"
        ) from None
    pooch.get_logger().setLevel("WARNING")
    with ExitStack() as stack:
        bars = stack.enter_context(_bars()) if progress else None
        for url, published in checksums.items():
            name = url.rpartition("/")[2]
            bar = bars and _Bar(bars, name)
            fetch = pooch.HTTPDownloader(progressbar=bar, chunk_size=2**16)
            try:
                pooch.retrieve(url, published, name, folder, downloader=fetch)
            except (OSError, ValueError) as error:  # requests' errors are OSErrors
                raise StudyError(
                    f"cannot download {url} to {folder}: {one_line(error)}; try again later, or "
                    f"{remedy}"
                ) from error


def _bars() -> Any:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        *(progress.BarColumn(), progress.DownloadColumn()),
        *(progress.TransferSpeedColumn(), progress.TimeRemainingColumn()),
        console=Console(stderr=True),
    )


class _Bar:
    """What pooch asks of a progress bar, drawn by rich."""

    total: int

    def __init__(self, bars: Any, name: str) -> None:
        self.bars, self.name, self.task = bars, name, None

    def update(self, size: int) -> None:
        if self.task is None:  # not earlier: without a connection no bar is drawn
            self.task = self.bars.add_task(self.name, total=self.total)
        self.bars.advance(self.task, size)

    def reset(self) -> None:
        if self.task is not None:
            self.bars.update(self.task, completed=0)

    def close(self) -> None:
        pass
