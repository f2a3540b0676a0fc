/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "over.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pici/mpi.h"
#include "pici/socket.h"
#include "transport/address.h"

static const char *const names[] = {[OVER_MPI] = "mpi", [OVER_SOCKETS] = "sockets", [OVER_LEVELS] = "levels"};

int over_named(const char *name)
{
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

const char *over_name(enum over over)
{
    return names[over];
}

/* The rendezvous of the ranks. */
struct meeting {
    char address[ADDRESS_TEXT], token[2 * 16 + 1];
};

/* Finds a free port at this host's address for other hosts, or on loopback. Returns 0 if there is none. */
static int find_address(char text[ADDRESS_TEXT], char wrong[OVER_WRONG])
{
    static const int any[2] = {0, 0};
    const char *interface = getenv("PICI_SOCKET_IFNAME");
    struct address here = {.size = 0};
    struct addrinfo *loopback;
    if (interface && !pici_address_interface(interface, AF_INET, &here)) {
        snprintf(wrong, OVER_WRONG, "PICI_SOCKET_IFNAME: this host has no interface %.64s with an address", interface);
        return 0;
    }
    if (!interface && pici_address_resolve("127.0.0.1", "0", &loopback) == 0) {
        here = pici_address_of(loopback);
        freeaddrinfo(loopback);
    }
    const int fd = pici_address_listen(&here, any, 0);
    if (fd < 0) {
        snprintf(wrong, OVER_WRONG, "no port is free: %s", strerror(errno));
        return 0;
    }
    close(fd); /* the communicator listens there */
    const struct place place = pici_address_place(&here);
    pici_address_text(&place, text);
    return 1;
}

/* The token rejects strangers who know only the address. MPI distributes both. */
static int find_meeting(struct meeting *meeting, char wrong[OVER_WRONG])
{
    unsigned char secret[(sizeof meeting->token - 1) / 2];
    FILE *random = fopen("/dev/urandom", "rb");
    const int made = random && fread(secret, sizeof secret, 1, random) == 1;
    if (random)
        fclose(random);
    if (!made) {
        snprintf(wrong, OVER_WRONG, "/dev/urandom cannot be read");
        return 0;
    }
    for (size_t i = 0; i < sizeof secret; i++)
        snprintf(meeting->token + 2 * i, 3, "%02x", secret[i]);
    return find_address(meeting->address, wrong);
}

static struct pici_comm *over_sockets(MPI_Comm mpi, char wrong[OVER_WRONG])
{
    struct pici_comm *comm;
    struct meeting meeting = {"", ""};
    int rank, ranks;
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &ranks);
    if (rank == 0 && !find_meeting(&meeting, wrong))
        return NULL;
    MPI_Bcast(&meeting, (int)sizeof meeting, MPI_BYTE, 0, mpi);
    if (pici_comm_rendezvous(&comm, meeting.address, rank, ranks, meeting.token)) {
        snprintf(wrong, OVER_WRONG, "no communicator over sockets: %.200s%s", pici_comm_error(NULL),
                 getenv("PICI_SOCKET_IFNAME") ? "" : "; on several hosts PICI_SOCKET_IFNAME names the interface");
        return NULL;
    }
    return comm;
}

static struct pici_comm *over_mpi(MPI_Comm mpi, char wrong[OVER_WRONG])
{
    struct pici_comm *comm;
    if (pici_comm_mpi(&comm, mpi)) {
        snprintf(wrong, OVER_WRONG, "no communicator: %.256s", pici_comm_error(NULL));
        return NULL;
    }
    return comm;
}

struct pici_comm *over_make(enum over over, MPI_Comm mpi, int node, char wrong[OVER_WRONG])
{
    struct pici_comm *comm = NULL;
    MPI_Comm near;
    if (over == OVER_MPI)
        return over_mpi(mpi, wrong);
    struct pici_comm *outer = over_sockets(mpi, wrong);
    if (over == OVER_SOCKETS || !outer)
        return outer;
    MPI_Comm_split(mpi, node, 0, &near);
    struct pici_comm *inner = over_mpi(near, wrong);
    MPI_Comm_free(&near); /* the communicator has a duplicate */
    if (inner && pici_comm_levels(&comm, inner, outer)) {
        snprintf(wrong, OVER_WRONG, "no communicator on two levels: %.256s", pici_comm_error(NULL));
        comm = NULL;
    }
    return comm;
}
