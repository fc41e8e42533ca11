"""The claims of the paper's section "Experiments" as data, and the verdict on each."""

from qneurons.report.claims import cases
from qneurons.report.claims.best import BestClaim, judge_best
from qneurons.report.claims.counting import CaseClaim, judge_cases
from qneurons.report.claims.evidence import MARGIN_RULE
from qneurons.report.claims.grid import ACTIVATIONS, ANNEALED, CONSTANT, CURVED, Q_SETTINGS
from qneurons.report.claims.noise_or_limit import judge_question
from qneurons.report.claims.verdicts import Verdict
from qneurons.report.results import Results

_EACH_Q = tuple(("base", setting) for setting in Q_SETTINGS)
_COUNTED = (
    "The claim holds if at least {share} of the paper's {cases} are for it. It does not hold if so "
    "many are against it that this share is out of reach. A case that these data lack, or have for "
    "fewer than 50 epochs, counts as one of the paper's, but is neither for nor against. The claim "
    "can no longer hold (or fail) if it does not, even with every case for it (or against it) that "
    "is missing or has fewer than the paper's 10 seeds and 100 epochs. "
)
_THREE_QUARTERS = _COUNTED.format(share="three quarters", cases="cases")
_BEST_RULE = (
    "The best accuracy of a setting is the peak over epochs of its mean over seeds, as the paper "
    "reads its curves. The claim holds if each named q-activation reaches the printed value, "
    "rounded to its last digit, with some setting, and no other activation or network is better at "
    "that precision. It does not hold if the 95 % interval of a named q-activation's best lies "
    "below the printed value, or if a rival is better (Welch's t test, p ≤ 0.05 after Bonferroni's "
    "correction over all rivals of the paper). It can no longer hold if a named q-activation does "
    "not reach the printed value, or a rival is better at that precision, though neither is "
    "significant. A q-activation is judged with all its q settings, with and without dropout, 100 "
    "epochs and at least three seeds, and the claim holds only if all settings of that network on "
    "that dataset are there. q-ReLU at c0.02 and c0.1 is ReLU but for rounding, and no rival."
)

CLAIMS: tuple[CaseClaim | BestClaim, ...] = (
    CaseClaim(
        "better",
        "For the curved activations (tanh, ELU, softplus) a q-activation is better than its base "
        "in almost all cases: lower training loss and higher test accuracy.",
        _THREE_QUARTERS + "A case is a cell and a q setting. It is for the claim if both training "
        "loss and test accuracy gain over base, and against it if one has no gain. " + MARGIN_RULE,
        CURVED, _EACH_Q, cases.improves,
        "gain over base in both", "have no gain in one of the two",
    ),
    CaseClaim(
        "not-relu",
        "q-ReLU does not improve on ReLU.",
        _THREE_QUARTERS + "A case is a ReLU cell and an annealed setting: at c0.02 and c0.1 q-ReLU "
        "is ReLU but for rounding, as is its limit, and these three show the noise floor. A case "
        "is for the claim if neither training loss nor test accuracy gains over base, and against "
        "it if one gains. " + MARGIN_RULE,
        ("relu",), tuple(("base", setting) for setting in ANNEALED), cases.improves_neither,
        "gain in neither", "gain in one of the two", sign=-1, floor=True,
    ),
    CaseClaim(
        "insensitive",
        "The benefit is not sensitive to λ: fixed at 0.02 or at 0.1, it generalises better in "
        "almost all cases.",
        _THREE_QUARTERS + "A case is a cell with a curved activation. It is for the claim if c0.02 "
        "and c0.1 both gain in test accuracy over base and the whole interval of their difference "
        "is within the smaller gain. It is against the claim if one has no gain, or if both gain "
        "and the whole interval is outside. " + MARGIN_RULE,
        CURVED, (("base", *CONSTANT),), cases.insensitive,
        "gain at both values by more than these differ", "do not",
    ),
    CaseClaim(
        "annealing",
        "Annealing λ improves the test accuracy further.",
        _THREE_QUARTERS + "A case is a cell with a curved activation. It is for the claim if one "
        "of a1, a5, a9 gains in test accuracy over both c0.02 and c0.1 (Holm's correction over "
        "these six), and against it if each of them has no gain over c0.02 or over c0.1. "
        + MARGIN_RULE,
        CURVED, (("base", *Q_SETTINGS),), cases.annealing_helps,
        "gain by annealing", "have no gain by it",
    ),
    CaseClaim(
        "under-fit",
        "Too large a λ may under-fit.",
        _COUNTED.format(share="a quarter (the claim says may)", cases="cells") + "A case is a cell "
        "with a9. It is for the claim if the training loss of a9 without noise (evaluated in the "
        "limit, at the last epoch) is higher than base's (p ≤ 0.05 after Holm's correction over "
        "the contrasts of its cell and metric), and against it if that loss is significantly "
        "lower, or if the interval of the difference ends below 5 % of base's loss. Where that "
        "loss was not recorded for every seed, the loss with the noise of the last epoch stands "
        "in.",
        ACTIVATIONS, (("base", "a9"),), cases.underfits,
        "train worse with a9 than base", "do not", sign=-1, share=0.25,
    ),
    CaseClaim(
        "dropout",
        "q-activations help both with and without dropout.",
        "Judged separately with and without dropout; the claim must hold in both. "
        + _THREE_QUARTERS + "A case is a cell with a curved activation. It is for the claim if "
        "some q setting gains in test accuracy over base, and against it if all have no gain. "
        + MARGIN_RULE,
        CURVED, (("base", *Q_SETTINGS),), cases.benefits,
        "gain with some q setting", "have no gain with any", by_dropout=True,
    ),
    BestClaim(
        "mnist-best",
        "The best on MNIST, an error of 0.35 %, is reached by the CNN with q-ELU and with q-tanh.",
        _BEST_RULE, "mnist-cnn", ("elu", "tanh"), 0.9965, 0.00005,
    ),
    BestClaim(
        "cifar-best",
        "The best on CIFAR-10, an accuracy of 82.9 %, is reached by q-ELU.",
        _BEST_RULE, "cifar-cnn", ("elu",), 0.829, 0.0005,
    ),
)  # fmt: skip


def judge(results: Results) -> list[Verdict]:
    """The verdicts on the paper's claims, and last the answer to: the noise or the limit?"""
    verdicts = [
        judge_cases(claim, results) if isinstance(claim, CaseClaim) else judge_best(claim, results)
        for claim in CLAIMS
    ]
    return [*verdicts, judge_question(results)]
