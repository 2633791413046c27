"""Events of one training as server-sent events, for programs that follow it: `/api/v1/jobs/{id}/stream/`.

`view` checks the request, `following` reads the new events, and `sender` sends them on the event loop.
"""
