"""Replaces the activations of a model by q-activations, and says beforehand what it will do."""

from qneurons.conversion.describing import OTHER_ACTIVATIONS as OTHER_ACTIVATIONS
from qneurons.conversion.finding import Alias as Alias, Selector as Selector
from qneurons.conversion.making import from_name as from_name, name_of as name_of
from qneurons.conversion.plan import (
    ConversionPlan as ConversionPlan,
    conversion_plan as conversion_plan,
    nothing_to_convert as nothing_to_convert,
)
from qneurons.conversion.replacing import (
    configure as configure,
    convert as convert,
    replace_activations as replace_activations,
    revert as revert,
)
