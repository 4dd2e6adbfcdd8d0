"""`python -m tilewright`: the command `tilewright`, where its script is not on the path."""

from tilewright.cli._start import main

if __name__ == "__main__":
    main()
