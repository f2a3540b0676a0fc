/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Links with a delay, for bench/net on kernels without tc's netem: each packet of a host arrives MS milliseconds after
 * the host sent it.
 *   net_delay MS HOST...     HOST: a network namespace of `ip netns` with a TUN device eth0. The last byte of a
 *                            packet's IPv4 destination is its host's number, from 1 on, in this order.
 * One process reads the packets of all hosts and keeps them in one queue, because all wait equally long. A packet that
 * finds the queue full is dropped, as a switch would. Runs until a signal ends it. Linux, root. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    HOSTS = 64,
    PACKET = 65536,    /* the longest packet, bytes */
    QUEUE = 128 << 20, /* of packets that wait: 1 Gbit/s of eight hosts for 100 ms, bytes */
    HEADER = 20,
    TO = 16,     /* an IPv4 header's length; where in it the destination is */
    AT_ONCE = 64 /* packets to read from one host before the next */
};

/* One packet of the queue. Its bytes follow, and fill whole units of 16 bytes. */
struct packet {
    long long due; /* when it arrives, nanoseconds of the monotonic clock */
    int to, bytes; /* bytes 0: nothing more lies before the queue's end */
};

static unsigned char *queue;
static size_t head, tail, used; /* where the next packet goes, where the oldest lies, bytes between */

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static _Noreturn void fail(const char *what, const char *name)
{
    fprintf(stderr, "net_delay: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

/* The device eth0 of a host. */
static int open_host(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET))
        fail("host", name);
    close(space);
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    memcpy(r.ifr_name, "eth0", 5);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r))
        fail("eth0 of host", name);
    return fd;
}

static size_t padded(int bytes)
{
    return sizeof(struct packet) + (((size_t)bytes + 15) & ~(size_t)15);
}

/* Room for the longest packet at the queue's head, or NULL. */
static struct packet *room(void)
{
    const size_t most = padded(PACKET);
    if (used + 2 * most > QUEUE) /* 2: what the queue's end may waste */
        return NULL;
    if (head + most > QUEUE) {
        if (head < QUEUE)
            ((struct packet *)(queue + head))->bytes = 0;
        used += QUEUE - head;
        head = 0;
    }
    return (struct packet *)(queue + head);
}

/* Queue what a host has sent. */
static void take(int fd, int hosts, long long delay)
{
    static unsigned char dropped[PACKET];
    for (int i = 0; i < AT_ONCE; i++) {
        struct packet *p = room();
        unsigned char *bytes = p ? (unsigned char *)(p + 1) : dropped;
        const ssize_t n = read(fd, bytes, PACKET);
        if (n <= 0)
            return;
        if (!p || n < HEADER || bytes[0] >> 4 != 4)
            continue;
        const int to = bytes[TO + 3] - 1;
        if (to < 0 || to >= hosts)
            continue;
        *p = (struct packet){.due = now() + delay, .to = to, .bytes = (int)n};
        head += padded(p->bytes);
        used += padded(p->bytes);
    }
}

/* Deliver the packets that are due. Returns the nanoseconds until the next packet is, -1 without one. */
static long long deliver(const int fd[])
{
    while (used) {
        const struct packet *p = (const struct packet *)(queue + tail);
        if (tail == QUEUE || p->bytes == 0) {
            used -= QUEUE - tail;
            tail = 0;
            continue;
        }
        const long long wait = p->due - now();
        if (wait > 0)
            return wait;
        if (write(fd[p->to], p + 1, (size_t)p->bytes) < 0 && errno != EAGAIN && errno != EIO && errno != ENOBUFS)
            perror("net_delay: write");
        tail += padded(p->bytes);
        used -= padded(p->bytes);
    }
    return -1;
}

int main(int argc, char **argv)
{
    char *end = argc > 1 ? argv[1] : "";
    const double ms = strtod(end, &end);
    const int hosts = argc - 2;
    if (hosts < 1 || hosts > HOSTS || *end || !(ms >= 0 && ms <= 10000)) {
        fprintf(stderr, "usage: net_delay MS HOST...\n");
        return 2;
    }
    queue = malloc(QUEUE);
    if (!queue)
        fail("memory", "for packets");
    int fd[HOSTS];
    struct pollfd wait[HOSTS];
    for (int i = 0; i < hosts; i++) {
        fd[i] = open_host(argv[i + 2]);
        wait[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
    }
    for (;;) {
        const long long next = deliver(fd);
        const struct timespec until = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000};
        if (ppoll(wait, (nfds_t)hosts, next < 0 ? NULL : &until, NULL) < 0 && errno != EINTR)
            fail("poll", "of hosts");
        for (int i = 0; i < hosts; i++)
            if (wait[i].revents)
                take(fd[i], hosts, (long long)(ms * 1e6));
    }
}
