"""Settings of hypothesis that hold for every test.

No deadline anywhere: a busy machine is not a fault of the code. With `CI` set the examples are the
same in every run, so a failure there is one of the change, and can be repeated with `CI=true`.
"""

import os

from hypothesis import settings

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
