/* The CNI client: one small static program that stands in a bin directory under the name of every plugin.
 *
 * It passes the call to the daemon and prints the answer; all work is done there. It knows nothing about
 * networks. It must start fast, so it allocates nothing: every buffer is static and of a fixed size, and
 * nothing that is read is trusted beyond that size. The protocol is described in weft/wire/frames.py.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifndef WEFT_SOCKET
#define WEFT_SOCKET "/run/weft/cni.sock"
#endif

/* Seconds. TOTAL_SECONDS are less than the two minutes that a runtime gives a plugin at the least: after them an error
 * says what was seen, after the runtime's limit nothing does. */
#ifndef TOTAL_SECONDS
#define TOTAL_SECONDS 110       /* for all servers that a call asks, but not for what delegates do meanwhile */
#endif
#ifndef SEND_SECONDS
#define SEND_SECONDS 5          /* for the daemon to accept the connection, and to read what it is sent */
#endif
#ifndef COMING_SECONDS
#define COMING_SECONDS 20       /* for a daemon that is just being started, where nothing can stand in for it */
#endif
#ifndef BEGIN_SECONDS
#define BEGIN_SECONDS 15        /* until it begins; longer than a request waits there for another one */
#endif
#ifndef START_SECONDS
#define START_SECONDS 30        /* until a stand-in of it begins, which has to start first */
#endif
#ifndef ANSWER_SECONDS
#define ANSWER_SECONDS 50       /* for each answer after that; longer than the daemon's own limit */
#endif
#ifndef REPEAT_SECONDS
#define REPEAT_SECONDS 10       /* from its start on a call whose server dies in the middle of it is made again */
#endif

#define CALLED_VARIABLE "CNI_WEFT_CALLED"   /* set in a call that is made again; CALLED in sdk/startup.py */
#define TURN_VARIABLE "CNI_WEFT_TURN"       /* set in a delegate's call; VARIABLE in host/locks.py */

enum {
    VERSION = 2,
    HEADER_SIZE = 8,
    PREFIX_SIZE = 4,            /* the length in front of each field */
    MAX_PAYLOAD = 1 << 20,
    MAX_FIELDS = 320,
    MAX_FDS = 32,               /* what the daemon takes */
    MAX_STDERR = 64 << 10,      /* what is kept of a delegate's log */
    MAX_NAME = 64,              /* bytes in a plugin's name */
    MAX_PATH = 4096,
    MAX_SOCKET_PATH = 108,      /* unix(7) */
};

enum kind { CALL = 1, RUN = 2, RAN = 3, DONE = 4, OPEN = 5, OPENED = 6, BEGUN = 7 };

/* Codes of the CNI specification, section "Error". */
enum { CODE_ENVIRONMENT = 4, CODE_AGAIN = 11 };

/* Bytes that are kept elsewhere. */
struct span {
    const unsigned char *data;
    size_t size;
};

struct frame {
    enum kind kind;
    unsigned version;
    int count;
    struct span fields[MAX_FIELDS];
};

struct descriptors {
    int count;
    int fds[MAX_FDS];
    char names[1024];           /* separated by spaces, in the order of `fds` */
    char netns_problem[32];     /* why CNI_NETNS gave none: "statfs ERRNO", "magic HEX", "open ERRNO", "setns ERRNO" */
};

/* error.c: print a CNI error object on stdout; always returns 1, the exit status. */
int fail(unsigned code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* streams.c: a descriptor that takes the number of a missing standard stream would be written to by mistake. */
void open_standard_streams(void);
/* streams.c: read stdin to its end; what is wrong with it is text for the daemon, which knows the right error object. */
const char *read_input(struct span *out);

/* frame.c: 0, or -1 with errno set; a frame that breaks the rules is EBADMSG, the end of the stream ECONNRESET. When
 * nothing came in time it is EAGAIN, and ETIMEDOUT when only a part did. */
int frame_send(int connection, enum kind kind, const struct span *fields, int count, const struct descriptors *with);
int frame_receive(int connection, struct frame *frame);
struct span text(const char *string);
/* Copies a field as a C string; EMSGSIZE if it is too long, EBADMSG if it is empty or has a NUL. */
int copy_text(char *out, size_t size, struct span field);
int write_all(int fd, const void *data, size_t size);

/* netns.c: collect what the daemon needs for a plugin from the namespaces of this process and of the container. */
void collect(struct descriptors *out, const char *plugin, const char *netns);

/* netns.c: put a new socket of rtnetlink in the place of the collected one, in which may be answers for a server that was
 * lost. */
void renew_route(void);

/* netns.c: open what an `open` frame names and answer it with `opened`; 0, or -1 with errno set. */
int send_settings(int connection, const struct frame *asked);

/* delegate.c: milliseconds of CLOCK_MONOTONIC. */
long long now(void);

/* delegate.c: carry out a `run` frame and answer it with `ran`; 0, or -1 with errno set. When the daemon says something
 * or hangs up meanwhile, the delegate is killed and nothing is answered. */
int run_delegate(int connection, const struct frame *run);

/* interpreter.c: which Python has weft. */
struct interpreter {
    char settings[MAX_PATH], path[MAX_PATH];
    struct stat status;         /* of the settings */
};

/* interpreter.c: tell whether this node's installation names one. */
int names_interpreter(void);
/* interpreter.c: read which one it is, and see whether nobody but root can exchange it. `why` says why it is needed. 0, or
 * 1, an error having been printed. */
int find_interpreter(struct interpreter *out, const char *why);
int check_interpreter(const struct interpreter *one, const char *why);
/* interpreter.c: what a descriptor of this process is called now; `name` has room for MAX_PATH. */
void name_of(int fd, char *name);

/* standin.c: what stands in for the daemon, on a socket beside the daemon's. */
struct standin {
    char directory[MAX_PATH];   /* the one of the daemon's socket */
    int opened;                 /* that directory */
    char name[32];              /* the socket's in it */
    ino_t seen;                 /* the socket that was connected to last; 0: none was there */
    int said;                   /* what the one has said that this process has started; -1: it has started none */
    struct interpreter interpreter;
};

/* standin.c: say which one is this caller's, `daemon` being the path of the daemon's socket. 0, or -1, an error having
 * been printed; `why` says in it why the daemon did not do. */
int find_standin(struct standin *out, const char *daemon, const char *why);
/* standin.c: connect to it; -1 with errno set. */
int connect_standin(struct standin *one);
/* standin.c: start one unless another process has, since it was connected to; 0, or -1, an error having been printed. */
int start_standin(struct standin *one, const char *why);
/* standin.c: take the name from one that hangs, so that the next caller starts another. */
void forget_standin(const struct standin *one);
/* standin.c: the last line that the stand-in has written which this process has started. */
const char *last_words(const struct standin *one);

/* main.c: connect to a socket, which may take so long; -1 with errno set when nothing answers there. */
int connect_to(const char *path, int milliseconds);

/* versions.c: the plugin that is called by this name. A name that is not ours is a copy's, and means what its file was
 * installed as; else it stays, for the server to refuse. */
const char *plugin_of(const char *name);

/* versions.c: answer VERSION for a plugin; returns the exit status. */
int print_versions(const char *plugin);

#endif
