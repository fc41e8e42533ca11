"""For timm: names of q-activations, as in ``timm.create_model(..., act_layer="q_gelu")``.

Importing this file makes the names known. A λ of your own is given with the class:
``act_layer=functools.partial(qneurons.QGELU, lam=0.05)``.
"""

import functools

from timm.layers import create_act

from qneurons.modules import CLASSES, QLimit

NAMES = {f"q_{name}": cls for name, cls in CLASSES.items()} | {
    f"limit_{name}": functools.partial(QLimit, name) for name in CLASSES
}
create_act._ACT_LAYER_DEFAULT.update(NAMES)
