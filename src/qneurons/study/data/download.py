"""Downloads files, with checksums, a progress bar and clear errors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qneurons.study.data.readers import one_line
from qneurons.study.errors import StudyError, install


def download(checksums: Mapping[str, str], folder: Path, *, progress: bool, remedy: str) -> None:
    """Downloads the files that the folder lacks. ``checksums`` are by URL, such as ``"md5:..."``.

    A file is named after the last part of its URL, and gets that name only when it is complete and
    its checksum is right. Errors end with the ``remedy``: what else the user can do.
    """
    try:
        import pooch  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise StudyError(
            f"to download {', '.join(checksums)} needs pooch",
            f"{install()}, or {remedy}",
        ) from None
    pooch.get_logger().setLevel("WARNING")
    with _bars(progress) as bars:
        for url, published in checksums.items():
            name = url.rpartition("/")[2]
            fetch = pooch.HTTPDownloader(progressbar=_Bar(bars, name), chunk_size=2**16)
            try:
                pooch.retrieve(url, published, name, folder, downloader=fetch)
            except (OSError, ValueError) as error:  # requests' errors are OSErrors
                raise StudyError(
                    f"cannot download {url} to {folder}: {one_line(error)}",
                    f"try again later, or {remedy}",
                ) from error


def _bars(are_drawn: bool) -> Any:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        *(progress.BarColumn(), progress.DownloadColumn()),
        *(progress.TransferSpeedColumn(), progress.TimeRemainingColumn()),
        console=Console(stderr=True),
        disable=not are_drawn,
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
