"""The recipe of a run in the vocabulary of distilabel: model, steps, tasks and their pipeline.

``pipeline`` connects the steps, ``llm`` is the model that tasks ask, ``distilabel`` holds the names
of distilabel that the package builds on. ``run.runner`` executes the chain.
"""
