"""The sets on disk that a build writes: their rows, their folder, their manifest.

Whoever publishes, exports or trains reads them from here.
"""
