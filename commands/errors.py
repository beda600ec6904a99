"""What the command line tells its users."""


class UsageError(Exception):
    """Something the user can put right; printed as one line, exit code 2."""
