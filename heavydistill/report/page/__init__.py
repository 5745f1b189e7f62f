"""The report of runs as one HTML file: metrics, plots, and a viewer of every trace.

The file is self-contained and its content security policy forbids requests. Metrics and plots are
written here as HTML and SVG. Traces are stored in compressed chunks, which the scripts in ``web``
unpack when they are shown. Formulas are rendered by the KaTeX in ``katex`` (MIT).

Texts of problems and models never become HTML: they are escaped or compressed here, and become text
nodes in the browser.
"""
