"""Runs the command line as ``python -m heavydistill``, also in processes that a launcher starts."""

from heavydistill.cli.app import main

if __name__ == "__main__":
    main()
