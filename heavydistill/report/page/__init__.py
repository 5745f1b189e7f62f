"""Runs as one HTML file that a person opens: figures, plots, and a viewer of every trace.

The file needs nothing beside itself and asks no network: its policy forbids it. Figures and plots
are written here as HTML and SVG. Traces stand in the file in compressed chunks, and the scripts in
``web`` unpack those that are looked at. Formulas are rendered by the KaTeX in ``katex`` (MIT).

Texts of problems and models are never HTML: here they are escaped or compressed, in the browser
they become text nodes.
"""
