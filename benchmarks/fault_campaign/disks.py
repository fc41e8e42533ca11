"""Full disks and read-only folders."""

import contextlib
import ctypes
import os
import pwd
import random
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fault_campaign.processes import Process, finish, start
from fault_campaign.trials import Bench, Fault

from qneurons.study.store import Store

DISK_BYTES = 32 * 2**20
SPACE, RIGHTS = "free some space", "make it writable"  # what the messages advise


def file_size_limit(bench: Bench, folder: Path, trials: int, draw: random.Random) -> Fault:
    """A limit on the size of files, which stops the journal or a checkpoint."""
    fault = Fault("file-size limit reached")
    journal = (bench.half / "journal.jsonl").stat().st_size
    largest = max(path.stat().st_size for path in bench.half.rglob("*.pt"))
    for number in range(trials):
        store = folder / f"limit-{number}"
        shutil.copytree(bench.half, store)
        limit = draw.randrange(largest if number % 2 else 2 * journal)
        limits = limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        process = finish(
            bench.command,
            store,
            first=lambda limits=limits: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
        )
        bench.try_out(fault, store, process, remedy=SPACE, mend=lambda error: None)
    return fault


def full_disk(bench: Bench, folder: Path, trials: int, draw: random.Random) -> Fault:
    """A small disk with less free space than two checkpoints need."""
    fault = Fault("disk full")
    with mounted(folder / "full") as disk:
        if disk is None:
            return Fault(f"{fault.name}: not tried, mounting is not permitted here")
        largest = max(path.stat().st_size for path in bench.half.rglob("*.pt"))
        for number in range(trials):
            store, ballast = disk / str(number), disk / "ballast"
            if number % 2:  # else even the store is to be made
                shutil.copytree(bench.half, store)
            free = shutil.disk_usage(disk).free
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, free - draw.randrange(largest * 3 // 2))
            process = finish(bench.command, store)
            part = bench if number % 2 else Bench(bench.command, bench.results, bench.half, {})
            part.try_out(
                fault, store, process, remedy=SPACE, mend=lambda error, path=ballast: path.unlink()
            )
            shutil.rmtree(store)
    return fault


def readonly_disk(bench: Bench, folder: Path, trials: int) -> Fault:
    fault = Fault("disk mounted read-only")
    with mounted(folder / "readonly") as disk:
        if disk is None:
            return Fault(f"{fault.name}: not tried, mounting is not permitted here")
        for number in range(trials):
            store = disk / str(number)
            shutil.copytree(bench.half, store)
            remount(disk, "ro")
            process = finish(bench.command, store)
            bench.try_out(
                fault, store, process, remedy=RIGHTS, mend=lambda error: remount(disk, "rw")
            )
            shutil.rmtree(store)
    return fault


def readonly_folder(bench: Bench, folder: Path, trials: int) -> Fault:
    fault = Fault("folder read-only")
    for number in range(trials):
        store = folder / f"forbidden-{number}"
        shutil.copytree(bench.half, store)
        permit(store, False)
        process = finish(bench.command, store, first=obey_permissions)
        allow_again(bench, fault, store, process)
    return fault


def foreign_folder(bench: Bench, folder: Path, trials: int) -> Fault:
    """A store of another user, met by an ordinary one. Root becomes nobody for it."""
    fault = Fault("folder of another user")
    if os.geteuid():
        return Fault(f"{fault.name}: not tried, only root can become another user")
    folder.chmod(0o755)  # a temporary folder is closed to others
    for number in range(trials):
        store = folder / f"foreign-{number}"
        shutil.copytree(bench.half, store)
        process = finish(bench.command, store, first=open_as_nobody)
        bench.try_out(fault, store, process, remedy=RIGHTS, mend=lambda error: None)
    return fault


def open_as_nobody() -> None:
    """Gives up root's rights when the store is opened: nobody may not be able to import modules."""
    opening, nobody = Store.open, pwd.getpwnam("nobody")

    def as_nobody(*arguments, **options):
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        return opening(*arguments, **options)

    Store.open = as_nobody


def becoming_readonly(bench: Bench, folder: Path, trials: int, draw: random.Random) -> Fault:
    """A folder that becomes read-only after one to three saves."""
    fault = Fault("folder becomes read-only during training")
    for number in range(trials):
        store = folder / f"becoming-forbidden-{number}"
        shutil.copytree(bench.half, store)
        process = start(bench.command, store, first=obey_permissions)
        savings = draw.randint(1, 3)
        while process.code is None and len(process.saving_s) < savings:
            process.listen(60.0)
        permit(store, False)
        process.wait()
        allow_again(bench, fault, store, process)
    return fault


def allow_again(bench: Bench, fault: Fault, store: Path, process: Process) -> None:
    bench.try_out(fault, store, process, remedy=RIGHTS, mend=lambda error: permit(store, True))


def obey_permissions() -> None:
    """Takes CAP_DAC_OVERRIDE from the process, with which root may write everywhere."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        header, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc.capget(header, rights)
        rights[0] &= ~(1 << 1)
        if libc.capset(header, rights):
            raise OSError(ctypes.get_errno(), "capset")


def permit(store: Path, writing: bool) -> None:
    for path in (store, *store.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a file of the moment
            path.chmod((0o755 if path.is_dir() else 0o644) if writing else 0o555)


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[Path | None]:
    """A small disk in memory, or None if this user may not mount one."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    try:
        mounting = subprocess.run(["mount", *options], capture_output=True)
    except FileNotFoundError:
        mounting = None
    if mounting is None or mounting.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)
