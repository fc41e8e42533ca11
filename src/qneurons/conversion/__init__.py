"""Replaces the activations of a model by q-activations, and says beforehand what it will do."""

from qneurons.conversion.plan import (
    ConversionPlan as ConversionPlan,
    conversion_plan as conversion_plan,
)
from qneurons.conversion.replacing import (
    configure as configure,
    convert as convert,
    revert as revert,
)
