"""A worker process of :class:`ProcessExecutor`: runs the trials that it is sent."""

import contextlib
import functools
import os
import pickle
import threading
import time
from multiprocessing.connection import Connection

from qneurons.comparison.executor import perform
from qneurons.comparison.trial import Trial, only_imports
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended

WATCH_S = 1.0


def serve(fd: int, parent: int, command: str) -> None:
    """Receives the training and then trials, and sends messages, until ``parent`` ends."""
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    only_imports.set(True)
    connection = Connection(fd)
    with contextlib.suppress(EOFError, ConnectionError):  # the other end has closed
        load = functools.cache(functools.partial(pickle.loads, connection.recv_bytes()))
        while True:
            try:
                perform(load, Trial(*connection.recv()), command, connection.send)
            except StudyError as error:
                connection.send(Ended(error=error))


def end_with(parent: int) -> None:
    """Ends this process when its parent has ended: nobody would hear of its trials."""
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(1)
