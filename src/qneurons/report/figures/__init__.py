"""The figures of a report; each draws numbers that were computed before."""

from qneurons.report.figures.artwork import (
    FORMATS as FORMATS,
    INK as INK,
    LOOK as LOOK,
    ON_DARK as ON_DARK,
    PALE as PALE,
    Style as Style,
    css_name as css_name,
    figure_files as figure_files,
    new_figure as new_figure,
    setting_styles as setting_styles,
    share_styles as share_styles,
    theme_svgs as theme_svgs,
    to_svg as to_svg,
    write_file as write_file,
)
from qneurons.report.figures.curves import (
    ACCURACY as ACCURACY,
    GAIN as GAIN,
    LOSS as LOSS,
    Curve as Curve,
    draw_curves as draw_curves,
    draw_panel as draw_panel,
    label_ends as label_ends,
    panels_of as panels_of,
)
from qneurons.report.figures.densities import (
    BANDS as BANDS,
    LAMS as LAMS,
    PAPER_ACTIVATIONS as PAPER_ACTIVATIONS,
    is_drawable as is_drawable,
    neuron_law as neuron_law,
)
from qneurons.report.figures.gains import draw_gains as draw_gains
from qneurons.report.figures.neurons import (
    F_COLOUR as F_COLOUR,
    LIMIT_COLOUR as LIMIT_COLOUR,
    draw_bands as draw_bands,
    paper_figures as paper_figures,
    write_figures as write_figures,
)
