"""Changes of the sources in C, by hand: no parser of C is worth having for twenty files.

Each is a file, a piece of its text that stands there once, and what comes in its place. A piece that is gone is an
error of this list, to be mended with the source (`tests/pure/test_mutants.py`).
"""

from typing import Final

from tests.mutants.operators import Mutant
from tests.support.checkout import CHECKOUT

_CLIENT: Final = (
    # main.c
    ("main.c", "peer.uid == 0", "peer.uid != 1"),
    ("main.c", "    if (call.command && *call.command)\n", "    if (call.command)\n"),
    ("main.c", 'if (strncmp(*variable, "CNI_", 4))', 'if (strncmp(*variable, "CNI_", 3))'),
    ("main.c", "if (size > MAX_PAYLOAD / 2)\n", "if (size > MAX_PAYLOAD * 2)\n"),
    ("main.c", "    limit_wait(connection, SO_SNDTIMEO, milliseconds);\n", "    (void)milliseconds;\n"),
    ("main.c", "    limit_wait(connection, SO_RCVTIMEO, milliseconds);\n", "    (void)milliseconds;\n"),
    ("main.c", "            forget_standin(&one);\n", ""),
    ("main.c", "left && !*last_words(&one)", "left"),
    ("main.c", "limit_wait(connection, SO_RCVTIMEO, ANSWER_SECONDS * 1000);\n", ";\n"),
    ("main.c", "if (begun || (errno", "if ((errno"),
    ("main.c", "DONE && !begun && frame.version < VERSION", "DONE && begun && frame.version < VERSION"),
    ("main.c", "(begun ? frame.kind", "(frame.kind != BEGUN ? frame.kind"),
    ("main.c", "fields[4] = call->problem && *call->problem ? text", "fields[4] = call->problem ? text"),
    ("main.c", "done->count != 3", "done->count < 2"),
    ("main.c", "exit_status > 255", "exit_status > 256"),
    ("main.c", "    write_all(2, done->fields[2].data, done->fields[2].size);\n", ""),
    ("main.c", "frame.version != VERSION", "frame.version > VERSION"),
    ("main.c", "    open_standard_streams();\n", ""),
    ("main.c", "strlen(name) >= MAX_NAME", "strlen(name) > MAX_NAME"),
    ("main.c", " || !is_work(call)", ""),
    ("main.c", " || names_interpreter()", ""),
    ("main.c", "|| refusal->hangs || !is", "|| !is"),
    ("main.c", "+ COMING_SECONDS * 1000LL", ""),
    ("main.c", "if (!with.count)", "if (1)"),
    ("main.c", "path && *path ? path : WEFT_SOCKET", "path ? path : WEFT_SOCKET"),
    ("main.c", "if (begun && errno == ECONNRESET)", "if (errno == ECONNRESET)"),
    ("main.c", " && !getenv(TURN_VARIABLE)", ""),
    ("main.c", "        call->lost = 1;\n", ""),
    ("main.c", "noted.st_mtim.tv_sec >= socket.st_ctim.tv_sec", "1"),
    ("main.c", "    unlink(note);\n", ""),
    ("main.c", "(status == NOT_BEGUN && !refusal->hangs)", "0"),
    # frame.c
    ("frame.c", "field.size >= size || memchr", "field.size > size || memchr"),
    ("frame.c", " || memchr(field.data, 0, field.size)", ""),
    ("frame.c", "        message->msg_control = NULL;\n        message->msg_controllen = 0;\n", ""),
    ("frame.c", "message->msg_iov->iov_len -= (size_t)sent;", ""),
    ("frame.c", "            errno = ECONNRESET;", "            errno = EBADMSG;"),
    ("frame.c", "size - at < PREFIX_SIZE || frame->count", "size - at < 1 || frame->count"),
    ("frame.c", "if (field > size - at)", "if (field > size)"),
    ("frame.c", " || frame->count == MAX_FIELDS", " || frame->count == MAX_FIELDS - 1"),
    ("frame.c", "errno == EAGAIN && at > start", "0 && at > start"),
    # versions.c
    ("versions.c", "    if (!plugin)\n        plugin = written();\n", ""),
    ("versions.c", "return plugin ? plugin : name;", "return plugin;"),
    ("versions.c", '{"firewall", "0.4.0"}', '{"firewall", "0.3.1"}'),
    ("versions.c", '{"bandwidth", "0.3.0"}, ', ""),
    # netns.c
    ("netns.c", ' "host-local",', ""),
    ("netns.c", "where.f_type != NSFS_MAGIC && where.f_type != PROC_SUPER_MAGIC", "where.f_type != NSFS_MAGIC"),
    ("netns.c", "ioctl(netns, NS_GET_NSTYPE) == CLONE_NEWNET", "ioctl(netns, NS_GET_NSTYPE) != -1"),
    ("netns.c", "NETLINK_ROUTE));\n    return_home();", "NETLINK_ROUTE));"),
    ("netns.c", "name[0] == '.' || strchr(name, '/')", "strchr(name, '/')"),
    ("netns.c", "    return_home();\n    errno = error;\n", "    errno = error;\n"),
    # streams.c
    ("streams.c", "if (got < 0 && errno == EINTR)", "if (got < 0 && errno == EBADF)"),
    ("streams.c", "if (used == sizeof input)", "if (used > sizeof input)"),
    # delegate.c
    ("delegate.c", "S_ISREG(status.st_mode)", "!S_ISDIR(status.st_mode)"),
    ("delegate.c", "strchr(name, '/') || !strcmp(name, \".\")", '!strcmp(name, ".")'),
    ("delegate.c", "directory += size + (directory[size] == ':');", "directory += size + 1;"),
    ("delegate.c", 'size == strcspn(b, "=") && !strncmp(a, b, size)', "!strncmp(a, b, size)"),
    ("delegate.c", "*count += at == *count;", "++*count;"),
    ("delegate.c", "        signal(SIGPIPE, SIG_DFL);\n", ""),
    ("delegate.c", "error == ETXTBSY && i < BUSY_RETRIES", "error == ETXTBSY && i < 1"),
    ("delegate.c", "while (watched[OUTPUT].fd >= 0 || ", "while ("),
    ("delegate.c", " || watched[CHILD].fd >= 0)", ")"),
    ("delegate.c", "            ending = GIVEN_UP;\n", "            ending = ENDED;\n"),
    ("delegate.c", "            ending = ENDLESS;\n", "            ending = ENDED;\n"),
    ("delegate.c", "            until = now() + LINGER_SECONDS * 1000LL;\n", "            until = 0;\n"),
    ("delegate.c", "kill(child, SIGKILL);", "kill(child, 0);"),
    ("delegate.c", "    if (ending == GIVEN_UP)\n        return -1;\n", ""),
    ("delegate.c", "        if (ended < 0)\n            return 0;\n", ""),
    ("delegate.c", "EXIT_SIGNAL + WTERMSIG(status)", "WTERMSIG(status)"),
    ("delegate.c", "ending == ENDLESS || out->lost)", "ending == ENDLESS || !out->size)"),
    ("delegate.c", "        set_nonblocking(watched[i].fd);\n", "        if (i) set_nonblocking(watched[i].fd);\n"),
    # interpreter.c
    ("interpreter.c", "O_RDONLY | O_CLOEXEC | O_NOFOLLOW", "O_RDONLY | O_CLOEXEC"),
    ("interpreter.c", "status.st_uid != 0", "status.st_uid > 65534"),
    ("interpreter.c", "status.st_mode & (S_IWGRP | S_IWOTH)", "status.st_mode & S_IWOTH"),
    ("interpreter.c", "status->st_mode & (S_IWGRP | S_IWOTH)", "status->st_mode & S_IWOTH"),
    ("interpreter.c", "if (!is_roots(status->st_uid))", "if (!S_ISLNK(status->st_mode) && !is_roots(status->st_uid))"),
    ("interpreter.c", " && owner == overflow;", ";"),
    ("interpreter.c", "return read_numbers", "return 0 && read_numbers"),
    ("interpreter.c", "(S_ISDIR(status->st_mode) && status->st_mode & S_ISVTX)", "status->st_mode & S_ISVTX"),
    ("interpreter.c", "++links > MAX_LINKS", "++links >= MAX_LINKS"),
    ("interpreter.c", "(size_t)size + 1 + strlen(rest) >= MAX_PATH", "size >= MAX_PATH"),
    ("interpreter.c", "there = *way == '/' ? open", "there = 0 ? open"),
    ("interpreter.c", "name, O_PATH | O_NOFOLLOW", "name, O_PATH"),
    ("interpreter.c", "interpreter[0] != '/' || ", ""),
    # standin.c
    ("standin.c", "status.st_uid != 0", "status.st_uid > 65534"),
    ("standin.c", "status->st_mode & (S_IRWXG | S_IRWXO)", "status->st_mode & S_IRWXO"),
    ("standin.c", '"/proc/self/ns/mnt", ', ""),
    ("standin.c", '"/proc/self/ns/net", ', ""),
    ("standin.c", "    mix_file(&hash, &one->interpreter.status, 1);\n", ""),
    ("standin.c", "mix(&hash, set, strlen(set));", "mix(&hash, set, 0);"),
    ("standin.c", 'fstatat(one->opened, "state-dir", &status', 'fstatat(one->opened, "none", &status'),
    ("standin.c", "    setsid();\n", ""),
    ("standin.c", "    umask(022);\n", ""),
    ("standin.c", 'chdir("/") < 0 || ', ""),
    ("standin.c", " || dup2(null, 1) < 0", ""),
    ("standin.c", "syscall(SYS_close_range, LISTENING + 1, ~0U, 0) < 0", "0"),
    ("standin.c", "    if (present(one) == one->seen)\n        started = start(one);", "    started = start(one);"),
    ("standin.c", "unlinkat(one->opened, one->name, 0);", 'unlinkat(one->opened, "", 0);'),
    ("standin.c", "errno != EWOULDBLOCK || !left", "errno != EWOULDBLOCK"),
    ("standin.c", '"-I", ', ""),
    # error.c
    ("error.c", "byte == '\"' || byte == '\\\\'", "byte == '\"'"),
    ("error.c", "byte < 0x20 || byte > 0x7e", "byte < 0x20"),
)

_RELAY: Final = (
    # packet.c
    ("packet.c", "size >= sizeof half", "0"),
    ("packet.c", "own >= ip_header_size(ip) && own <= size ? own : 0", "own <= size ? own : 0"),
    ("packet.c", "ip_header_size(ip) < IP_HEADER", "ip_header_size(ip) < 1"),
    ("packet.c", "ip[8] <= 1", "ip[8] < 1"),
    ("packet.c", "sum + (sum >= 0xffff)", "sum"),
    ("packet.c", "place + 2 > size", "place + 1 > size"),
    ("packet.c", "sum || !udp ? sum : 0xffff", "sum"),
    ("packet.c", "IPV6_HEADER + (size_t)get16(ip + 4)", "(size_t)get16(ip + 4)"),
    ("packet.c", "is_v6(ip) ? sum_of(ip + 8, 32) : sum", "is_v6(ip) ? sum_of(ip + 8, 16) : sum"),
    ("packet.c", "ip[7] <= 1 ? -1", "ip[7] < 1 ? -1"),
    ("packet.c", "*at + 8 > size || ", ""),
    ("packet.c", "get16(header + 2) & 0xfff8", "get16(header + 2) & 0xffff"),
    ("packet.c", "high >> 54 == 0xfe80 >> 6", "high >> 48 == 0xfe80"),
    ("packet.c", "low <= 1 || ", "low < 1 || "),
    ("packet.c", " || means_nothing_there(ip + 24)", ""),
    # split.c
    ("split.c", "inner[13] &= (unsigned char)~(FIN | PSH);", "inner[13] &= (unsigned char)~FIN;"),
    ("split.c", "        if (number)\n", "        if (0)\n"),
    ("split.c", "(get16(ip + 4) + number)", "(get16(ip + 4))"),
    ("split.c", "number + 1 == all", "0"),
    ("split.c", "number < first + most && ", ""),
    ("split.c", "content_of(ip, size, 0, &shape.below)", "content_of(ip, size, 1, &shape.below)"),
    ("split.c", " && shape.below + own <= MAX_HEADERS", ""),
    ("split.c", "put16(out + 4, size - IPV6_HEADER);", "put16(out + 4, size);"),
    # join.c
    ("join.c", "(ip[below + 13] & ~PUSH) == ACK", "(ip[below + 13] & ACK)"),
    ("join.c", " && get16(ip + below + 6))", ")"),
    ("join.c", "headers && !content_is_right(ip, size)", "0"),
    ("join.c", "memcmp(a + 6, b + 6, 4)", "memcmp(a + 6, b + 6, 2)"),
    ("join.c", "!memcmp(a + 12, b + 12, 8)", "1"),
    ("join.c", "return !memcmp(a + below, b + below, 4);", "return 1;"),
    ("join.c", "!memcmp(a, b, 4) && !memcmp(a + 8", "!memcmp(a + 8"),
    ("join.c", "return !memcmp(a, b, 4) && !memcmp(a + 6", "return !memcmp(a + 6"),
    ("join.c", "IPV6_HEADER - 6)", "IPV6_HEADER - 7)"),
    ("join.c", "is_v6(ip) ? VNET_TCP6 : VNET_TCP4", "VNET_TCP4"),
    ("join.c", "!memcmp(a + 8, b + 8, 5)", "1"),
    ("join.c", "get32(ip + below + 4) != join->next", "0"),
    ("join.c", "join->total + content > MAX_PACKET", "0"),
    ("join.c", "    if (content < join->each)\n        join->closed = 1;\n", ""),
    ("join.c", "join->ip[below + 13] |= PUSH;", ";"),
    ("join.c", "join->udp && ", ""),
    # icmp.c
    ("icmp.c", "ip[16] >= 224", "0"),
    ("icmp.c", "kind != 8 && ", ""),
    ("icmp.c", "ip[at] < 128 || ", ""),
    ("icmp.c", " || ip[at] == 137", ""),
    ("icmp.c", "content_of(ip, size, 1, &at)", "content_of(ip, size, 0, &at)"),
    ("icmp.c", "KINDS6[error], MAX_ICMP6", "KINDS6[error], MAX_ICMP"),
    ("icmp.c", "            put32(out + 4, mtu);\n", "            ;\n"),
    # table.c
    ("table.c", "for (int each = ADDRESS_BITS;", "for (int each = ADDRESS_BITS - 1;"),
    ("table.c", "    network = masked(network, length);\n    if (make", "    if (make"),
    ("table.c", "a.high == b.high && ", ""),
    ("table.c", "is_mapped(destination) ? MAPPED_BITS : 0", "0"),
    ("table.c", "    table->index[hole] = 0;\n", ""),
    ("table.c", "    if (--peer->uses)\n        return;\n", "    --peer->uses;\n"),
    ("table.c", "        table->routes[number] = *last;\n", ""),
    # out.c
    ("out.c", "ip[6] & 0x40", "0"),
    ("out.c", "get16(ip + 4) > LEAST_MTU", "get16(ip + 4) > LEAST_MTU + 1"),
    ("out.c", "is_v6(ip) && mtu < LEAST_MTU", "0"),
    ("out.c", "!size || is_local(ip)", "!size"),
    ("out.c", "size > run->each", "size != run->each"),
    ("out.c", "    run->closed = size < run->each;\n", ""),
    ("out.c", "spend_ttl(ip) < 0", "0"),
    ("out.c", "how->flags & VNET_NEEDS_CSUM && complete", "0 && complete"),
    # endpoint.c
    ("endpoint.c", "may ? IP_PMTUDISC_WANT :", "may ? IP_PMTUDISC_DO :"),
    ("endpoint.c", "may ? IPV6_PMTUDISC_WANT :", "may ? IPV6_PMTUDISC_DO :"),
    ("endpoint.c", "(v4 ? IP_HEADER : IPV6_HEADER)", "IP_HEADER"),
    # in.c
    ("in.c", "!size || !header_is_right(ip)", "!size"),
    ("in.c", "    if (!peer) {\n", "    if (0) {\n"),
    ("in.c", "    if (is_local(ip)) {\n", "    if (0) {\n"),
    # control.c
    ("control.c", "peer.uid == 0", "peer.uid != 1"),
    ("control.c", "changes[0] == SET && changes[1] <= ADDRESS_BITS", "changes[0] == SET"),
    ("control.c", "            if (from && from--)\n                continue;\n", "            (void)from;\n"),
    # main.c
    ("main.c", "drop_rights() < 0", "0"),
    # queue.c
    ("queue.c", "queue->errors[error]++", "queue->errors[0]++"),
    ("queue.c", "queue->errors[error] >= ERRORS_A_SECOND", "0"),
)

_PATH: Final = (
    ("path.c", "inner.ttl <= 1 || ntohs", "ntohs"),
    ("path.c", "ntohs(inner.tot_len) != size || ", ""),
    ("path.c", "!to->kernel || ", ""),
    ("path.c", "sizeof outer + piece", "piece"),
    ("path.c", "if (!skb->gso_size)", "if (1)"),
    ("path.c", "(words >> 4) * 4u", "0"),
    ("path.c", "    outer.ip.frag_off = htons(DONT_FRAGMENT);\n", ""),
    ("path.c", "path.ifindex != ours->uplink", "0"),
    ("path.c", "outer.ip.check = checksum(&outer.ip);", ";"),
    ("path.c", "spend_ttl(skb, sizeof outer, &inner) < 0 || ", ""),
    ("path.c", " || ip->frag_off & htons(FRAGMENT)", ""),
    ("path.c", "ip->daddr != ours->local || ", ""),
    ("path.c", " || whole.outer.udp.dest != ours->port", ""),
    ("path.c", " || inner->ttl <= 1", ""),
    ("path.c", " || checksum(inner)", ""),
    ("path.c", " || from->via != ip->saddr", ""),
    ("path.c", " || is_unfinished(&whole.outer)", ""),
    ("path.c", "inner.ihl != 5 || ", ""),
    ("path.c", "spend_ttl(skb, ours->link_header, inner) < 0", "0"),
    ("path.c", "ip->check = (__u16)(sum + (sum >> 16));", "ip->check = (__u16)sum;"),
)

_LAUNCH: Final = (
    ("init.c", "SIGHUP, ", ""),
    ("init.c", "            if (ended == daemon)\n                return status;", "            return status;"),
    ("init.c", "*stopping |= number == SIGTERM || ", "*stopping |= "),
    ("init.c", "crashes[i] > now - CRASH_SECONDS", "crashes[i] > now"),
    ("init.c", "    sigprocmask(SIG_SETMASK, usual, NULL);\n", "    (void)usual;\n"),
    ("init.c", "if (stopping || (", "if (("),
    ("init.c", " && ran < STARTED_SECONDS)", ")"),
    ("init.c", "            kill(daemon, number);\n", ""),
    ("launch.c", "return memcmp(magic,", "return !memcmp(magic,"),
    ("launch.c", "for (int up = 0; up < 2;", "for (int up = 0; up < 1;"),
    ("launch.c", 'setenv("XTABLES_LIBDIR", path(extensions, "%s/lib/xtables", home), 1);', "(void)extensions;"),
    ("launch.c", "    for (int i = 1; i < argc; i++)\n        *at++ = argv[i];\n", ""),
)

CHANGES: Final = (
    *(("src/weft/cni/client", *change) for change in _CLIENT),
    *(("src/weft/cni/launch", *change) for change in _LAUNCH),
    *(("src/weft/forward/relay", *change) for change in _RELAY),
    *(("src/weft/forward/bpf", *change) for change in _PATH),
)


_STANDIN: Final = "test_cni_standin test_cni_standin_daemon test_cni_standin_ends test_cni_client_standin"
_TESTS: Final = {  # by the beginning of the path, the likeliest and quickest first; the first that fits counts
    "src/weft/cni/client/interpreter.c": _STANDIN,
    "src/weft/cni/client/standin.c": _STANDIN,
    "src/weft/cni/client/delegate.c": "test_cni_delegates test_cni_client_odd test_cni_flannel_verbs",
    "src/weft/cni/client/netns.c": "test_cni_server test_cni_refusals test_cni_client test_cni_standin",
    "src/weft/cni/client/": (
        "test_cni_client test_cni_client_odd test_cni_client_calls test_cni_client_limits test_cni_client_standin"
        " test_cni_server test_cni_refusals test_cni_turns test_cni_delegates test_cni_standin"
    ),
    "src/weft/cni/launch/launch.c": "test_cni_nodepart test_image",
    "src/weft/cni/launch/": "test_image",
    "src/weft/forward/relay/": "test_relay_packets test_relay test_relay_v6",
    "src/weft/forward/bpf/": "test_kernelpath test_relay",
}


def tests(path: str) -> list[str]:
    """The files of tests that try a source in C."""
    names = next(names for start, names in _TESTS.items() if path.startswith(start))
    return [f"tests/kernel/{name}.py" for name in names.split()]


def mutants() -> list[Mutant]:
    return [_mutant(*change) for change in CHANGES]


def _mutant(directory: str, name: str, old: str, new: str) -> Mutant:
    path = f"{directory}/{name}"
    text = (CHECKOUT / path).read_text()
    if text.count(old) != 1:
        raise SystemExit(f"tests/mutants/csources.py: {old!r} stands {text.count(old)} times in {path}, not once")
    start = text.index(old)
    line = text.count("\n", 0, start) + 1
    return Mutant(
        path=path,
        line=line,
        start=start,
        end=start + len(old),
        old=old,
        new=new,
        operator="by hand",
        source=text.splitlines()[line - 1].strip(),
    )
