/* What the relay may still do once it has all that it works with: packets come from strangers, so it gives away its
 * rights, and every system call that it does not need. It cannot open a path, execute a program, signal a process or
 * make a socket. So it makes no difference that it stays root's: weftd has no CAP_SETUID to change that by, and what a
 * user id gives is paths, signals, and the word of a socket that is made. */
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "relay.h"

/* linux/filter.h, linux/seccomp.h and linux/audit.h, which musl's compiler wrapper does not see. */
struct step {
    uint16_t code;
    uint8_t yes, no;
    uint32_t value;
};
enum { LOAD = 0x20, EQUAL = 0x15, ANY_BIT = 0x45, RETURN = 0x06 };
enum { SET_FILTER = 1, ALL_THREADS = 1 };
#define ALLOW 0x7fff0000u
#define REFUSE (0x00050000u | 1) /* EPERM */
#define KILL 0x80000000u
#if defined __x86_64__
#define ARCH 0xc000003eu
#elif defined __aarch64__
#define ARCH 0xc00000b7u
#elif defined __riscv && __riscv_xlen == 64
#define ARCH 0xc00000f3u
#endif

int drop_rights(void)
{
    /* linux/capability.h: _LINUX_CAPABILITY_VERSION_3 of this process; effective, permitted, inheritable, twice. */
    uint32_t header[2] = {0x20080522, 0}, none[6] = {0};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, header, none) < 0 ? -1 : 0;
}

#ifdef ARCH

enum { NUMBER = 0, ARCHITECTURE = 4, ARGUMENTS = 16 }; /* of struct seccomp_data, with the low half of each first */

static const uint16_t plain[] = {
    SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg,
    SYS_sendmmsg, SYS_ppoll, SYS_accept4, SYS_close, SYS_connect, SYS_getsockopt, SYS_setsockopt, SYS_futex, SYS_munmap,
    SYS_mremap, SYS_brk, SYS_madvise, SYS_clock_gettime, SYS_getpid, SYS_exit, SYS_exit_group, SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_restart_syscall, SYS_sched_yield,
#ifdef SYS_poll
    SYS_poll,
#endif
};
enum { PLAIN = sizeof plain / sizeof *plain, HEAD = 4, TAIL = 5 };

uint32_t confine(void)
{
    struct step steps[HEAD + 2 * PLAIN + TAIL], *at = steps;
    struct { uint16_t count; struct step *steps; } program = {0, steps};

    *at++ = (struct step){LOAD, 0, 0, ARCHITECTURE};
    *at++ = (struct step){EQUAL, 1, 0, ARCH};
    *at++ = (struct step){RETURN, 0, 0, KILL};
    *at++ = (struct step){LOAD, 0, 0, NUMBER};
    for (int i = 0; i < PLAIN; i++) {
        *at++ = (struct step){EQUAL, 0, 1, plain[i]};
        *at++ = (struct step){RETURN, 0, 0, ALLOW};
    }
    /* Memory that holds no program. */
    *at++ = (struct step){EQUAL, 0, 3, SYS_mmap};
    *at++ = (struct step){LOAD, 0, 0, ARGUMENTS + 2 * 8};
    *at++ = (struct step){ANY_BIT, 1, 0, 4 /* PROT_EXEC */};
    *at++ = (struct step){RETURN, 0, 0, ALLOW};
    *at++ = (struct step){RETURN, 0, 0, REFUSE};
    program.count = (uint16_t)(at - steps);
    return syscall(SYS_seccomp, SET_FILTER, ALL_THREADS, &program) == 0;
}

#else

uint32_t confine(void)
{
    return 0;
}

#endif
