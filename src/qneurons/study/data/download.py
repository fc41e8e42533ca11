"""Files from their public homes: checksums, a progress bar, and the reason where it fails."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from qneurons.study.data.readers import one_line
from qneurons.study.errors import StudyError


def download(checksums: Mapping[str, str], folder: Path, *, progress: bool, remedy: str) -> None:
    """Downloads files that are not in the folder yet.

    A file appears under its name only when it is whole and its checksum is right.

    Args:
        checksums: by URL, written ``"md5:..."``.
        folder: made where it is missing; a file is named as its URL ends.
        progress: whether a bar is drawn on stderr.
        remedy: what to do instead, for the message where it fails.
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
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )


class _Bar:
    """What pooch asks of a progress bar, drawn by rich."""

    total: int

    def __init__(self, bars: Any, name: str) -> None:
        self.bars, self.name, self.task = bars, name, None

    def update(self, size: int) -> None:
        if self.task is None:  # not sooner: where there is no connection, no bar is drawn
            self.task = self.bars.add_task(self.name, total=self.total)
        self.bars.advance(self.task, size)

    def reset(self) -> None:
        if self.task is not None:
            self.bars.update(self.task, completed=0)

    def close(self) -> None:
        pass
