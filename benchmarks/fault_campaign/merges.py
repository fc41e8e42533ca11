"""Merges from and into a store that is being trained."""

import random
import shutil
from pathlib import Path

from fault_campaign.processes import finish, start
from fault_campaign.trials import Bench, Fault
from fault_campaign.verdict import judge

from qneurons.study.errors import StudyError
from qneurons.study.store import merge


def merges(bench: Bench, folder: Path, trials: int, draw: random.Random) -> Fault:
    """Copies the store by a merge, and merges the copy back, again and again during training.

    The training must end as if there had been no merges, and so must the copy, when it is trained.
    """
    fault = Fault("merges during training")
    for number in range(trials):
        store, copy = folder / f"merged-{number}", folder / f"merged-copy-{number}"
        shutil.copytree(bench.half, store)
        process = start(bench.command, store)
        while process.code is None:
            process.listen(draw.uniform(0, 0.3))
            problem, refused = None, False
            try:
                merge([store], copy)
                merge([copy], store)
            except StudyError as error:
                refused = True
                if ";" not in str(error) or "\n" in str(error):
                    problem = f"without a remedy: {error}"
            verdict = judge(copy, bench.results)
            fault.count(problem or (str(verdict) if verdict else None), refused=refused)
        said = {**bench.reported, **process.reported}
        for folder_, ended in ((store, process), (copy, finish(bench.command, copy))):
            fault.tried += 1
            verdict = judge(folder_, bench.results, reported=said, finished=True)
            if ended.code == 0 and not verdict:
                fault.resumed += 1
            else:
                fault.wrong.append(f"afterwards: {ended.code} {ended.said} {verdict}")
    return fault
