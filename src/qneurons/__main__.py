"""The command line as ``python -m qneurons``."""

from qneurons.cli import main

if __name__ == "__main__":
    main()
