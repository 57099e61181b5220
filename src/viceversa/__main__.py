"""`python -m viceversa` is the command line."""

from viceversa.cli import main

if __name__ == "__main__":
    main()
