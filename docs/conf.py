"""How Sphinx builds these pages: ``make docs``; ``docs-pages`` without the gallery."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the extensions that are here


import torchsrk  # noqa: E402

project = "torchsrk"
author = "the authors of torchsrk"
copyright = "the authors of torchsrk"
release = version = torchsrk.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extensions.plain_docstrings",
    "extensions.code_links",
    "extensions.large_figures",
    "sphinx.ext.viewcode",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",  # mathematics needs no network
]
exclude_patterns = ["_build", "examples/README.rst", "examples/*"]
suppress_warnings = [
    "ref.python"
]  # several classes have a mean; the words of a docstring mean none of them

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
myst_heading_slug_func = "extensions.slugs.as_on_github"

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\w+\.py$",
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", "extensions.style.house_style"),
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "copyfile_regex": r".*\.rst",
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "capture_repr": (),
    "min_reported_time": 0,
}

html_theme = "furo"
html_title = f"torchsrk {release}"
html_static_path = ["_static"]
html_css_files = ["torchsrk.css"]
smartquotes_action = "D"  # dashes alone: a prime of a formula is no quotation mark
html_show_sourcelink = False
html_show_copyright = False
copybutton_prompt_text = r">>> |\$ "
copybutton_prompt_is_regexp = True
