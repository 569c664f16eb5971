#!/usr/bin/env python3
"""CPU time of the requests of the console on a SQLite store with many turns.

    bench/console_requests.py [--amalgam target/release/amalgam] [--turns 1000000] [--folder FOLDER] [--limit-ms 50]

Makes a store with one turn by the server, copies that turn in SQL over the last 30 days (list, response, items, model call,
usage), starts the server again, and reads the CPU time of its process around each request. Ends with 1 if a request takes more
than the limit. Needs only Python.
"""

import argparse
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

KEY = "am_key-of-the-measurement-0123456789"
DAYS = 30
HOUR = 3_600_000
TRIES = 7
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, binary, folder):
        environment = {"PATH": os.environ["PATH"], "AMALGAM_BOOTSTRAP_KEY": KEY}
        command = [binary, "serve", "--data", folder, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True)
        for line in self.process.stdout:
            found = re.search(r"amalgam listening on (\S+)", line)
            if found:
                self.url = found[1]
                return
        raise SystemExit("the server ended")

    def ask(self, path, body=None):
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body and json.dumps(body).encode(), headers=headers)
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            # The search for an id that does not exist is measured too.
            if error.code != 404:
                raise
            return json.load(error)

    def cpu_ms(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * TICK_MS

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def copies(database, table, turns, changes):
    """Copies the only row of a table; `changes` are expressions of the number of the copy, `n`."""
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changes.get(column, f"row.{column}") for column in columns)
    database.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {turns}), "
        f"row AS MATERIALIZED (SELECT * FROM {table} LIMIT 1) "
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM numbers, row"
    )


def generate(path, turns):
    database = sqlite3.connect(path)
    database.execute("PRAGMA synchronous = OFF")
    created = database.execute("SELECT created_at FROM turns").fetchone()[0]
    step = max(1, DAYS * 24 * HOUR // turns)
    at = f"({created} - n * {step})"
    identity = f"('resp_AM-' || {at} || '-' || printf('%016d', n) || '00000000')"
    statuses = "CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'completed' END"
    copies(database, "turns", turns, {
        "created_at": at, "ended_at": f"({at} + n % 4000)", "response_id": identity, "request_id": "('req_' || n)",
        "user_id": "('user-' || (n % 500))", "status": statuses, "error": "CASE WHEN n % 50 = 0 THEN 'server_error' END",
    })
    copies(database, "responses", turns, {
        "number": f"({at} << 20)", "created_at": at, "stem": "printf('%016d', n)", "id": identity, "place": "((n + 1) << 20)",
        "user_id": "('user-' || (n % 500))",
    })
    copies(database, "items", turns, {"place": "((n + 1) << 20)", "response_id": identity, "user_id": "('user-' || (n % 500))"})
    copies(database, "transcripts", turns, {"id": f"({at} << 20)", "response_id": identity, "asked_at": at, "user_id": "('user-' || (n % 500))"})
    # 30 days with 20 users and 5 models in each hour.
    copies(database, "usage_hours", DAYS * 24 * 100, {
        "hour": f"({created // HOUR} - n / 100)", "user_id": "('user-' || (n % 20))", "model": "('model-' || (n / 20 % 5))", "turns": str(turns // (DAYS * 24 * 100) or 1),
    })
    database.commit()
    database.execute("ANALYZE")
    middle = database.execute("SELECT response_id, request_id FROM turns ORDER BY created_at LIMIT 1 OFFSET ?", (turns // 2,)).fetchone()
    database.commit()
    database.close()
    return middle


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--amalgam", default="target/release/amalgam")
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--folder")
    parser.add_argument("--limit-ms", type=float, default=50)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="amalgam-console-", dir=options.folder)
    try:
        server = Server(options.amalgam, folder)
        server.ask("/v1/responses", {"model": "demo", "input": "What is a turn?"})
        server.stop()
        turn, request = generate(os.path.join(folder, "amalgam.db"), options.turns)
        server = Server(options.amalgam, folder)
        paths = [
            "/admin/overview",
            "/admin/turns?limit=100",
            f"/admin/turns?limit=100&after={turn}",
            "/admin/turns?limit=100&status=failed",
            "/admin/turns?limit=100&user=nobody",
            "/admin/turns?limit=100&q=no-such-text",
            f"/admin/turns/{turn}?bodies=false",
            f"/admin/turns/{request}?bodies=false",
            f"/admin/turns/{turn}/calls/0",
            f"/admin/turns/{turn}/context",
            f"/admin/turns/{turn}/events",
            "/admin/turns/call_of_no_turn?bodies=false",
            "/admin/usage?group_by=hour",
            "/admin/usage?group_by=user",
            "/admin/sessions?limit=50",
            "/admin/profiles?limit=50",
            "/admin/tools?limit=50",
            "/admin/keys?limit=50",
            "/admin/approvals?limit=50",
            "/admin/audit?limit=50",
            "/admin/diagnose",
            "/admin/console",
        ]
        slow = []
        print(f"{options.turns} turns, CPU time of the server process for each request, mean of {TRIES}:")
        for path in paths:
            server.ask(path)
            before = server.cpu_ms()
            for _ in range(TRIES):
                server.ask(path)
            cpu = (server.cpu_ms() - before) / TRIES
            shown = path.replace(turn, "RESPONSE").replace(request, "REQUEST")
            print(f"{cpu:8.1f} ms  {shown}")
            if cpu > options.limit_ms:
                slow.append(shown)
        server.stop()
        if slow:
            print(f"over {options.limit_ms} ms: {', '.join(slow)}")
            sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
