"""Sphinx's configuration: Markdown pages, and a reference that is made from the code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kinesis_spout import __version__  # noqa: E402  # the checkout's, from the line above
from scripts.reference import api, docstrings, sidebar  # noqa: E402
from scripts.reference.write import write_pages  # noqa: E402

write_pages(HERE / "reference" / "_generated")

project = "kinesis-spout"
author = "the authors of kinesis-spout"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "reference/_generated"]

# Markdown ------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # links like page.md#heading, as a forge resolves them
smartquotes = False  # "--option" is two dashes, also where it is not marked as code

# The Python API ------------------------------------------------------------------------------
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False
default_role = "code"  # docstrings mark code as Markdown does, with single backticks

# A warning is an error, and so is a reference that leads nowhere. Annotations also name types of
# other projects and of private modules: only what is in a public module must have a page.
_public = "|".join(re.escape(module) for modules in api.PAGES.values() for module in modules)
nitpick_ignore_regex = [(r"py:.*", rf"(?!(?:{_public})\.\w+$).*")]
suppress_warnings = [
    "ref.python",  # two classes are named DeadLetter: a bare name in an annotation is of either
]

# HTML ----------------------------------------------------------------------------------------
html_theme = "furo"
html_title = f"kinesis-spout {release}"
html_static_path = ["_static"]
html_css_files = ["kinesis-spout.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def setup(app: Sphinx) -> None:
    docstrings.setup(app)
    sidebar.setup(app)
