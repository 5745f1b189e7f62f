"""`python -m heavydistill` is the command line, also for processes that a launcher starts."""

from heavydistill.cli.app import main

if __name__ == "__main__":
    main()
