"""`python -m energymodel`: the command line without the installed script."""

from energymodel.cli import main

if __name__ == "__main__":
    main()
