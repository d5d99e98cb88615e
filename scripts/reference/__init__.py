"""The generated part of the documentation's reference: Markdown tables made from the code.

One module per page. A fact that the code holds is read from the code. A sentence that it lacks is
in `words`, the only part that is written by hand. `tests/docs` holds that the two fit together.
"""
