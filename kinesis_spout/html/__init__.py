"""Pages for people: values in, one self-contained HTML text out. Pure, and by hand of nobody else:
only the standard library.

A page is a tree of `element`s. All text in it is escaped, and there is no way around that. A page
needs no script, asks for nothing from anywhere, and says so in its Content-Security-Policy.
"""
