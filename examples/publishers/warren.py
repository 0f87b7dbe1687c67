#!/usr/bin/env python3
"""A small client of Warren's Task API. Needs Python 3.8 and nothing else.

As a module:

    from warren import Warren
    client = Warren("http://127.0.0.1:8080", token)
    task = client.submit("text.digest", {"source": "stocks.csv"}, priority=7)
    print(client.result(task["id"], within=60))

As a program; WARREN_URL and WARREN_TOKEN say where and who:

    warren.py submit text.digest '{"source": "stocks.csv"}' --option priority=7 --key import-7 --wait 60
    warren.py result 01939d5e-8b1a-7000-8000-000000000000

Prints JSON. Exit 0: done. 1: refused, or the task ended without a result. 2: no answer. 3: still under way.
"""
import argparse
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

ENDS = ("succeeded", "dead", "cancelled", "expired")
RETRIED = (408, 425, 429, 502, 503, 504)


class Refused(Exception):
    """Warren said no. `problem` is the problem document: type, title, field, reason."""

    def __init__(self, problem):
        parts = [problem.get("title"), problem.get("field"), problem.get("reason")]
        super().__init__(" ".join(part for part in parts if part))
        self.problem = problem
        self.code = problem.get("type", "")


class Unreachable(Exception):
    """Nobody answered in time. What was sent may have been accepted: send it again under the same key."""


class NotSucceeded(Exception):
    """The task ended without a result. `task` is the whole of it."""

    def __init__(self, task):
        errors = [attempt["error"].get("message") for attempt in task.get("attempts", []) if "error" in attempt]
        super().__init__(" ".join(filter(None, ["task", task["id"], "is", task["state"], *errors[-1:]])))
        self.task = task


class StillUnderWay(Exception):
    """The wait was over before the task, which goes on."""


class Warren:
    def __init__(self, url, token=None, timeout=30):
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout  # seconds of one call, tries included

    def submit(self, type, input, key=None, **options):
        """The accepted task, or with "duplicate": true the one that was there before.

        `options` are members of a submission: priority, queue, delayMs, runAt, deadline, maxAttempts, tags, businessKey,
        unique, throttle. The same call under the same `key` within seven days is one task; without one, lost answers
        within this call are covered all the same.
        """
        body = {"type": type, "input": input, **options}
        headers = {"idempotency-key": json.dumps(key or str(uuid.uuid4()))}
        return self._call("POST", "/v1/tasks", body, headers)[0]

    def task(self, id):
        return self._call("GET", f"/v1/tasks/{id}")[0]

    def wait(self, id, within=60):
        """The task once it has ended. Raises StillUnderWay."""
        end, pause = time.monotonic() + within, 0.05
        while True:
            task, asked = self._call("GET", f"/v1/tasks/{id}")
            left = end - time.monotonic()
            if task["state"] in ENDS:
                return task
            if left <= 0:
                raise StillUnderWay(f"task {id} had not ended after {within} s: it is {task['state']}")
            time.sleep(min(left, pause if asked is None else asked))
            pause = min(pause * 1.5, 1)

    def result(self, id, within=60):
        """What the handler returned. Raises NotSucceeded and StillUnderWay."""
        task = self.wait(id, within)
        if task["state"] != "succeeded":
            raise NotSucceeded(task)
        return task.get("result")

    def _call(self, method, path, body=None, headers=None):
        """The answer, and the seconds that Retry-After asks for. Every call is safe to repeat."""
        headers = {"accept": "application/json", "content-type": "application/json", **(headers or {})}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        # NaN is no JSON: better refused here than there.
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        end, backoff = time.monotonic() + self.timeout, 0.1
        while True:
            asked = None
            try:
                request = urllib.request.Request(self.url + path, data, headers, method=method)
                left = max(0.001, end - time.monotonic())
                with urllib.request.urlopen(request, timeout=min(15, left)) as response:
                    return json.loads(response.read()), seconds_of(response.headers)
            except urllib.error.HTTPError as error:
                problem = problem_of(error)
                if error.code not in RETRIED and problem.get("type") != "idempotency-key-in-flight":
                    raise Refused(problem) from None
                failure, asked = Refused(problem), seconds_of(error.headers)
            except (OSError, ValueError) as error:  # no connection, a cut one, or something that is no Warren service
                failure = Unreachable(f"{self.url}: {getattr(error, 'reason', error)}")
            pause = max(asked or 0, random.random() * backoff)
            if time.monotonic() + pause >= end:
                raise failure
            time.sleep(pause)
            backoff = min(backoff * 2, 5)


def seconds_of(headers):
    text = headers.get("retry-after", "")
    return int(text) if text.isdigit() else None


def problem_of(error):
    try:
        problem = json.loads(error.read())
    except (OSError, ValueError):
        problem = None
    if not isinstance(problem, dict):
        problem = {"type": f"http-{error.code}", "title": f"HTTP {error.code}"}
    return problem


def option_of(text):
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a text without quotes


def main():
    parser = argparse.ArgumentParser(description="Submit a task to Warren over HTTP, and wait for its result.")
    commands = parser.add_subparsers(dest="command", required=True)
    submit = commands.add_parser("submit", help="submit a task; prints the task, or with --wait its result")
    submit.add_argument("type")
    submit.add_argument("input", type=json.loads, help="a JSON object")
    submit.add_argument("--option", type=option_of, action="append", default=[], metavar="NAME=VALUE")
    submit.add_argument("--key", help="the same key within seven days is one task")
    submit.add_argument("--wait", type=float, metavar="SECONDS", help="wait so long for the result")
    result = commands.add_parser("result", help="wait for the result of a task")
    result.add_argument("id")
    result.add_argument("--wait", type=float, default=60, metavar="SECONDS")
    arguments = parser.parse_args()
    client = Warren(os.environ.get("WARREN_URL", "http://127.0.0.1:8080"), os.environ.get("WARREN_TOKEN"))
    try:
        if arguments.command == "submit":
            task = client.submit(arguments.type, arguments.input, arguments.key, **dict(arguments.option))
            shown = task if arguments.wait is None else client.result(task["id"], arguments.wait)
        else:
            shown = client.result(arguments.id, arguments.wait)
    except (Refused, NotSucceeded, Unreachable, StillUnderWay) as error:
        print(f"warren.py: {error}", file=sys.stderr)
        return {Unreachable: 2, StillUnderWay: 3}.get(type(error), 1)
    print(json.dumps(shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
