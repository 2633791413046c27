"""The product's settings over a fresh home, with a password hash that costs nothing."""

import os
import tempfile

# Short: unix sockets live below it.
os.environ["TIDEPOOL_HOME"] = tempfile.mkdtemp(prefix="tidepool-test-")

# Tests have their own folder: collected files of the checkout make no difference.
os.environ["TIDEPOOL_STATIC_ROOT"] = tempfile.mkdtemp(prefix="static-", dir=os.environ["TIDEPOOL_HOME"])

# For torch, as ranks have it: two threads that spin where processors are busy take three times as long as one.
os.environ["OMP_NUM_THREADS"] = "1"

from webapp.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Hosts may join; where tests let one do so, they say which broker it is told.
TIDEPOOL_EXECUTOR_BROKER_URL = "redis://executor:secret@10.0.0.5:6379/0"
# Each test client makes its own middleware, which would look at every static file.
WHITENOISE_AUTOREFRESH = True
