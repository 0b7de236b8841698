"""A service over HTTP for one or several models, and a page to try them.

longtail serve MODEL [MODEL …] --port 8080

master.py      loads the models, forks the workers, replaces models and workers
worker.py      one process: accepts connections
reader.py      reads from all connections; refuses requests in an overload
connection.py  one connection: HTTP/1.1, limits, time-outs
service.py     access control, the queue, counters
batching.py    scores requests that arrive together in one batch
predictor.py   a loaded model: it takes rows or texts and returns the best labels
routes.py      the routes and the service's own protocol; kserve.py, annif.py and stream.py have the other protocols
static/        the page
"""

from longtail.serve.limits import Limits

__all__ = ["Limits"]
