"""`python -m tidepool`, where the program is not on the path."""

from tidepool.cli import main

main()
