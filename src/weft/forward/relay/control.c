/* What the daemon asks and says, a message each (weft/forward/control.py describes them). Root alone is answered. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay.h"

enum {
    PROTOCOL = 3,
    CLIENTS = 4,
    LARGEST = 1 << 16,
    CHANGE = 36,                /* bytes of a change, and of a route */
    SET = 1,
    DELETE = 2,
    CLEAR = 3,
};

struct state {
    uint32_t protocol, pid, confined, unused;
    uint64_t generation, counters[4 + DROPS];
};

struct peer_state {
    unsigned char address[16];
    uint64_t counters[4];
};

static unsigned char request[LARGEST], answer[LARGEST];

static struct address read_address(const unsigned char *at)
{
    return (struct address){get64(at), get64(at + 8)};
}

static void write_address(unsigned char *at, struct address address)
{
    put64(at, address.high);
    put64(at + 8, address.low);
}

static int is_root(int client)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == 0;
}

static size_t tell_state(const struct table *table, const struct daemon *daemon, struct queue *queues, int number)
{
    struct state state = {.protocol = PROTOCOL, .pid = (uint32_t)getpid(), .confined = daemon->confined};
    size_t words = strlen(daemon->about);

    state.generation = table->generation;
    for (int i = 0; i < number; i++) {
        struct counters *one = &queues[i].counters;
        state.counters[0] += atomic_load(&one->sent);
        state.counters[1] += atomic_load(&one->sent_bytes);
        state.counters[2] += atomic_load(&one->received);
        state.counters[3] += atomic_load(&one->received_bytes);
        for (int why = 0; why < DROPS; why++)
            state.counters[4 + why] += atomic_load(&one->dropped[why]);
    }
    memcpy(answer, &state, sizeof state);
    memcpy(answer + sizeof state, daemon->about, words);
    return sizeof state + words;
}

/* Carries out changes up to the first that cannot be; tells that one's errno, 0 if all were. */
static size_t change(struct table *table, const unsigned char *changes, size_t size)
{
    uint32_t error = size % CHANGE ? EINVAL : 0;

    table_write(table);
    for (; size >= CHANGE && !error; size -= CHANGE, changes += CHANGE) {
        if (changes[0] == SET && changes[1] <= ADDRESS_BITS) {
            if (table_set(table, read_address(changes + 4), changes[1], read_address(changes + 20)) < 0)
                error = ENOMEM;
        } else if (changes[0] == DELETE && changes[1] <= ADDRESS_BITS) {
            table_delete(table, read_address(changes + 4), changes[1]);
        } else if (changes[0] == CLEAR) {
            table_clear(table);
        } else {
            error = EINVAL;
        }
    }
    memcpy(answer, &error, sizeof error);
    memset(answer + 4, 0, 4);
    memcpy(answer + 8, &table->generation, sizeof table->generation);
    table_done(table);
    return 16;
}

static size_t tell_routes(const struct table *table, uint32_t from)
{
    size_t used = 0;

    for (; from < table->count && used + CHANGE <= sizeof answer; from++, used += CHANGE) {
        const struct route *route = table->routes + from;
        answer[used] = SET;
        answer[used + 1] = route->length;
        answer[used + 2] = answer[used + 3] = 0;
        write_address(answer + used + 4, route->network);
        write_address(answer + used + 20, route->peer->address);
    }
    return used;
}

static size_t tell_peers(const struct table *table, uint32_t from)
{
    size_t used = 0;

    for (int bucket = 0; bucket < PEER_BUCKETS; bucket++)
        for (struct peer *peer = table->peers[bucket]; peer; peer = peer->next) {
            struct peer_state state;
            if (from && from--)
                continue;
            if (used + sizeof state > sizeof answer)
                return used;
            write_address(state.address, peer->address);
            state.counters[0] = atomic_load(&peer->sent);
            state.counters[1] = atomic_load(&peer->sent_bytes);
            state.counters[2] = atomic_load(&peer->received);
            state.counters[3] = atomic_load(&peer->received_bytes);
            memcpy(answer + used, &state, sizeof state);
            used += sizeof state;
        }
    return used;
}

/* Answers one message: 1, 0 if the client has gone or makes no sense, -1 at the end of the relay. */
static int serve(int client, const struct daemon *daemon, struct table *table, struct queue *queues, int number)
{
    ssize_t got = recv(client, request, sizeof request, MSG_DONTWAIT);
    uint32_t from = 0;
    size_t size;

    if (got < 4)
        return got < 0 && errno == EAGAIN;
    if (got >= 8)
        memcpy(&from, request + 4, sizeof from);
    switch (request[0]) {
    case 'S':
        size = tell_state(table, daemon, queues, number);
        break;
    case 'C':
        size = change(table, request + 4, (size_t)got - 4);
        break;
    case 'R':
        size = tell_routes(table, from);
        break;
    case 'P':
        size = tell_peers(table, from);
        break;
    case 'E':
        return -1;
    default:
        return 0;
    }
    return send(client, answer, size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static void admit(int listener, struct pollfd *clients)
{
    int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (client < 0)
        return;
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd < 0 && is_root(client)) {
            clients[i].fd = client;
            return;
        }
    close(client);
}

void control_serve(const struct daemon *daemon, struct table *table, struct queue *queues, int number)
{
    struct pollfd watched[1 + CLIENTS] = {{daemon->listener, POLLIN, 0}};

    for (int i = 1; i <= CLIENTS; i++)
        watched[i] = (struct pollfd){-1, POLLIN, 0};
    for (;;) {
        poll(watched, 1 + CLIENTS, -1);
        for (int i = 1; i <= CLIENTS; i++) {
            int asked = watched[i].fd >= 0 && watched[i].revents;
            int served = asked ? serve(watched[i].fd, daemon, table, queues, number) : 1;
            if (served < 0)
                return;
            if (!served) {
                close(watched[i].fd);
                watched[i].fd = -1;
            }
        }
        if (watched[0].revents)
            admit(daemon->listener, watched + 1);
    }
}
