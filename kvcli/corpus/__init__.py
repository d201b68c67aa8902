"""Documents and repositories to spans of text with a source: a file and its lines, or a PDF page.

Start at `corpus.read_corpus`; `source_map` maps tokens back to what was read. This file imports
nothing, because the PDF worker starts through it and must start fast.
"""
