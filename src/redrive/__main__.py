"""`python -m redrive` is the command `redrive`; a supervisor starts its workers by it."""

from redrive.cli.main import main

if __name__ == "__main__":
    main()
