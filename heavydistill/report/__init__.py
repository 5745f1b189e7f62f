"""What a person reads of a run: the table of its metrics and the view of one trace.

Both print to a ``rich`` console, so the caller chooses width, colour and where it goes. Texts of
problems and models are printed as they are: nothing in them is read as markup.
"""
