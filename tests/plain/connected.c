/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators over sockets that the caller connected: arguments that make no sense, sockets that lead elsewhere,
 * peers that are no ranks. Needs libc alone. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/util/coll.h"
#include "tests/util/expect.h"
#include "tests/util/socket.h"
#include "tests/util/util.h"
#include "transport/greeting.h"

enum { WATCHDOG_S = 600 };

static void refused(struct socket_team *t, enum pici_status s, const char *phrase)
{
    int fds[SOCKET_RANKS * SOCKET_RANKS], open = 0;
    memcpy(fds, t->fds, sizeof fds);
    socket_team_make(t);
    expect(socket_team_all(t, s, phrase), phrase, s);
    for (int i = 0; i < t->p * t->p; i++)
        open += fds[i] > 2 && socket_is_open(fds[i]);
    expect(!open, "all sockets are closed afterwards", open);
    expect(t->seconds < 8, phrase, (long)t->seconds);
    socket_team_free(t);
}

/* Rank 0 cannot use its socket for rank 2, which therefore hears of that from nobody who knows why. */
static void not_connected(struct socket_team *t, const char *phrase)
{
    socket_team_make(t);
    for (int i = 0; i < 2; i++)
        expect(t->status[i] == PICI_E_ARG && strstr(t->words[i], phrase), t->words[i], i);
    expect(t->status[2] != PICI_OK && strstr(t->words[2], "rank 0 "), t->words[2], 2);
    expect(t->seconds < 8, phrase, (long)t->seconds);
}

static void swap(int *a, int *b)
{
    const int x = *a;
    *a = *b;
    *b = x;
}

static void wrong_ones(void)
{
    enum { P = 4 };
    struct socket_team t;
    socket_team_init(&t, P);
    socket_pairs(t.fds, P);
    swap(&t.fds[1], &t.fds[2]); /* rank 0's sockets for 1 and 2 */
    refused(&t, PICI_E_PEER, "rank 0: the socket for rank 1 is connected to rank 2");

    socket_team_init(&t, P);
    socket_pairs(t.fds, P);
    t.ranks[2] = P - 1; /* so it looks at three of its four entries */
    close(t.fds[2 * P + 3]);
    t.fds[2 * P + 3] = -1;
    refused(&t, PICI_E_PEER, "rank 2 has world size 3, rank 0 has 4: ");

    socket_team_init(&t, P);
    socket_pairs(t.fds, P);
    shutdown(t.fds[3 * P + 1], SHUT_RDWR); /* of ranks 3 and 1 */
    refused(&t, PICI_E_PEER, "closed its connection before its greeting");

    socket_team_init(&t, P);
    socket_pairs(t.fds, P);
    setenv("PICI_WINDOW", "many", 1);
    refused(&t, PICI_E_ARG, "rank 0: environment variable PICI_WINDOW is \"many\"");
    unsetenv("PICI_WINDOW");

    socket_team_init(&t, P);
    socket_pairs(t.fds, P);
    setenv("PICI_TRACE", "/nonexistent/x", 1);
    refused(&t, PICI_E_IO, "rank 0: PICI_TRACE");
    unsetenv("PICI_TRACE");

    socket_team_init(&t, 3);
    socket_pairs(t.fds, 3);
    close(t.fds[2]); /* of ranks 0 and 2 */
    FILE *file = tmpfile();
    t.fds[2] = file ? fileno(file) : -1;
    not_connected(&t, "rank 0: fds[2]");
    expect(file && socket_is_open(fileno(file)), "what is no socket is left alone", 0);
    if (file)
        fclose(file);

    socket_team_init(&t, 3);
    socket_pairs(t.fds, 3);
    close(t.fds[2]);
    t.fds[2] = t.fds[1];
    not_connected(&t, "rank 0: fds[1] and fds[2] are the same socket");
}

/* Arguments that make no sense, without any peer. */
static void bad_arguments(void)
{
    int fds[4];
    struct pici_comm *comm = (struct pici_comm *)fds;
    socket_pairs(fds, 2);
    expect(pici_comm_sockets(&comm, NULL, 0, 2) == PICI_E_ARG && !comm, "no array", 0);
    expect(pici_comm_sockets(&comm, fds, 0, 0) == PICI_E_ARG && pici_comm_sockets(&comm, fds, -1, -1) == PICI_E_ARG &&
               socket_is_open(fds[1]),
           "no ranks", 0);
    expect(pici_comm_sockets(&comm, fds, 2, 2) == PICI_E_ARG && !socket_is_open(fds[1]), "rank 2 of 2", 0);
    close(fds[2]);
    socket_pairs(fds, 2);
    expect(pici_comm_sockets(NULL, fds, 0, 2) == PICI_E_ARG && !socket_is_open(fds[1]), "no place", 0);
    close(fds[2]);
    expect(pici_comm_sockets(&comm, &(int){77777}, 0, 1) == PICI_OK && pici_comm_size(comm) == 1, "one rank", 0);
    float x = 3;
    expect(pici_all_reduce(&x, &x, 1, PICI_F32, PICI_SUM, comm, NULL) == PICI_OK && x == 3, "one rank", 0);
    pici_comm_free(comm);
}

/* Ranks 0 and 1 are ours; the other ends of rank 2's sockets say these bytes, and close after them or not. */
static void impostor(const uint8_t *bytes, size_t n, int closes, enum pici_status s, const char *phrase)
{
    struct socket_team t;
    int fds[9];
    socket_team_init(&t, 2);
    socket_pairs(fds, 3);
    const int rest[] = {fds[2], fds[5]};
    t.row = 3;
    memcpy(t.fds, fds, sizeof fds);
    t.ranks[0] = t.ranks[1] = 3;
    for (int i = 0; i < 2; i++) {
        socket_say(fds[6 + i], bytes, n);
        if (closes)
            close(fds[6 + i]);
    }
    setenv("PICI_TIMEOUT_MS", "300", 1);
    socket_team_make(&t);
    unsetenv("PICI_TIMEOUT_MS");
    expect(socket_team_all(&t, s, phrase), phrase, (long)n);
    expect(!socket_is_open(rest[0]) && !socket_is_open(rest[1]), "closed afterwards", 0);
    for (int i = 0; i < 2 && !closes; i++) {
        uint8_t in[GREETING_BYTES];
        struct greeting g;
        expect(recv(fds[6 + i], in, sizeof in, MSG_WAITALL) == GREETING_BYTES && !pici_greeting_get(&g, in) &&
                   g.rank == (uint32_t)i && g.peer == 2,
               "it was greeted", i);
        close(fds[6 + i]);
    }
    socket_team_free(&t);
}

static void impostors(void)
{
    uint8_t wire[GREETING_BYTES + VERDICT_BYTES] = {0};
    struct greeting g = pici_greeting(GREETING_MEET, 2, 3, 0);
    struct greeting_verdict v = {.status = PICI_OK, .rank = 2};
    impostor(wire, 0, 0, PICI_E_TIMEOUT, "timed out waiting for the greeting of rank 2");
    impostor(wire, 0, 1, PICI_E_PEER, "rank 2 closed its connection before its greeting");
    impostor(wire, sizeof wire, 0, PICI_E_PEER, "the peer on the socket for rank 2 is not a pici rank");
    pici_greeting_put(wire, &g);
    for (size_t n = 1; n < GREETING_BYTES; n += 37)
        impostor(wire, n, 1, PICI_E_PEER, "rank 2 closed its connection before its greeting");
    g.messages++;
    pici_greeting_put(wire, &g);
    impostor(wire, GREETING_BYTES, 1, PICI_E_PEER, "rank 2 runs an incompatible version of pici: message version");
    g.version++;
    pici_greeting_put(wire, &g);
    impostor(wire, GREETING_BYTES, 0, PICI_E_PEER, "rank 2 runs an incompatible version");
    g = pici_greeting(GREETING_MEET, 2, 4, 0);
    pici_greeting_put(wire, &g);
    impostor(wire, GREETING_BYTES, 0, PICI_E_PEER, "rank 2 has world size 4, ");

    /* it greets rank 0 as it should, and rank 1 as if that were rank 0; and then it leaves without a verdict */
    g = pici_greeting(GREETING_MEET, 2, 3, 0);
    pici_greeting_put(wire, &g);
    impostor(wire, GREETING_BYTES, 1, PICI_E_PEER, "rank 2 ");
    snprintf(v.text, sizeof v.text, "it is out of order");
    v.status = PICI_E_DEVICE;
    pici_verdict_put(wire + GREETING_BYTES, &v);
    impostor(wire, sizeof wire, 0, PICI_E_DEVICE, "rank 2: it is out of order");
}

int main(void)
{
    alarm(WATCHDOG_S); /* whoever hangs */
    bad_arguments();
    wrong_ones();
    impostors();
    return tally_end();
}
