#!/usr/bin/env python3
"""Command line for trainings, with the options of WMLA's dlicmd.py.

A single file for Python 3.8 or later without dependencies. A server offers it at /ui/tools/dlicmd.py.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import getpass
import http.client
import io
import json
import os
import shlex
import shutil
import ssl
import sys
import tarfile
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, Callable, Iterator, Mapping, NoReturn, Sequence
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

#: Certificate (PEM) of the server that this file was downloaded from, filled in by the server, and trusted in addition
#: to those of this machine.
SITE_CERTIFICATE = ""
BASE = "/platform/rest/deeplearning/v1"
TIMEOUT_SECONDS = 60.0
#: Pauses between the polls of `--app-wait`: each is twice the previous one, up to the longest.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0
UNFINISHED = ("SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING")
SUCCEEDED = "FINISHED"
ENDED = (SUCCEEDED, "KILLED", "ERROR", "FAILED")
NOT_PACKED = ("__pycache__", ".git", ".ipynb_checkpoints")
CHUNK = 256 * 1024
QUOTE = "_QUOTE_"
#: Applications requested at once, and the HTTP status of a page beyond the last one.
PAGE, PAST_THE_END = 1000, 416

USAGE = "dlicmd.py --<command> [connection options] [options of the training] [-- arguments of the script]"
EXAMPLES = """
examples:
  Log on once; the logon is kept in ~/.dlicmd, which only you can read, and you can omit the host afterwards:
    dlicmd.py --logon --rest-host tidepool.example.org --rest-port 8000 --username alice
  List the frameworks, and how to start each:
    dlicmd.py --dl-frameworks -o custom-columns=NAME:.name,WHAT:.description
  Train the folder mnist/ on up to 4 GPUs; --epochs is an argument of the script:
    dlicmd.py --exec-start edtPyTorch --model-dir mnist --model-main train.py \\
      --cs-datastore-meta type=fs,data_path=mnist --numWorker 4 -- --epochs 10
  Follow the training, read its log, download its result:
    dlicmd.py --exec-get-all -o custom-columns=ID:.id,STATE:.state
    dlicmd.py --app-wait wmla-12
    dlicmd.py --exec-trainlogs wmla-12
    dlicmd.py --exec-trainresult wmla-12
  Search for the best parameters: search.json has modelSpec, algoDef and hyperParams, as for POST /hypersearch:
    dlicmd.py --hpo-start search.json --model-dir mnist
    dlicmd.py --hpo-get-all -o custom-columns=name,state,progress

exit codes:
  0  success          1  the server refused or cannot be reached, or the training failed
  2  the command line is invalid          130  interrupted by Ctrl-C

JSON is written to standard output, errors to standard error.
"""


class Problem(Exception):
    """An error with a sentence for standard error.

    Problem (exit code 1)
    ├── Refused: the server refused the request
    └── Misuse (2): the command line is invalid
    """

    exit_code = 1


class Refused(Problem):
    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Misuse(Problem):
    exit_code = 2


# --- The server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A server that has answered, with the credentials for it."""

    address: str
    tls: ssl.SSLContext
    headers: Mapping[str, str]
    #: Parameters of `--query-args`, added to the address of each request.
    query: tuple[tuple[str, str], ...] = ()
    prints_requests: bool = False

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        accept: str = "application/json",
    ) -> http.client.HTTPResponse:
        """Send a request and return the response, with its content unread. Raise Problem unless its status is 2xx."""
        pairs = [*(query or {}).items(), *self.query]
        target = path + ("?" + urlencode(pairs, quote_via=quote) if pairs else "")
        headers = {"Accept": accept, "Connection": "close", **self.headers}
        if body is not None:
            headers.update({"Content-Type": body.content_type, "Content-Length": str(body.size)})
        if self.prints_requests:
            note(f"{method} {self.address}{target}")
        try:
            answer = _exchange(_connection(self.address, self.tls), method, target, headers, body)
        except (OSError, http.client.HTTPException) as error:
            raise Problem(
                f"{self.address} does not answer any more ({error}): check that the server is running."
            ) from error
        if not 200 <= answer.status < 300:
            with answer:
                raise Refused(_refusal(answer, self.address), answer.status)
        return answer

    def json(self, method: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        with self.ask(method, path, query) as answer:
            return _parsed(answer.read(), self.address)


@dataclass(frozen=True)
class Body:
    content_type: str
    size: int
    parts: Iterator[bytes]


def _exchange(
    connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: Body | None
) -> http.client.HTTPResponse:
    # A server may refuse and close before it has read everything; its response can still be read.
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body=None if body is None else body.parts, headers=dict(headers))
    return connection.getresponse()


def _connection(address: str, tls: ssl.SSLContext) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    assert parts.hostname is not None
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=TIMEOUT_SECONDS, context=tls)
    # Without a port, http.client would read one from the end of an IPv6 address.
    return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=TIMEOUT_SECONDS)


def _parsed(content: bytes, address: str) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError as error:
        raise Problem(f"{address} sent a response that is not JSON: check that Tidepool runs there.") from error


def _refusal(answer: http.client.HTTPResponse, address: str) -> str:
    text = answer.read(CHUNK).decode("utf-8", "replace").strip()
    with suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["error"])
    if answer.status in (301, 302, 307, 308):
        return f"{address} redirects to {answer.getheader('Location')}: use that as --rest-host."
    if answer.status == 401:
        advice = f"You are not logged on at {address}: run dlicmd.py --logon --rest-host HOST --username NAME"
        return f"{advice}\n{_printable(text)}".strip()
    return _printable(text) or f"{address} answered {answer.status} {answer.reason}."


def _printable(text: str) -> str:
    """Return a server's text without control characters, which a terminal would interpret."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text[:4000])


def found_server(options: argparse.Namespace, logons: Logons) -> Server:
    """Return the server at the first scheme, https or http, that answers. No password or token is sent before that."""
    tried = []
    for address in _addresses(options, logons):
        tls = _tls(options, logons.of(address))
        connection = _connection(address, tls)
        with closing(connection):
            try:
                _exchange(connection, "GET", f"{BASE}/conf", {}, None).read()
            except ssl.SSLCertVerificationError as error:
                raise Problem(_untrusted(address, error)) from error
            except (OSError, http.client.HTTPException) as error:
                tried.append(f"{address} ({error})")
                continue
        return Server(
            address=address,
            tls=tls,
            headers=_credentials(options, logons.of(address)),
            query=tuple(parse_qsl(options.query_args, keep_blank_values=True)),
            prints_requests=options.debug_level == "debug",
        )
    raise Problem(f"No server answers at {' or '.join(tried)}: check --rest-host and --rest-port.")


def _tls(options: argparse.Namespace, logon: dict[str, str] | None) -> ssl.SSLContext:
    cacert = options.cacert or (logon or {}).get("cacert") or None
    try:
        context = ssl.create_default_context(cafile=cacert)
        if SITE_CERTIFICATE and not cacert:
            context.load_verify_locations(cadata=SITE_CERTIFICATE)
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"--cacert {cacert} cannot be used ({error}): give a file of PEM certificates.") from error
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _untrusted(address: str, error: ssl.SSLCertVerificationError) -> str:
    return (
        f"The certificate of {address} is not trusted ({error.verify_message}). If it is self-signed, get it from your "
        "administrator and add --cacert FILE, or download this program again: it trusts the server that it was "
        "downloaded from. With --insecure no certificate is checked, so an impostor could receive your password."
    )


def _addresses(options: argparse.Namespace, logons: Logons) -> list[str]:
    if not options.rest_host:
        if not logons.last:
            raise Misuse("Give the server with --rest-host, and its port with --rest-port.")
        return [logons.last]
    host = options.rest_host if "://" in options.rest_host else f"//{options.rest_host}"
    if host.count(":") > 2 and "[" not in host:
        host = host.replace("//", "//[", 1) + "]"
    try:
        parts = urlsplit(host)
        port = options.rest_port or parts.port
    except ValueError as error:
        raise Misuse(f"--rest-host {options.rest_host} is not a valid host: {error}.") from error
    if not parts.hostname or parts.scheme not in ("", "http", "https"):
        raise Misuse(f"--rest-host {options.rest_host} is not a valid host: give a name such as tidepool.example.org.")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    found = [f"{scheme}://{name}" + (f":{port}" if port else "") for scheme in ("https", "http")]
    # After a log-on by https, a fallback to http could only serve an attacker.
    is_pinned = parts.scheme == "https" or logons.of(found[0]) is not None
    return found[1:] if parts.scheme == "http" else found[:1] if is_pinned else found


def _credentials(options: argparse.Namespace, logon: dict[str, str] | None) -> dict[str, str]:
    if options.jwt_token:
        if not (options.jwt_token.isascii() and options.jwt_token.isprintable()):
            raise Misuse("--jwt-token has invalid characters: copy the token again.")
        return {"X-Auth-Token": options.jwt_token}
    if options.username:
        pair = f"{options.username}:{_password(options)}".encode()
        return {"Authorization": "Basic " + base64.b64encode(pair).decode()}
    return {"X-Auth-Token": logon["token"]} if logon and options.command != "logon" else {}


def _password(options: argparse.Namespace) -> str:
    if options.password == "-":  # noqa: S105 - no password, but a request for one
        return sys.stdin.readline().rstrip("\r\n")
    if options.password is None and not sys.stdin.isatty():
        raise Misuse("Give --password, or --password - to read it from standard input.")
    if options.password is None:
        options.password = getpass.getpass(f"Password of {options.username}: ")
    return str(options.password)


# --- Logons that are kept ---------------------------------------------------------------------------------------------


class Logons:
    """The file ~/.dlicmd: the token and `--cacert` file for each server, and the server of the last log-on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        kept: Any = {}
        with suppress(OSError, ValueError):  # the file is missing or not valid
            kept = json.loads(path.read_text("utf-8"))
        kept = kept if isinstance(kept, dict) and isinstance(kept.get("logons"), dict) else {}
        self._kept: dict[str, dict[str, str]] = kept.get("logons", {})
        self.last: str = str(kept.get("last", ""))

    def of(self, address: str) -> dict[str, str] | None:
        logon = self._kept.get(address)
        return logon if isinstance(logon, dict) and isinstance(logon.get("token"), str) else None

    def keep(self, address: str, token: str, cacert: str | None) -> None:
        trusted = {"cacert": str(Path(cacert).resolve())} if cacert else {}
        self._kept[address], self.last = {"token": token, **trusted}, address
        self._write()

    def drop(self, address: str) -> None:
        self._kept.pop(address, None)
        self.last = "" if self.last == address else self.last
        self._write()

    def _write(self) -> None:
        scratch = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            # The file is created with its final permissions, so others can never read it.
            with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                json.dump({"logons": self._kept, "last": self.last}, file)
            scratch.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink()
            raise Problem(
                f"The logon cannot be saved in {self._path} ({error.strerror}): check the disk and the permissions."
            ) from error


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, which only the server verifies; {} for another kind of token."""
    with suppress(ValueError, IndexError):
        middle = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        return claims if isinstance(claims, dict) else {}
    return {}


def _validity(token: str) -> str:
    ends = claims_of(token).get("exp")
    if not isinstance(ends, (int, float)):
        return ""
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(ends))
    hours = (ends - time.time()) / 3600
    return f"until {at} ({hours:.1f} h)" if hours > 0 else f"ended at {at}: log on again"


# --- Commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A command with its options and the server."""

    server: Server
    options: argparse.Namespace
    logons: Logons

    @property
    def value(self) -> Any:
        """Value of the command: an id, a list of ids, or a framework."""
        return getattr(self.options, self.options.command.replace("-", "_"))

    @property
    def path(self) -> str:
        return quote(str(self.value), safe="")


def logon(call: Call) -> int:
    token = call.options.jwt_token
    if not token and not call.options.username:
        raise Misuse("Give --username NAME (you are prompted for the password), or --jwt-token TOKEN.")
    if token:
        call.server.json("GET", f"{BASE}/status")  # refused unless the token is valid
    else:
        answer = call.server.json("GET", "/auth/v1/logon")
        token = answer.get("accessToken") if isinstance(answer, dict) else None
    if not isinstance(token, str):
        raise Problem(f"{call.server.address} returned no token: check that Tidepool runs there.")
    claims = claims_of(token)
    name = claims.get("username") or claims.get("sub") or call.options.username or "the token's owner"
    call.logons.keep(call.server.address, token, call.options.cacert)
    parts = urlsplit(call.server.address)
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        note("The connection is not encrypted: anybody on the network path can read your password.")
    print(_printable(f"Logged on at {call.server.address} as {name} {_validity(token)}".strip()))
    return 0


def logoff(call: Call) -> int:
    call.logons.drop(call.server.address)
    call.server.json("POST", "/auth/v1/logoff")
    print(f"Logged off at {call.server.address}")
    return 0


def status(call: Call) -> int:
    kept = call.logons.of(call.server.address)
    if kept and _validity(kept["token"]):
        note(f"Logged on {_validity(kept['token'])}")
    return print_value(call, call.server.json("GET", f"{BASE}/status"))


def get(path: str, call: Call, **query: str) -> int:
    return print_value(call, call.server.json("GET", BASE + path.format(call.path), query))


def change(method: str, path: str, call: Call) -> int:
    return print_value(call, call.server.json(method, BASE + path.format(call.path)))


def send_each(method: str, path: str, done: str, call: Call) -> int:
    for value in call.value if isinstance(call.value, list) else [call.value]:
        call.server.json(method, BASE + path.format(quote(str(value), safe="")))
        print(done.format(value))
    return 0


def exec_start(call: Call) -> int:
    options = call.options
    # With -o, a program reads standard output, so progress messages go to standard error.
    say = note if options.output else print
    folder, main = options.model_dir, options.model_main
    arguments = ["--exec-start", str(call.value)]
    if folder:
        arguments += ["--model-dir", Path(folder).resolve().name]
    if main:
        arguments += ["--model-main", main if folder else Path(main).name]
    if options.user_cmd:
        arguments.append("--user-cmd")
    arguments += [*unmarked(options.others), *(["--", *unmarked(options.script)] if options.script else [])]
    query = {"args": " ".join(shlex.quote(argument) for argument in arguments)}
    if options.ig:
        query["sigName"] = options.ig
    say("Copying files and directories ...")
    with tempfile.TemporaryFile() as content:
        name = packed(folder, main, content, needs_script=not options.user_cmd)
        say(f"Content size: {_size(content.tell())}")
        body = form_with_file(name, content) if name else None
        with call.server.ask("POST", f"{BASE}/execs/", query, body) as answer:
            started = _parsed(answer.read(), call.server.address)
    if not isinstance(started, dict) or "id" not in started:
        raise Problem(f"{call.server.address} did not return the id of the training: find it with --exec-get-all.")
    return print_value(call, {"execId": started["id"], "appId": started.get("appId", started["id"])})


def unmarked(words: Sequence[str]) -> list[str]:
    """Join the words between two marks, by which WMLA's users had to quote blanks. Shell quotes work here, too."""
    found: list[str] = []
    is_open = False
    for word in words:
        if is_open:
            found[-1] += f" {word}"
        else:
            found.append(word)
        is_open ^= word.count(QUOTE) % 2 == 1
    if is_open:
        raise Misuse(f"A {QUOTE} has no closing one: see the end of {found[-1]}.")
    return [word.replace(QUOTE, "") for word in found]


def packed(folder: str | None, main: str | None, into: IO[bytes], *, needs_script: bool) -> str:
    """Write the upload and return its file name: <name>.modelDir.tar for a folder (gzipped), or a single script.

    Return "" if neither is given nor needed.
    """
    if not folder:
        if not needs_script and not main:
            return ""
        if not main or not Path(main).is_file():
            raise Misuse(
                "Give the code to train: --model-dir FOLDER --model-main SCRIPT, or only --model-main FILE.py."
            )
        with open(main, "rb") as script:
            shutil.copyfileobj(script, into)
        return Path(main).name
    top = Path(folder).resolve()
    if not top.is_dir():
        raise Misuse(f"--model-dir {folder} is not a folder.")
    if not main and needs_script:
        raise Misuse(f"Give the script of {folder} to run: --model-main SCRIPT.")
    if main and not (top / main).is_file():
        raise Misuse(f"--model-main {main} is not in {folder}: give its path relative to that folder.")
    # Links to files are replaced by the files, so that the archive has no links.
    with tarfile.open(fileobj=into, mode="w:gz", dereference=True) as archive:
        for parent, folders, files in os.walk(str(top)):
            folders[:] = sorted(name for name in folders if name not in NOT_PACKED)
            for file in (Path(parent, name) for name in sorted(files)):
                if file.is_file():
                    archive.add(str(file), Path(top.name, file.relative_to(top)).as_posix(), recursive=False)
                else:
                    note(f"Skipped, because it is not a regular file: {file}")
    return f"{top.name}.modelDir.tar"


def form_with_file(name: str, content: IO[bytes], data: str = "") -> Body:
    """Return a form with the part `file`, which is read while it is sent, after the field `data` if there is any."""
    boundary = base64.urlsafe_b64encode(os.urandom(24)).decode()
    shown_name = name.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "")
    field = f'--{boundary}\r\nContent-Disposition: form-data; name="data"\r\n\r\n{data}\r\n' if data else ""
    head = (
        f'{field}--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{shown_name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    tail = f"\r\n--{boundary}--\r\n".encode()
    size = len(head) + content.seek(0, os.SEEK_END) + len(tail)
    content.seek(0)
    parts = chain([head], iter(lambda: content.read(CHUNK), b""), [tail])
    return Body(f"multipart/form-data; boundary={boundary}", size, parts)


def hpo_start(call: Call) -> int:
    options = call.options
    say = note if options.output else print
    definition = _definition(str(call.value))
    if not options.model_dir and not options.model_main:
        raise Misuse("Give the code of the experiments: --model-dir FOLDER, or only --model-main FILE.py.")
    say("Copying files and directories ...")
    with tempfile.TemporaryFile() as content:
        # The definition names the script.
        name = packed(options.model_dir, options.model_main, content, needs_script=False)
        say(f"Content size: {_size(content.tell())}")
        body = form_with_file(name, content, definition)
        with call.server.ask("POST", f"{BASE}/hypersearch", body=body) as answer:
            text = answer.read().decode("utf-8", "replace")
    if options.output:
        return print_value(call, _parsed(text.encode(), call.server.address))
    print(_printable(f"Start hypersearch with id: {text}"))
    return 0


def _definition(name: str) -> str:
    """Return the JSON in the file, on one line."""
    try:
        given = json.loads(Path(name).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Misuse(f"--hpo-start {name} cannot be read ({error}): give a file with the JSON of a search.") from error
    if not isinstance(given, dict):
        raise Misuse(f"--hpo-start {name} has no JSON object: it needs modelSpec, algoDef and hyperParams.")
    return json.dumps(given)


def hpo_list(path: str, call: Call) -> int:
    """Print searches, or their algorithms. A column `name` is that of the search."""
    rows = _rows(call.server.json("GET", BASE + path))
    if not rows and call.options.output != "json":
        print("No result found")
        return 0
    columns = (call.options.output or "json") != "json"
    return print_value(call, [{"name": row.get("hpoName"), **row} if columns else row for row in rows])


def hpo_each(method: str, verb: str, call: Call) -> int:
    """Stop or delete each search; return 1 if the server refuses one of them."""
    code = 0
    for value in call.value:
        path = f"{BASE}/hypersearch/{quote(str(value), safe='')}"
        try:
            with call.server.ask(method, path) as answer:
                print(_printable(f"{verb} hpo {value} succeed. HTTP:{answer.status} "))
        except Refused as refused:  # the others may be accepted
            note(_printable(f"{verb} hpo {value} failed. HTTP:{refused.status} {refused}"))
            code = 1
    return code


def train_log(kind: str, call: Call) -> int:
    copied(call.server.ask("GET", f"{BASE}/execs/{call.path}/log", {"logType": kind}, accept="text/plain"))
    return 0


def run_log(stream: str, call: Call, *, of_exec: bool) -> int:
    """Print a stream of the driver and of each executor. Only the driver has a `launcherlog`."""
    app = call.value
    if of_exec:
        started = call.server.json("GET", f"{BASE}/execs/{call.path}")
        app = started.get("appId", app) if isinstance(started, dict) else app
    rows = call.server.json("GET", f"{BASE}/scheduler/applications", {"applicationid": app})
    if not isinstance(rows, list) or not rows:
        raise Problem(f"Application {app} not found: list them with --app-get-all and --app-history-get-all.")
    count = 0 if stream == "launcherlog" else len(rows[0].get("executors") or [])
    logs = ["driver", *(f"executor/{number}" for number in range(1, count + 1))]
    code = 0
    for log in logs:
        print(f"*** {log.replace('/', ' ')} {stream}", flush=True)
        address = f"{BASE}/scheduler/applications/{quote(str(app), safe='')}/{log}/logs/{stream}"
        try:
            copied(call.server.ask("GET", address, accept="text/plain"))
        except Problem as problem:  # other logs may exist
            note(f"dlicmd.py: {problem}")
            code = problem.exit_code
    return code


def copied(answer: http.client.HTTPResponse) -> None:
    with answer:
        shutil.copyfileobj(answer, sys.stdout.buffer, CHUNK)
    sys.stdout.buffer.flush()


def train_result(call: Call) -> int:
    with call.server.ask("GET", f"{BASE}/execs/{call.path}/result", accept="application/octet-stream") as answer:
        told = answer.getheader("Content-Disposition", "")
        fields = dict(part.strip().partition("=")[::2] for part in told.split(";"))
        # Only the proposed file name is used, not a path.
        proposed = Path(fields.get("filename", "").strip('"')).name.lstrip(".")
        target = Path(proposed or "result.zip")
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with scratch.open("xb") as file:
                shutil.copyfileobj(answer, file, CHUNK)
                received = file.tell()
            if fields.get("size", "").isdigit() and int(fields["size"]) != received:
                raise Problem(f"Only {received} of {fields['size']} bytes were received: download the result again.")
            scratch.replace(target)
        except (OSError, http.client.HTTPException) as error:
            raise Problem(f"{target} cannot be saved ({error}): download the result again.") from error
        finally:
            with suppress(OSError):
                scratch.unlink()
    print(f"Train result is saved to {target}")
    return 0


def app_get_all(states: Sequence[str], call: Call) -> int:
    return print_value(call, _applications(call, states))


def _applications(call: Call, states: Sequence[str]) -> list[dict[str, Any]]:
    """Return the applications, newest first. A server returns at most one page of them at once."""
    start, wanted = call.options.app_search_start, call.options.app_search_length
    found: list[dict[str, Any]] = []
    while len(found) < wanted:
        length = min(PAGE, wanted - len(found))
        query = {"start": str(start + len(found)), "length": str(length), "sort": "-submit_time"}
        try:
            rows = _rows(
                call.server.json("GET", f"{BASE}/scheduler/engine/applications", {**query, "state": ",".join(states)})
            )
        except Refused as refused:
            if refused.status == PAST_THE_END and found:
                break
            raise
        found += rows
        if len(rows) < length:
            break
    return found


def _rows(answer: Any) -> list[dict[str, Any]]:
    """Return the rows of a list, or the one row of anything else."""
    return [row for row in (answer if isinstance(answer, list) else [answer]) if isinstance(row, dict)]


def app_get(call: Call) -> int:
    return print_value(call, _application(call))


def _application(call: Call) -> dict[str, Any]:
    rows = _rows(call.server.json("GET", f"{BASE}/scheduler/engine/applications/{call.path}"))
    if not rows:
        raise Problem(f"Application {call.value} not found: list them with --app-get-all and --app-history-get-all.")
    return rows[0]


def app_wait(call: Call) -> int:
    pause, known = FIRST_PAUSE_SECONDS, ""
    while True:
        row = _application(call)
        state = str(row.get("state", ""))
        if state != known:
            note(f"{call.value}: {_printable(state)}")
            pause, known = FIRST_PAUSE_SECONDS, state
        if state in ENDED:
            print_value(call, row)
            return 0 if state == SUCCEEDED else 1
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def app_stop_all(call: Call) -> int:
    for row in _applications(call, UNFINISHED):
        call.server.json("PUT", f"{BASE}/scheduler/applications/{quote(str(row.get('id')), safe='')}/stop")
        print(_printable(f"Stopping {row.get('id')}"))
    return 0


def app_analyze(call: Call) -> int:
    """Print the mean waiting and running times of the applications of the last hours."""
    hours = float(call.value)
    now = time.time()
    rows = _applications(call, (*UNFINISHED, *ENDED))
    rows = [row for row in rows if float(row.get("submit_time") or 0) >= now - 3600 * hours]
    waits = [row["start_time"] - row["submit_time"] for row in rows if row.get("start_time")]
    runs = [(row.get("end_time") or now) - row["start_time"] for row in rows if row.get("start_time")]
    states = [str(row.get("state")) for row in rows]
    found = {
        "hours": hours,
        "applications": len(rows),
        "by_state": {state: states.count(state) for state in sorted(set(states))},
        "mean_wait_seconds": round(sum(waits) / len(waits), 1) if waits else None,
        "mean_run_seconds": round(sum(runs) / len(runs), 1) if runs else None,
    }
    return print_value(call, found)


# --- Output -----------------------------------------------------------------------------------------------------------


def note(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def print_value(call: Call, value: Any) -> int:
    """Print the value in the format of `-o`."""
    _, _, columns = (call.options.output or "json").partition("=")
    if not columns:
        print(json.dumps(value, indent=2))
        return 0
    pairs = [column.partition(":") for column in columns.split(",")]
    rows = [[head for head, _, _ in pairs]]
    for item in value if isinstance(value, list) else [value]:
        rows.append([_cell(item, path if colon else head) for head, colon, path in pairs])
    widths = [max(len(row[index]) for row in rows) for index in range(len(pairs))]
    for row in rows:
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return 0


def _cell(item: Any, path: str) -> str:
    for name in path.strip(".").split("."):
        item = item.get(name) if isinstance(item, dict) else None
    text = "<none>" if item is None else item if isinstance(item, str) else json.dumps(item)
    return _printable(text).replace("\n", " ")


def _size(count: float) -> str:
    for unit in ("B", "K", "M"):
        if count < 1024:
            return f"{count:.0f}{unit}" if unit == "B" else f"{count:.1f}{unit}"
        count /= 1024
    return f"{count:.1f}G"


# --- The command line -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    help: str
    run: Callable[[Call], int]
    #: Name of the command's value in the help; "": it takes none.
    value: str = ""
    #: `nargs` of argparse: "+" for several values, "?" for an optional one.
    count: str | None = None


_NO_SERVING = "This server does not serve trained models: download the model with --exec-trainresult."
_NO_KUBERNETES = "Trainings are not Kubernetes objects here: see --app-get-all."
_STOPPING, _DELETED = "Stopping {}", "Deleted {}"

COMMANDS: dict[str, Command] = {
    "logon": Command("log on by --username or --jwt-token, and keep the logon in ~/.dlicmd", logon),
    "logoff": Command("log off, and delete the kept logon", logoff),
    "status": Command("state of the server, and expiry of your logon", status),
    "dl-frameworks": Command("frameworks of --exec-start, with an example of each", partial(get, "/execs/frameworks")),
    "exec-start": Command("start a training", exec_start, "FRAMEWORK"),
    "exec-get-all": Command("your trainings, newest first", partial(get, "/execs", sort_by="id:desc")),
    "exec-get": Command("one training", partial(get, "/execs/{}"), "ID"),
    "exec-stop": Command("stop a training", partial(send_each, "POST", "/execs/{}/stop", _STOPPING), "ID"),
    "exec-delete": Command("stop a training and unlist it", partial(send_each, "DELETE", "/execs/{}", _DELETED), "ID"),
    "exec-delete-all": Command(
        "stop and unlist all your trainings", partial(send_each, "DELETE", "/execs", "Deleted all yours")
    ),
    "exec-launcherlogs": Command("events of the training", partial(run_log, "launcherlog", of_exec=True), "ID"),
    "exec-outlogs": Command("standard output of driver and executors", partial(run_log, "stdout", of_exec=True), "ID"),
    "exec-errlogs": Command("standard error of driver and executors", partial(run_log, "stderr", of_exec=True), "ID"),
    "exec-trainlogs": Command("output and errors of the training", partial(train_log, "outerrlog"), "ID"),
    "exec-trainoutlogs": Command("standard output of the training", partial(train_log, "outlog"), "ID"),
    "exec-trainerrlogs": Command("standard error of the training", partial(train_log, "errlog"), "ID"),
    "exec-trainresult": Command("save the result as a zip file in the current folder", train_result, "ID"),
    "app-get-all": Command("waiting and running applications", partial(app_get_all, UNFINISHED)),
    "app-history-get-all": Command("applications that have ended", partial(app_get_all, ENDED)),
    "app-get": Command("one application", app_get, "ID"),
    "app-wait": Command("wait until it ends; exit code 0 only if it succeeded", app_wait, "ID"),
    "app-stop": Command(
        "stop applications", partial(send_each, "PUT", "/scheduler/applications/{}/stop", _STOPPING), "ID", "+"
    ),
    "app-stop-all": Command("stop all your waiting and running applications", app_stop_all),
    "app-analyze": Command("mean waiting and running times in the last HOURS (default: 2)", app_analyze, "HOURS", "?"),
    "app-launcherlogs": Command("like --exec-launcherlogs", partial(run_log, "launcherlog", of_exec=False), "ID"),
    "app-outlogs": Command("like --exec-outlogs", partial(run_log, "stdout", of_exec=False), "ID"),
    "app-errlogs": Command("like --exec-errlogs", partial(run_log, "stderr", of_exec=False), "ID"),
    "hpo-start": Command("start a hyperparameter search, defined in a file of JSON", hpo_start, "FILE"),
    "hpo-get-all": Command("your hyperparameter searches, newest first", partial(hpo_list, "/hypersearch")),
    "hpo-get": Command("one search, with its experiments", partial(get, "/hypersearch/{}"), "ID"),
    "hpo-stop": Command("stop searches", partial(hpo_each, "PUT", "Stop"), "ID", "+"),
    "hpo-restart": Command("continue a stopped search", partial(change, "PUT", "/hypersearch/{}/restart"), "ID"),
    "hpo-delete": Command("delete searches that are over", partial(hpo_each, "DELETE", "Delete"), "ID", "+"),
    "hpo-delete-all": Command(
        "delete all your searches", partial(send_each, "DELETE", "/hypersearch", "Deleted all yours")
    ),
    "hpo-algorithm-get-all": Command("search algorithms", partial(hpo_list, "/hypersearch/algorithm")),
    "hpo-algorithm-get": Command("one algorithm", partial(get, "/hypersearch/algorithm/{}"), "NAME"),
    "hpo-algorithm-delete": Command(
        "delete an algorithm", partial(send_each, "DELETE", "/hypersearch/algorithm/{}", _DELETED), "NAME"
    ),
    "rp-get-all": Command("resource plans: instance groups and their shares", partial(get, "/resplans/resplantree")),
    "rp-get": Command("one resource plan", partial(get, "/resplans/resplan/{}"), "NAME"),
    "rp-delete": Command(
        "delete a resource plan", partial(send_each, "DELETE", "/resplans/resplan/{}", _DELETED), "NAME"
    ),
}
#: WMLA's commands that are not supported -> error.
UNSUPPORTED = {
    **dict.fromkeys(("pj-get-all", "k8s-obj-get", "k8s-obj-get-all"), _NO_KUBERNETES),
    "exec-deploy": _NO_SERVING,
}
#: Unsupported options of WMLA that name a model.
UNSUPPORTED_OPTIONS = ("--pbmodel-name", "--pbmodel-cmd")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.endswith("is required"):  # argparse's message would list all commands
            raise Misuse("Give a command, such as --status or --exec-get-all: dlicmd.py -h lists them.")
        hint = ""
        if message.startswith("argument --") and message.endswith("expected one argument"):
            hint = f" Write {message.split()[1].rstrip(':')}=VALUE for a value that begins with a dash."
        raise Misuse(f"{message[:1].upper()}{message[1:]}.{hint} See dlicmd.py -h.")


def parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="dlicmd.py",
        usage=USAGE,
        description="Start trainings, follow them, and download their results.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = made.add_argument_group("commands").add_mutually_exclusive_group(required=True)
    for name, command in COMMANDS.items():
        if command.value:
            more: dict[str, Any] = {"metavar": command.value, "nargs": command.count}
            more.update({"const": "2", "type": _hours} if command.count == "?" else {})
        else:
            more = {"action": "store_true"}
        commands.add_argument(f"--{name}", help=command.help, **more)
    for name in UNSUPPORTED:
        commands.add_argument(f"--{name}", help=argparse.SUPPRESS, nargs="*", metavar="ID")
    _add_connection(made.add_argument_group("connection options"))
    training = made.add_argument_group(
        "options of the training",
        "Options of --exec-start. Options that are not listed here are passed to the server (see --dl-frameworks), "
        "such as --numWorker N and --cs-datastore-meta type=fs,data_path=PATH. --hpo-start takes the first two.",
    )
    training.add_argument("--model-dir", metavar="FOLDER", help="folder to upload; links to folders are skipped")
    training.add_argument("--model-main", metavar="SCRIPT", help="script to run, relative to that folder")
    training.add_argument(
        "--user-cmd", action="store_true", help="run the words after -- as a command, once on each GPU"
    )
    training.add_argument("--ig", metavar="GROUP", help="instance group (default: chosen by the server)")
    applications = made.add_argument_group("options of --app-get-all and --app-history-get-all")
    applications.add_argument(
        "--app-search-start", metavar="N", type=int, default=0, help="applications to skip (default: 0)"
    )
    applications.add_argument(
        "--app-search-length", metavar="N", type=int, default=10000, help="most applications to show (default: 10000)"
    )
    return made


def _add_connection(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--rest-host", "--master-host", metavar="HOST", help="host, or https://HOST:PORT (default: of your last logon)"
    )
    group.add_argument(
        "--rest-port", "--dli-rest-port", metavar="PORT", type=_port, help="default: 443, or 80 if that is closed"
    )
    group.add_argument("--username", metavar="NAME", help="user name, instead of a kept logon")
    group.add_argument(
        "--password", metavar="WORD", help="password (default: prompt for it); -: read it from standard input"
    )
    group.add_argument("--jwt-token", metavar="TOKEN", help="token of the server, instead of a user name")
    group.add_argument(
        "--cacert", metavar="FILE", help="file of certificates to trust, for a self-signed server; kept by --logon"
    )
    group.add_argument("--insecure", action="store_true", help="do not check certificates: for tests only")
    group.add_argument("--query-args", metavar="A=B&C=D", default="", help="parameters added to each URL")
    group.add_argument("-o", "--output", metavar="FORMAT", type=_format, help="json, or custom-columns=HEAD:.field,...")
    group.add_argument(
        "--debug-level", choices=["debug", "info", "warn", "error"], default="info", help="debug: print each request"
    )


def _port(text: str) -> int:
    """Parse the port. Scripts for Cloud Pak use -1 for its route, which has no port."""
    if not (0 < int(text) < 65536 or int(text) == -1):
        raise ValueError
    return max(int(text), 0)


def _hours(text: str) -> str:
    if not 0 < float(text) < 1e6:
        raise ValueError
    return text


def _format(text: str) -> str:
    if text == "json" or (text.startswith("custom-columns=") and text != "custom-columns="):
        return text
    raise argparse.ArgumentTypeError("give json, or custom-columns=HEAD:.field,HEAD:.field")


def _refuse_misspelt(others: Sequence[str]) -> None:
    """Refuse a misspelled option of this program, which would otherwise reach the script."""
    ours = [option for action in parser()._actions for option in action.option_strings if option.startswith("--")]
    for other in others:
        name = other.partition("=")[0]
        if name in UNSUPPORTED_OPTIONS:
            raise Misuse(f"{name} is not supported here: send a script with --model-dir FOLDER --model-main SCRIPT.")
        near = difflib.get_close_matches(name, ours, n=1, cutoff=0.9)
        if other.startswith("--") and near:
            raise Misuse(f"Did you mean {near[0]} instead of {other}? Write arguments of the script after --.")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options, with `command`, `others` (options not defined here) and `script` (the words after `--`)."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, others = parser().parse_known_args(arguments[:end])
    options.others, options.script = others, list(arguments[end + 1 :])
    names = (*COMMANDS, *UNSUPPORTED)
    # An option that was not given is None, or False where it takes no value.
    given = [name for name in names if getattr(options, name.replace("-", "_")) not in (None, False)]
    options.command = given[0]
    if options.command in UNSUPPORTED:
        raise Misuse(UNSUPPORTED[options.command])
    _refuse_misspelt(others)
    if others and options.command != "exec-start":
        raise Misuse(f"Option {others[0]} is not known: see dlicmd.py -h.")
    if options.user_cmd and not options.script:
        raise Misuse("--user-cmd needs a command after --, such as --user-cmd -- torchrun train.py")
    return options


def main(arguments: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(errors="backslashreplace")
    try:
        options = parsed(arguments)
        logons = Logons(Path.home() / ".dlicmd")
        return COMMANDS[options.command].run(Call(found_server(options, logons), options, logons))
    except Problem as problem:
        note(f"dlicmd.py: {problem}")
        return problem.exit_code
    except BrokenPipeError:
        # The reader has closed standard output; without this, Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
