/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEAD = 4096,          /* bytes before the rings */
    RING_USUAL = 1 << 18, /* bytes: more would leave the caches before they are read */
    RINGS_MOST = 1 << 26, /* bytes of all rings of a host, unless rings have their least size */
    LOOKS = 64,           /* calls that move nothing before the socket is looked at */
    HEARD = 16            /* reads of the socket at a time: a peer may send needless wake-ups */
};

/* At the beginning of the memory. */
struct shared_head {
    _Atomic uint32_t taken; /* a process has opened it */
};

struct shared {
    void *memory;
    size_t bytes;
    struct ring outgoing, incoming;
    int ended; /* the peer has closed its socket */
    int looks; /* calls that moved nothing since the socket was looked at */
};

uint32_t pici_shared_ring_bytes(int ranks)
{
    uint32_t bytes = RING_USUAL;
    while (bytes > RING_LEAST && (uint64_t)bytes * (uint64_t)ranks * (uint64_t)(ranks - 1) > RINGS_MOST)
        bytes /= 2;
    return bytes;
}

#if defined __linux__ && defined MFD_ALLOW_SEALING

static size_t all_bytes(uint32_t ring_bytes)
{
    return HEAD + 2 * (size_t)ring_bytes;
}

/* Map the memory. The rank that made it writes to the first ring. Forked children do not inherit it. */
static struct shared *map(int fd, uint32_t ring_bytes, int made)
{
    struct shared *shared = calloc(1, sizeof *shared);
    if (!shared)
        return NULL;
    shared->bytes = all_bytes(ring_bytes);
    shared->memory = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared->memory == MAP_FAILED) {
        free(shared);
        return NULL;
    }
    (void)madvise(shared->memory, shared->bytes, MADV_DONTFORK);
    uint8_t *bytes = shared->memory;
    const struct ring first = pici_ring(bytes + RING_STATE, bytes + HEAD, ring_bytes),
                      second = pici_ring(bytes + (size_t)2 * RING_STATE, bytes + HEAD + ring_bytes, ring_bytes);
    shared->outgoing = made ? first : second;
    shared->incoming = made ? second : first;
    return shared;
}

/* Hardened systems make no other memory (vm.memfd_noexec). */
#ifdef MFD_NOEXEC_SEAL
#define NOT_EXECUTABLE MFD_NOEXEC_SEAL
#else
#define NOT_EXECUTABLE 8u
#endif

static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/* Beyond the limit for file sizes, the attempt would kill the process. Allocate all memory now: if it were missing
 * later, that would kill the process too. */
static int make_file(size_t bytes)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < bytes) {
        errno = EFBIG;
        return -1;
    }
    int fd = memfd_create("pici", MFD_CLOEXEC | MFD_ALLOW_SEALING | NOT_EXECUTABLE);
    if (fd < 0 && errno == EINVAL) /* an older kernel */
        fd = memfd_create("pici", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    const int error = posix_fallocate(fd, 0, (off_t)bytes);
    if (!error && fcntl(fd, F_ADD_SEALS, seals) == 0)
        return fd;
    if (error)
        errno = error;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

struct shared *pici_shared_make(struct greeting_offer *offer, uint32_t ring_bytes, int *fd)
{
    struct stat status;
    struct shared *shared = NULL;
    *fd = make_file(all_bytes(ring_bytes));
    if (*fd >= 0 && fstat(*fd, &status) == 0)
        shared = map(*fd, ring_bytes, 1);
    if (!shared) {
        *offer = (struct greeting_offer){.kind = OFFER_NOTHING, .process = (uint32_t)errno};
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return NULL;
    }
    *offer = (struct greeting_offer){.kind = OFFER_MEMORY,
                                     .process = (uint32_t)getpid(),
                                     .descriptor = (uint32_t)*fd,
                                     .ring_bytes = ring_bytes,
                                     .device = status.st_dev,
                                     .inode = status.st_ino};
    return shared;
}

/* Open a file of another process, if it is the offered one. O_PATH allows to check that first: opening a device or a
 * pipe could have side effects. */
static int open_file(const struct greeting_offer *offer)
{
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%lu/fd/%lu", (unsigned long)offer->process, (unsigned long)offer->descriptor);
    const int named = open(path, O_PATH | O_CLOEXEC);
    if (named < 0)
        return -1;
    int fd = -1;
    errno = ESTALE;
    if (fstat(named, &status) == 0 && S_ISREG(status.st_mode) && status.st_dev == offer->device &&
        status.st_ino == offer->inode && status.st_size == (off_t)all_bytes(offer->ring_bytes)) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", named);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    const int why = errno;
    close(named);
    const int sealed = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
    if (fd >= 0 && (sealed < 0 || (sealed & seals) != seals)) { /* others do no harm: the system may add some */
        close(fd);
        errno = EPERM;
        return -1;
    }
    errno = why;
    return fd;
}

struct shared *pici_shared_open(const struct greeting_offer *offer)
{
    const uint32_t bytes = offer->ring_bytes;
    if (bytes < RING_LEAST || bytes > RING_MOST || bytes & (bytes - 1)) {
        errno = EINVAL;
        return NULL;
    }
    const int fd = open_file(offer);
    if (fd < 0)
        return NULL;
    struct shared *shared = map(fd, bytes, 0);
    const int why = errno;
    close(fd);
    errno = why;
    if (!shared)
        return NULL;
    struct shared_head *head = shared->memory;
    if (atomic_exchange(&head->taken, 1)) {
        pici_shared_free(shared);
        errno = EBUSY;
        return NULL;
    }
    return shared;
}

void pici_shared_free(struct shared *shared)
{
    if (shared)
        munmap(shared->memory, shared->bytes);
    free(shared);
}

#else

struct shared *pici_shared_make(struct greeting_offer *offer, uint32_t ring_bytes, int *fd)
{
    (void)ring_bytes;
    *offer = (struct greeting_offer){.kind = OFFER_NOTHING, .process = ENOSYS};
    *fd = -1;
    return NULL;
}

struct shared *pici_shared_open(const struct greeting_offer *offer)
{
    (void)offer;
    errno = ENOSYS;
    return NULL;
}

void pici_shared_free(struct shared *shared)
{
    free(shared);
}

#endif

/* Send a byte. If the socket is full, the peer has unread bytes and wakes anyway. */
static void wake(int fd)
{
    (void)!send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void pici_shared_hear(struct shared *shared, int fd)
{
    char bytes[LOOKS];
    ssize_t got = (ssize_t)sizeof bytes;
    shared->looks = 0;
    for (int i = 0; i < HEARD && got == (ssize_t)sizeof bytes; i++) {
        got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            got = (ssize_t)sizeof bytes;
    }
    shared->ended |= got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

ssize_t pici_shared_send(struct shared *shared, int fd, const struct iovec *part, int parts)
{
    int wakes = 0;
    const int64_t moved = shared->ended ? 0 : pici_ring_write(&shared->outgoing, part, parts, &wakes);
    if (wakes)
        wake(fd);
    if (moved == 0 && !shared->ended && ++shared->looks >= LOOKS)
        pici_shared_hear(shared, fd);
    if (moved > 0)
        return (ssize_t)moved;
    errno = EAGAIN;
    if (moved < 0)
        errno = EBADMSG;
    else if (shared->ended)
        errno = EPIPE;
    return -1;
}

/* Once this rank sees the peer's end, it also sees all that the peer wrote before. */
ssize_t pici_shared_recv(struct shared *shared, int fd, const struct iovec *part, int parts)
{
    int wakes = 0;
    int64_t moved = pici_ring_read(&shared->incoming, part, parts, &wakes);
    if (moved == 0 && !shared->ended && ++shared->looks >= LOOKS) {
        pici_shared_hear(shared, fd);
        if (shared->ended)
            moved = pici_ring_read(&shared->incoming, part, parts, &wakes);
    }
    if (wakes)
        wake(fd);
    if (moved > 0 || (moved == 0 && shared->ended))
        return (ssize_t)moved;
    errno = moved < 0 ? EBADMSG : EAGAIN;
    return -1;
}

void pici_shared_end(struct shared *shared, const uint8_t last[RING_LAST])
{
    pici_ring_end(&shared->outgoing, last);
}

int pici_shared_waits(struct shared *shared, int sends, int receives)
{
    pici_ring_writer_waits(&shared->outgoing, sends);
    pici_ring_reader_waits(&shared->incoming, receives);
    return shared->ended || (sends && pici_ring_writable(&shared->outgoing)) ||
           (receives && pici_ring_readable(&shared->incoming));
}
