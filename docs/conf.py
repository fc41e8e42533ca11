"""The docs site: `sphinx-build -W -n --keep-going -b html docs build/site`."""

import re
from typing import Any

import qneurons

project = "qneurons"
copyright = "2026 the qneurons authors"
release = qneurons.__version__
html_title = f"qneurons {release}"
html_theme = "furo"
html_copy_source = False
html_static_path, html_css_files = ["_static"], ["site.css"]
html_extra_path = ["explorer.html"]
smartquotes = False  # they would bend the prime of f'(x)
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_enable_extensions = ["attrs_inline", "dollarmath", "html_image"]
myst_url_schemes = {"http": None, "https": None, "mailto": None, "site": {"url": "{{path}}"}}
myst_heading_anchors = 4  # headings have the anchors that GitHub gives them
suppress_warnings = ["myst.header"]  # on GitHub the sections of RESULTS.md are of the third level

# What modules inherit, and torch describes.
autodoc_default_options = {"exclude-members": "forward, register_parameter, train"}
autodoc_member_order = "groupwise"
autodoc_mock_imports = ["lightning", "timm", "transformers"]
napoleon_custom_sections = [("Shape", "notes_style")]
# Without the network there is no list of other libraries' names.
nitpick_ignore_regex = [("py:.*", r"(collections|pathlib|torch|typing)\..*|Table|Tensor")]
html_math_renderer = "mathml"


def as_two_images(picture: re.Match[str]) -> str:
    """The theme shows one of them, and its switch from light to dark changes which."""
    names = ("alt", "src", "srcset")
    alt, light, dark = (re.search(rf' {name}="(.+?)"', picture[0])[1] for name in names)
    return f"![{alt}]({light}){{.only-light}} ![{alt}]({dark}){{.only-dark}}"


def retarget(app: Any, docname: str, source: list[str]) -> None:
    """Links that lead somewhere on GitHub lead to the pages of the site."""
    text = re.sub(r'<a id="(.+)"></a>\n', r"(\1)=\n", source[0])
    text = re.sub(r"<picture>.+?</picture>", as_two_images, text, flags=re.DOTALL)
    for path, page in (("docs/", ""), ("README.md", "index.md"), ("RESULTS.md", "results.md")):
        text = text.replace(f"](../{path}", f"]({page}")
    text = text.replace("](explorer.html)", "](site:explorer.html)")  # a page, not a download
    # Other Markdown files are no pages of the site: they are offered as files.
    source[0] = re.sub(r"\]\((\.\./.+?\.md)(#.*?)?\)", r"](path:\1)", text)


def retarget_from_root(app: Any, path: Any, docname: str, source: list[str]) -> None:
    """README.md and RESULTS.md are a folder above the pages that include them."""
    source[0] = re.sub(r'(\]\(| src="| srcset=")(?!#|\w+:)', r"\1../", source[0])
    retarget(app, docname, source)


def write_mathml(translator: Any, node: Any) -> None:
    """Browsers draw MathML themselves: no script, no fonts, nothing to download."""
    from docutils.nodes import SkipNode, math_block
    from docutils.utils.math.latex2mathml import tex2mathml

    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, math_block)))
    raise SkipNode


def write_defaults(app: Any, *described: Any) -> tuple[str | None, str | None]:
    """A default such as ``<function f at 0x7f>`` would spoil the whole signature."""
    *_, signature, returned = described
    return signature and re.sub(r"<[\w .<>-]+>", "...", signature), returned


def setup(app: Any) -> None:
    from pygments.lexers.special import TextLexer

    app.connect("source-read", retarget)
    app.connect("include-read", retarget_from_root)
    app.connect("autodoc-process-signature", write_defaults)
    app.add_html_math_renderer("mathml", (write_mathml, None), (write_mathml, None))
    app.add_lexer("mermaid", TextLexer)  # GitHub draws it; drawing it here would take a script
