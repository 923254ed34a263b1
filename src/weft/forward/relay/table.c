/* Longest prefix match: a hash over network and length, asked for each length that occurs, the longest first. The
 * subnets of a cluster have one length in each family, or two, so that is a look or some. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

enum { FIRST_ROOM = 64 };

void table_start(struct table *table)
{
    memset(table, 0, sizeof *table);
    pthread_rwlock_init(&table->lock, NULL);
    pthread_mutex_init(&table->gate, NULL);
}

void table_read(struct table *table)
{
    pthread_mutex_lock(&table->gate);
    pthread_mutex_unlock(&table->gate);
    pthread_rwlock_rdlock(&table->lock);
}

void table_write(struct table *table)
{
    pthread_mutex_lock(&table->gate);
    pthread_rwlock_wrlock(&table->lock);
    pthread_mutex_unlock(&table->gate);
}

void table_done(struct table *table)
{
    pthread_rwlock_unlock(&table->lock);
}

static struct address masked(struct address address, int length)
{
    address.high &= length >= 64 ? UINT64_MAX : length ? UINT64_MAX << (64 - length) : 0;
    address.low &= length >= 128 ? UINT64_MAX : length > 64 ? UINT64_MAX << (128 - length) : 0;
    return address;
}

static int is_same(struct address a, struct address b)
{
    return a.high == b.high && a.low == b.low;
}

static uint32_t hash(struct address network, int length)
{
    uint64_t mixed = (network.high * 0xff51afd7ed558ccdu ^ network.low ^ (uint64_t)length) * 0x9e3779b97f4a7c15u;

    return (uint32_t)(mixed >> 32);
}

/* The place of a route in `index`, or the free one where it would be. */
static uint32_t *place_of(const struct table *table, struct address network, int length)
{
    uint32_t at = hash(network, length) & (table->slots - 1);

    for (;; at = (at + 1) & (table->slots - 1)) {
        uint32_t *slot = table->index + at;
        if (!*slot)
            return slot;
        const struct route *route = table->routes + *slot - 1;
        if (route->length == length && is_same(route->network, network))
            return slot;
    }
}

static void index_all(struct table *table)
{
    memset(table->index, 0, table->slots * sizeof *table->index);
    for (uint32_t i = 0; i < table->count; i++)
        *place_of(table, table->routes[i].network, table->routes[i].length) = i + 1;
}

/* Makes room for one more; the index stays at most a quarter full. */
static int make_room(struct table *table)
{
    uint32_t room = table->room ? table->room * 2 : FIRST_ROOM;
    struct route *routes;
    uint32_t *index;

    if (table->count < table->room)
        return 0;
    index = calloc((size_t)room * 4, sizeof *index);
    if (!index)
        return -1;
    routes = realloc(table->routes, room * sizeof *routes);
    if (!routes) {
        free(index);
        return -1;
    }
    free(table->index);
    table->routes = routes;
    table->index = index;
    table->room = room;
    table->slots = room * 4;
    index_all(table);
    return 0;
}

struct peer *table_peer(const struct table *table, struct address address)
{
    struct peer *peer = table->peers[hash(address, 0) % PEER_BUCKETS];

    while (peer && !is_same(peer->address, address))
        peer = peer->next;
    return peer;
}

static struct peer *take(struct table *table, struct address address)
{
    struct peer *peer = table_peer(table, address), **bucket = table->peers + hash(address, 0) % PEER_BUCKETS;

    if (!peer) {
        peer = calloc(1, sizeof *peer);
        if (!peer)
            return NULL;
        peer->address = address;
        peer->next = *bucket;
        *bucket = peer;
    }
    peer->uses++;
    return peer;
}

static void give(struct table *table, struct peer *peer)
{
    struct peer **at = table->peers + hash(peer->address, 0) % PEER_BUCKETS;

    if (--peer->uses)
        return;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    free(peer);
}

/* Counts a route more or less of a length. */
static void count_length(struct table *table, int length, int more)
{
    table->lengths[length] += (unsigned)more;
    table->kinds = 0;
    for (int each = ADDRESS_BITS; each >= 0; each--)
        if (table->lengths[each])
            table->used[table->kinds++] = (uint8_t)each;
}

int table_set(struct table *table, struct address network, int length, struct address address)
{
    struct peer *peer;
    uint32_t *slot;

    network = masked(network, length);
    if (make_room(table) < 0)
        return -1;
    peer = take(table, address);
    if (!peer)
        return -1;
    slot = place_of(table, network, length);
    if (*slot) {
        give(table, table->routes[*slot - 1].peer);
        table->routes[*slot - 1].peer = peer;
    } else {
        table->routes[table->count] = (struct route){network, (uint8_t)length, peer};
        *slot = ++table->count;
        count_length(table, length, 1);
    }
    table->generation++;
    return 0;
}

/* Frees a place; what was put further on because of it moves back. */
static void free_place(struct table *table, uint32_t hole)
{
    uint32_t mask = table->slots - 1, at = hole;

    for (;;) {
        at = (at + 1) & mask;
        if (!table->index[at])
            break;
        const struct route *route = table->routes + table->index[at] - 1;
        if (((at - hash(route->network, route->length)) & mask) >= ((at - hole) & mask)) {
            table->index[hole] = table->index[at];
            hole = at;
        }
    }
    table->index[hole] = 0;
}

void table_delete(struct table *table, struct address network, int length)
{
    uint32_t *slot, number;
    const struct route *last;

    network = masked(network, length);
    slot = table->slots ? place_of(table, network, length) : NULL;
    if (!slot || !*slot)
        return;
    number = *slot - 1;
    give(table, table->routes[number].peer);
    free_place(table, (uint32_t)(slot - table->index));
    last = table->routes + --table->count;
    if (number < table->count) { /* the last route takes its place */
        *place_of(table, last->network, last->length) = number + 1;
        table->routes[number] = *last;
    }
    count_length(table, length, -1);
    table->generation++;
}

void table_clear(struct table *table)
{
    while (table->count)
        give(table, table->routes[--table->count].peer);
    memset(table->lengths, 0, sizeof table->lengths);
    table->kinds = 0;
    table->generation++;
    if (table->slots)
        index_all(table);
}

struct peer *table_find(const struct table *table, struct address destination)
{
    int least = is_mapped(destination) ? MAPPED_BITS : 0; /* what is shorter is IPv6's */

    for (int i = 0; i < table->kinds && table->used[i] >= least; i++) {
        uint32_t slot = *place_of(table, masked(destination, table->used[i]), table->used[i]);
        if (slot)
            return table->routes[slot - 1].peer;
    }
    return NULL;
}
