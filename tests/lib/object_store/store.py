"""An object store for tests: a part of S3's protocol, in memory.

It checks each signature (SigV4) and each body's hash by itself, and creates objects atomically. Its stdin takes one
command per line and answers each with one line; it ends with its stdin. The first line that it prints is its port.

  fault VERB KIND COUNT   the next COUNT requests of this verb (put, get, list, delete, copy; any) go wrong:
                          a number (status) or one of the kinds of `Handler.spoil`
  calm                    nothing goes wrong any more
  credentials ID SECRET TOKEN   those it accepts from now on; TOKEN "-": none
  expire                  says that the credentials have expired, until there are others
  clock S                 its clock is S seconds ahead
  latency MS              of each request
  hold | go               requests wait | no longer
  stalls N MS             every N-th request gets no answer, and its connection ends after MS ms; 0: none
  page N                  names on a page of a list
  quota BYTES             all objects together
  careless                from now on, If-None-Match is checked some time before the object is created
  silent                  from now on, it reads bodies without having asked for them (100 Continue)
  down | up               the port is closed and its connections are cut | open again
  alter NAME OFFSET       flips a bit of an object
  cut NAME BYTES          an object loses its last bytes
  remove NAME
  remember | recall       the objects of now; those that are gone come back
  names                   all of them, sorted
  count VERB              requests of this verb so far
  busiest                 most requests at once since the last such command
"""
import datetime
import email.utils
import hashlib
import hmac
import http.server
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse

EMPTY = hashlib.sha256(b"").hexdigest()


class Store:
    def __init__(self):
        self.lock = threading.Lock()
        self.objects = {}  # name: (bytes, metadata, time)
        self.remembered = {}
        self.faults = []  # [verb, kind, count]
        self.credentials = ("test-id", "test-secret", "")
        self.expired = False
        self.ahead_s = 0
        self.latency_s = 0.0
        self.goes = threading.Event()
        self.goes.set()
        self.stalls, self.stall_s, self.n_requests = 0, 0.0, 0
        self.page = 1000
        self.quota = None
        self.careless = self.silent = False
        self.counts = {}
        self.active = self.busiest = 0
        self.connections = set()
        self.is_down = False

    def now(self):
        return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.ahead_s)

    def is_stalled(self):
        with self.lock:
            self.n_requests += 1
            return self.stalls > 0 and self.n_requests % self.stalls == 0

    def fault(self, verb):
        with self.lock:
            for fault in self.faults:
                if fault[0] in (verb, "any") and fault[2] > 0:
                    fault[2] -= 1
                    return fault[1]
        return None


STORE = Store()


class Refused(Exception):
    def __init__(self, status, code, text="", headers=None):
        super().__init__(code)
        self.status, self.code, self.text, self.headers = status, code, text, headers or {}


class Cut(Exception):
    """The connection ends without a reply, or within it."""


def sign(secret, date, region, request):
    key = ("AWS4" + secret).encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, request.encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def version_string(self):
        return "test"

    def date_time_string(self, timestamp=None):
        return email.utils.format_datetime(STORE.now(), usegmt=True)

    def handle_expect_100(self):
        is_good = STORE.silent or super().handle_expect_100()
        self.wfile.flush()
        return is_good

    def setup(self):
        super().setup()
        with STORE.lock:
            STORE.connections.add(self.connection)

    def finish(self):
        with STORE.lock:
            STORE.connections.discard(self.connection)
        try:
            super().finish()
        except OSError:
            pass

    # ---- checks ----

    def canonical_request(self, signed):
        url = urllib.parse.urlsplit(self.path)
        pairs = [tuple(pair.split("=", 1)) for pair in url.query.split("&") if pair]
        query = "&".join("=".join(pair) for pair in sorted(pairs))
        for name, value in pairs:
            for text in (name, value):
                if urllib.parse.quote(urllib.parse.unquote(text), safe="-_.~") != text:
                    raise Refused(400, "InvalidURI", "the query is not escaped as it has to be")
        headers = "".join(f"{name}:{' '.join(self.headers.get(name, '').split())}\n" for name in signed)
        return "\n".join([self.command, url.path, query, headers, ";".join(signed),
                          self.headers.get("x-amz-content-sha256", "")])

    def check_signature(self):
        scheme, _, rest = self.headers.get("authorization", "").partition(" ")
        fields = dict(part.strip().split("=", 1) for part in rest.split(",") if "=" in part)
        if scheme != "AWS4-HMAC-SHA256" or not {"Credential", "SignedHeaders", "Signature"} <= set(fields):
            raise Refused(403, "AccessDenied", "not signed")
        ident, date, region, service, last = fields["Credential"].split("/")
        signed = fields["SignedHeaders"].split(";")
        must = {"host", "x-amz-date", "x-amz-content-sha256"} | {
            name.lower() for name in self.headers if name.lower().startswith("x-amz-")}
        if signed != sorted(signed) or not must <= set(signed) or (service, last) != ("s3", "aws4_request"):
            raise Refused(403, "SignatureDoesNotMatch", "a header is not signed")
        with STORE.lock:
            known, secret, token = STORE.credentials
            is_expired = STORE.expired
        if ident != known:
            raise Refused(403, "InvalidAccessKeyId")
        if is_expired or self.headers.get("x-amz-security-token", "") != token:
            raise Refused(400 if is_expired else 403, "ExpiredToken" if is_expired else "InvalidToken")
        stamp = self.headers["x-amz-date"]
        made = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs((made - STORE.now()).total_seconds()) > 900:
            raise Refused(403, "RequestTimeTooSkewed")
        digest = hashlib.sha256(self.canonical_request(signed).encode()).hexdigest()
        request = "\n".join(["AWS4-HMAC-SHA256", stamp, f"{date}/{region}/s3/aws4_request", digest])
        if date != stamp[:8] or not hmac.compare_digest(sign(secret, date, region, request), fields["Signature"]):
            raise Refused(403, "SignatureDoesNotMatch")

    def read_body(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.has_read = True
        if len(body) < int(self.headers.get("content-length", 0)):
            raise Cut()
        return body

    def cut(self):
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        raise Cut()

    def spoil(self, kind):
        """What goes wrong before the request is served; the rest goes wrong in reply()."""
        if kind == "reset":  # nothing is done
            self.cut()
        elif kind == "slow":  # asks for fewer requests
            raise Refused(503, "SlowDown")
        elif kind.startswith("later"):
            when = {"later": "1", "later-days": "86400", "later-words": "80000 or so"}[kind]
            raise Refused(503, "ServiceUnavailable", headers={"Retry-After": when})
        elif kind == "stall":
            time.sleep(3)
            self.cut()
        elif kind.isdigit():
            names = {500: "InternalError", 403: "AccessDenied", 409: "ConditionalRequestConflict",
                     507: "InsufficientStorage"}
            raise Refused(int(kind), names.get(int(kind), "Other"))

    # ---- replies ----

    def reply(self, status, body=b"", headers=None, kind=None):
        length = len(body)
        if kind == "truncate":  # a whole reply of fewer bytes
            body = body[: length // 2]
            length = len(body)
        if kind == "longer" and status == 206:  # bytes that nobody has asked for
            body += b"x" * (8 << 20)
            length = len(body)
        if kind == "alter" and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if kind == "reset-half":
            self.wfile.write(body[: length // 2])
            self.cut()
        self.wfile.write(body)

    def serve(self, verb, act):
        self.has_read = False
        with STORE.lock:
            STORE.counts[verb] = STORE.counts.get(verb, 0) + 1
            STORE.active += 1
            STORE.busiest = max(STORE.busiest, STORE.active)
        try:
            time.sleep(STORE.latency_s)
            STORE.goes.wait()
            if STORE.is_stalled():
                time.sleep(STORE.stall_s)
                self.cut()
            kind = STORE.fault(verb)
            self.check_signature()
            if kind == "reset-early":  # while the body comes
                self.cut()
            if kind == "stall-early":
                time.sleep(0.5)
            self.body = self.read_body()
            if kind:
                self.spoil(kind)
            act(kind)
        except Refused as refused:
            if not self.has_read and int(self.headers.get("content-length", 0)):
                self.close_connection = True
            body = (f'<?xml version="1.0"?><Error><Code>{refused.code}</Code><Message>{refused.text}</Message>'
                    "</Error>").encode()
            head = dict(refused.headers)
            if self.close_connection:
                head["Connection"] = "close"
            self.reply(refused.status, b"" if self.command == "HEAD" else body, head)
        except (Cut, OSError):
            self.close_connection = True
        finally:
            with STORE.lock:
                STORE.active -= 1

    def name(self):
        path = urllib.parse.urlsplit(self.path).path.split("/", 2)
        if path[1] != "bucket":
            raise Refused(404, "NoSuchBucket")
        return path[2] if len(path) > 2 else ""

    # ---- requests ----

    def create(self, body, meta):
        """At once; but a careless store looks long before it creates."""
        name, is_new = self.name(), self.headers.get("if-none-match") == "*"
        with STORE.lock:
            if is_new and not STORE.careless and name in STORE.objects:
                raise Refused(412, "PreconditionFailed")
            used = sum(len(o[0]) for n, o in STORE.objects.items() if n != name)
            if STORE.quota is not None and used + len(body) > STORE.quota:
                raise Refused(507, "InsufficientStorage")
            STORE.objects[name] = (body, meta, STORE.now())

    def put(self, kind):
        if STORE.careless and self.headers.get("if-none-match") == "*":
            with STORE.lock:
                if self.name() in STORE.objects:
                    raise Refused(412, "PreconditionFailed")
            time.sleep(0.2)
        if hashlib.sha256(self.body).hexdigest() != self.headers["x-amz-content-sha256"] or kind == "alter":
            raise Refused(400, "XAmzContentSHA256Mismatch")
        self.create(self.body, self.headers.get("x-amz-meta-spillway-key", ""))
        if kind == "lost-reply":  # done, but the client cannot know
            self.cut()
        if kind == "twice":  # a proxy has sent it again
            raise Refused(412, "PreconditionFailed")
        self.reply(200)

    def copy(self, kind):
        source = self.headers["x-amz-copy-source"].lstrip("/").split("/", 1)[1]
        with STORE.lock:
            if source not in STORE.objects:
                raise Refused(404, "NoSuchKey")
            body = STORE.objects[source][0]
        if kind == "late":  # it fails when the reply has begun
            raise Refused(200, "InternalError")
        self.create(body, self.headers.get("x-amz-meta-spillway-key", ""))
        self.reply(200, b"<CopyObjectResult></CopyObjectResult>", kind=kind)

    def find(self):
        with STORE.lock:
            found = STORE.objects.get(self.name())
        if not found:
            raise Refused(404, "NoSuchKey")
        return found

    def get(self, kind):
        body, meta, _ = self.find()
        wanted = self.headers.get("range", "")
        if not wanted.startswith("bytes="):
            return self.reply(200, body, {"x-amz-meta-spillway-key": meta}, kind)
        first, last = (int(number) for number in wanted[6:].split("-"))
        if first >= len(body):
            raise Refused(416, "InvalidRange")
        head = {"x-amz-meta-spillway-key": meta, "Content-Range": f"bytes {first}-{last}/{len(body)}"}
        return self.reply(206, body[first : last + 1], head, kind)

    def list(self, kind):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        with STORE.lock:
            names = sorted(n for n in STORE.objects if n.startswith(query.get("prefix", "")))
            after = query.get("continuation-token", "")
            names = [n for n in names if "+" + n > after]  # the token needs an escape
            page = names[: STORE.page]
            items = "".join(
                f"<Contents><Key>{n}</Key><LastModified>{STORE.objects[n][2]:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
                f"<Size>{len(STORE.objects[n][0])}</Size></Contents>" for n in page)
        more = len(names) > len(page)
        token = f"<NextContinuationToken>&#43;{page[-1]}</NextContinuationToken>" if more else ""
        self.reply(200, (f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>'
                         f"{token}{items}</ListBucketResult>").encode(), kind=kind)

    def delete(self, kind):
        with STORE.lock:
            STORE.objects.pop(self.name(), None)
        if kind == "lost-reply":
            self.cut()
        self.reply(204)

    def head(self, _kind):
        body, meta, _ = self.find()
        self.send_response(200)
        self.send_header("x-amz-meta-spillway-key", meta)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()

    def do_PUT(self):
        if "x-amz-copy-source" in self.headers:
            self.serve("copy", self.copy)
        else:
            self.serve("put", self.put)

    def do_GET(self):
        is_list = "list-type=2" in self.path
        self.serve("list" if is_list else "get", self.list if is_list else self.get)

    def do_HEAD(self):
        self.serve("head", self.head)

    def do_DELETE(self):
        self.serve("delete", self.delete)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        pass


def listen(address, tls):
    server = Server(address, Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls + "/certificate.pem", tls + "/key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


def cut_all():
    with STORE.lock:
        for connection in STORE.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def run(words, server, tls):
    """Runs a command; returns its answer, and the server."""
    name, args, answer = words[0], words[1:], "ok"
    if name == "down":
        server.shutdown()
        server.server_close()
        cut_all()
    elif name == "up":
        server = listen(server.server_address, tls)
    elif name == "fault":
        with STORE.lock:
            STORE.faults.append([args[0], args[1], int(args[2])])
    elif name == "calm":
        with STORE.lock:
            STORE.faults.clear()
    elif name == "credentials":
        with STORE.lock:
            STORE.credentials, STORE.expired = (args[0], args[1], "" if args[2] == "-" else args[2]), False
    elif name in ("expire", "careless", "silent"):
        setattr(STORE, {"expire": "expired"}.get(name, name), True)
    elif name == "clock":
        STORE.ahead_s = int(args[0])
    elif name == "latency":
        STORE.latency_s = int(args[0]) / 1000
    elif name in ("hold", "go"):
        (STORE.goes.clear if name == "hold" else STORE.goes.set)()
    elif name == "stalls":
        STORE.stalls, STORE.stall_s = int(args[0]), int(args[1]) / 1000
    elif name in ("page", "quota"):
        setattr(STORE, name, int(args[0]))
    elif name == "alter":
        with STORE.lock:
            body, meta, made = STORE.objects[args[0]]
            at = int(args[1])
            STORE.objects[args[0]] = (body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :], meta, made)
    elif name == "cut":
        with STORE.lock:
            body, meta, made = STORE.objects[args[0]]
            STORE.objects[args[0]] = (body[: -int(args[1])], meta, made)
    elif name == "remove":
        with STORE.lock:
            del STORE.objects[args[0]]
    elif name == "remember":
        STORE.remembered = dict(STORE.objects)
    elif name == "recall":
        with STORE.lock:
            STORE.objects = {**STORE.remembered, **STORE.objects}
    elif name == "names":
        answer = " ".join(sorted(STORE.objects))
    elif name == "count":
        answer = str(STORE.counts.get(args[0], 0))
    elif name == "busiest":
        with STORE.lock:
            answer, STORE.busiest = str(STORE.busiest), STORE.active
    else:
        answer = "unknown"
    return answer, server


def main():
    tls = sys.argv[1] if len(sys.argv) > 1 else None  # a folder with a certificate; "": none
    server = listen((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", 0), tls)
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        answer, server = run(line.split(), server, tls)
        print(answer, flush=True)


main()
