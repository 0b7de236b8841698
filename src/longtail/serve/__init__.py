"""A service over HTTP for one or several models, and a page to try them.

longtail serve MODEL [MODEL …] --port 8080

master.py      loads the models, forks the workers, replaces models and workers
worker.py      one process: accepts connections
connection.py  one connection: HTTP/1.1, limits, time-outs
service.py     who may ask, the queue, what is counted
batching.py    requests that arrive together are scored together
predictor.py   a model made ready: rows or texts in, best labels out
routes.py      the addresses and the service's own protocol; kserve.py, annif.py, stream.py: the other forms
static/        the page
"""

from longtail.serve.limits import Limits

__all__ = ["Limits"]
