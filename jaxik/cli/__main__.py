"""`python -m jaxik.cli`: the same as the command `jaxik`."""

import sys

from jaxik.cli import main

sys.exit(main())
