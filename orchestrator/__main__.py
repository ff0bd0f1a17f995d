"""`python -m orchestrator` is `testbed`."""

from orchestrator.cli.main import main

if __name__ == "__main__":
    main()
